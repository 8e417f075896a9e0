"""Sentences of chapters about a version, for the top of its page, and the calls for which the op runs it."""

import functools
import math
import re

import nbformat
from docutils.nodes import make_id

from kernels import VERSIONS, Version
from kernels.flash.choose import ANY, TABLE, Rule

from ..models.rivals import HYBRID, V8
from ..tables.table import link
from .numbers import NOTEBOOKS

STEP, HEADING = re.compile(r'step\(e, "(\w+)"'), re.compile(r"^## (.+)$", re.MULTILINE)
PHASE_7 = ("tensor-cores", "A step of our second try with tensor cores.")
DECODE = ("decode", "Blocks share the keys of a head, so that few queries keep the whole card busy.")
BARE = ("practice", "The same without RoPE, for tensors that are rotated already.")
PROMPT = ("practice", "A hybrid: a launch in front rotates K, and attention rotates Q as it loads it.")
OTHER = ("v8", "It has the attention of V8, with another embedding.")
STORY = {  # by version: the chapter that tells of it, and what it tells
    "attention_baseline": ("checks", "Its reductions have the bug of the published kernel, but it writes no NaN."),
    "attention_online": (
        "checks",
        "Its reductions hand their result to the first warp alone. The outputs of the other warps are NaN or about "
        "twice too large.",
    ),
    "attention_online_fixed": ("checks", "It has the two lines that the published kernel lacks. It still has a race."),
    "attention_v8": ("v8", "V8 without RoPE."),
    "attention_decode": DECODE,
    "attention_wide_decode": DECODE,
    "attention_prompt": BARE,
    "attention_prompt_persistent": BARE,
    "attention_prompt_split": BARE,
    "sinusoidal_separate_scalar": ("loads", "The baseline of V5. It loads one float at a time."),
    "sinusoidal_separate_float4": ("loads", "The baseline of the hybrids. It loads four floats at a time, as V5 does."),
    "sinusoidal_v5": (
        "loads",
        "At the head dims of the documents it beats separate kernels that load one float at a time. By the GPU alone "
        "it does not beat those that load four, as it does.",
    ),
    "sinusoidal_v6": OTHER,
    "alibi_v1": OTHER,
    "learned_v1": OTHER,
    "rope_v7": (
        "wave",
        "On their SMs V7 needs a wave of blocks fewer than separate kernels, with the four heads of the documents. "
        "With the same number of waves it is mostly slower, because of its loop.",
    ),
    "rope_v8": (
        "v8",
        "The queries of a tile share each rotated key. The blocks of a cluster share the head dim, and what they "
        "exchange is parts of scores.",
    ),
    "rope_v8_mma": ("v8", "The second step to V8: blocks share the head dim."),
    "rope_v8_portable": ("v8", "The first step to V8: queries share each rotated key."),
    "rope_hybrid_v8": ("v8", "V8 with K rotated by a kernel in front."),
    "rope_separate_v8": ("v8", "V8 with Q and K rotated by kernels in front."),
    "rope_decode": DECODE,
    "rope_wide_decode": DECODE,
    "rope_prompt": PROMPT,
    "rope_prompt_persistent": ("practice", "A hybrid: a launch in front rotates K, and producer warps rotate Q."),
    "rope_prompt_split": (
        "practice", "Blocks share the keys. On mma.sync they rotate them, and for wgmma a launch in front does.",
    ),
    "rope_prompt32": ("practice", "Q and K are rotated by a launch in front, which also splits each float32 in two."),
    "rope_chunk": ("practice", "Full fusion: keys are rotated in shared memory."),
    **dict.fromkeys((f"fp16_phase7{step}" for step in "abcd"), PHASE_7),
}


@functools.cache
def _steps() -> dict[str, tuple[str, str]]:
    """Of each version that a chapter of reference steps through: the chapter and the title of the section."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        section = ""
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                section = [section, *HEADING.findall(cell.source)][-1]
            for name in STEP.findall(cell.source):
                found.setdefault(name, (path.stem, section))
    return found


@functools.cache
def _title(chapter: str) -> str:
    text = nbformat.read(NOTEBOOKS / f"{chapter}.ipynb", as_version=4).cells[0].source
    return text.partition("\n")[0].removeprefix("# ")


def told(version: Version) -> list[str]:
    """Sentences about a version, each with a link to its chapter."""
    found = []
    if version.id in STORY:
        chapter, text = STORY[version.id]
        found.append(f"{text} More: [{_title(chapter)}](../chapters/{chapter}.ipynb)")
    steps = _steps()
    if step := steps.get(version.id) or steps.get(f"{version.id}_227k"):
        chapter, section = step
        found.append(f"{_title(chapter)}: <a href='../chapters/{chapter}.html#{make_id(section)}'>{section}</a>")
    elif version.of_log and not found:
        chapter = {"fp16": "half"}.get(version.family, version.family)
        found.append(f"More: [{_title(chapter)}](../chapters/{chapter}.ipynb)")
    return found


OPS = {"rope": "rope_attention", "attention": "attention"}  # the call of a family, if it has one of its own


def _meet(one: Rule, other: Rule) -> bool:
    """Whether there are calls that both rows cover."""
    least, most = max(one.least, other.least), min(one.most or math.inf, other.most or math.inf)
    return bool(set(one.dtypes) & set(other.dtypes)) and least <= most


def _runs(rule: Rule, family: str) -> str:
    """The version that a row runs for a family; where it has none of that family, the one for RoPE."""
    own = f"{family}_{'v8' if rule.kernel == 'cluster' else rule.kernel}"
    return own if own in VERSIONS else own.replace(family, "rope")


def served(version: Version) -> str:
    """For which calls the op runs a version: the rows of its table that name it, and what may take a call before."""
    wanted = V8 if version.id == HYBRID else version.id
    names = [_runs(rule, version.family) for rule in TABLE]
    ops = [op for family, op in OPS.items() if any(_runs(rule, family) == version.id for rule in TABLE)]
    texts = []
    for place, rule in enumerate(TABLE):
        if names[place] == wanted and version.family in OPS:
            where = f"where {link(V8)} is slower" if wanted != version.id else rule.when if rule.when != ANY else ""
            above = [name for name, other in zip(names[:place], TABLE) if _meet(other, rule)]
            texts.append(", ".join(filter(None, (
                f"{' and '.join(rule.dtypes)}, {rule.queries} queries a head",
                where,
                f"compute capability {rule.capability}" * (rule.capability != ANY),
                f"unless {' or '.join(map(link, above))} takes the call" * bool(above),
            ))))  # fmt: skip
    if not texts:
        return ""
    calls = " and ".join(f"<code>{op}</code>" for op in ops or [OPS["rope"]])
    rule_at = "<a href='../chapters/practice.html#which-kernel-runs'>In practice</a>"
    return f"{calls} run{'s' * (len(ops) < 2)} it for {'; and for '.join(texts)}. The exact rule: {rule_at}."
