"""How to use the kernel: whether fusing pays, how fast the op is beside others, and what a call costs."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from kernels import VERSIONS, Problem, Unsupported
from kernels.flash.choose import TABLE
from kernels.flash.decode.plan import MOST_QUERIES
from kernels.limits import capability
from kernels.op.warm import Call

from ..evidence import Evidence, Undecided, computed, measured
from ..findings import fuse
from ..findings.decode import RAW, STUDY
from ..findings.fuse import HALF, WARM, beside, float32_over_others, over_others
from ..models.rivals import MEASURED_IN, V8, beside_op, label, rivals, served
from ..models.waves import CARDS
from ..record.files import DATA, known_gpus, read_rows
from ..record.text import NOTHING, factor, number
from ..studies import MAIN, STUDIES
from .table import Table, code, lines, link, mark, missing, ratio, small

CALLS = (  # in words, the call, a study and a timer
    ("prompt of 2,048 tokens, bfloat16", fuse.LAYER, "long", "device_warm"),
    ("prompt of 2,048 tokens, float32", replace(fuse.LAYER, dtype="float32"), "prompts", "device_warm"),
    ("a step on 16,384 keys, float16", fuse.HALF_DECODE, "split_keys", "device_cold"),
    ("a step on 16,384 keys, float32", fuse.FLOAT_DECODE, "split_keys", "device_cold"),
    ("64 tokens, head dim 2048, float32", MAIN, "peers", "device_warm"),
)
COUNTS = ("wins", "ties", "losses")
LETTERS = "B batch, H heads, S queries and keys, D head dim, R rotated dims."


def costs(e: Evidence) -> Table:
    """Times of typical calls and of the fastest peer, and the memory that they need beyond their tensors."""
    rows = []
    for words, problem, study, timer in CALLS:
        at = fuse.with_flash3(e) if study == "long" else e
        version = served(at, problem)
        own = at.time(version, study, timer, problem=problem)[problem]
        others = rivals(at, problem, version, (study,), timer)
        over = lines(factor(others[0].over.value), small(VERSIONS[others[0].version].title)) if others else NOTHING
        buffers = VERSIONS[version](problem, at.target).buffers
        extra = sum(math.prod(buffer.shape) * np.dtype(buffer.dtype.replace("bfloat", "float")).itemsize
                    for name, buffer in buffers.items() if name not in ("q", "k", "v", "out"))  # fmt: skip
        words += f", on an {fuse.named(at)}" * (at is not e)
        shown = number(own.value, digits=0 if own.value >= 10 else 1) if own else NOTHING
        rows.append((words, shown, over, number(extra / 1e6, digits=1)))
    header = ("call", "µs", "over the fastest other", "extra MB")
    caption = (
        f"The GPU alone, {e.card}; steps read K and V from memory. All but the last are of a LLaMA layer: 32 heads on "
        "8 of K and V, head dim 128. Others: PyTorch (compiled or not), a kernel of ours in the language Triton, "
        "FlashInfer and, where another card is named, FlashAttention 3; those with a right result. Written out: "
        "scores, softmax and the product with V as operations of PyTorch, whose compiler fuses what it can. Extra: "
        "memory beside the tensors of the call, by the plan of the kernel."
    )
    source = measured(e, *{study: None for _, _, study, _ in CALLS}) + computed("memory by the plan")
    return Table(header, rows, header[1:], caption, source=source, title="What calls take")


HERE = (  # in words, a call
    ("float32, 64 tokens, head dim 2048", MAIN),
    ("float32, 512 tokens, head dim 64", Problem("rope", 1, 32, 8, 512, 512, 64, 64, causal=True)),
    ("decode, float16", fuse.HALF_DECODE),
    ("prompt, bfloat16", fuse.LAYER),
)
CORES = {"portable": "fp32 units", "mma": "clusters, tensor cores", "wgmma": "clusters, wgmma"}


def cards() -> Table:
    """The kernel that the op runs on a card, and what is known of it there."""
    recorded = [*map(Evidence.load, known_gpus())]
    rows = []
    for target, group in itertools.groupby(CARDS, key=lambda card: card.target):
        names = ", ".join(card.name.removesuffix(", the authors'") for card in group)
        timed = [e for e in recorded if e.target == target]
        known = "; ".join(["timed", *_timed_in_part(timed)]) if timed else "compiled; emulated; not timed"
        cells = (_runs(problem, target) for _, problem in HERE)
        version = ".".join(map(str, capability(target)))
        rows.append((lines(names, small(f"compute capability {version}")), *cells, known))
    header = ("GPU", *(words for words, _ in HERE), "known")
    caption = (
        "Kernels that rope_attention runs. Compiled: registers and shared memory are on each version's page. Emulated: "
        "the kernels' code passes the checks in the emulator. On a card that was not timed "
        "the speedup over PyTorch is unknown."
    )
    source = computed("the table by which the op chooses, asked for each card")
    return Table(header, rows, caption=caption, id="cards", source=source, title="Your card: RTX 4090, A100 and others")


def _timed_in_part(cards: list[Evidence]) -> Iterator[str]:
    """The calls whose kernel was timed on some of the cards alone."""
    for words, problem in HERE:
        at = [e for e in cards if any(served(e, problem) in e.study(study).taken for study in STUDIES)]
        if len(at) < len(cards):
            yield f"{words}: on an {' and '.join(map(fuse.named, at))} only"


def _runs(problem: Problem, target: str) -> str:
    """The kernel of a call on a target, and the core of V8."""
    try:
        version = Call(problem).served(target)[0]
    except Unsupported:
        return "PyTorch"
    core = VERSIONS[version](problem, target).launches[-1].shape.core if version == V8 else ""
    return lines(link(version), small(CORES[core]) if core else "")


def rules() -> Table:
    """Which kernel the op runs for a call, and why."""
    rows = [
        (" and ".join(rule.dtypes), rule.queries, rule.keys, rule.capability, link(name), escape(rule.reason))
        for rule in TABLE
        for name in (V8 if rule.kernel == "cluster" else f"rope_{rule.kernel}",)
    ]
    header = ("dtype", "queries a head", "keys", "compute capability", "kernel", "why")
    caption = (
        "A call runs the first kernel whose row fits and that takes it; PyTorch computes what none takes. Rows are the "
        "queries of all heads that share a head of K and V (a KV head). A tile is the rows, or the keys, that a block "
        "multiplies at a time. mma.sync and wgmma are instructions for tensor cores, of a warp and, on Hopper cards, "
        "of four. "
        "<code>python -m kernels which --seq-q 1 --seq-k 4096 --dtype float16</code> says it for a call."
    )
    source = computed("the table by which the op chooses")
    return Table(header, rows, caption=caption, source=source, title="Which kernel runs, and why")


def beside_pytorch(e: Evidence) -> Table | str:
    """The op's kernels and their fastest peer at every problem timed beside one: the smallest speedup first."""
    found = beside_op(e)
    if not found:
        return missing("peers")
    (usual, _), *_ = Counter(rival.version for rival in found.values()).most_common(1)
    rows = [
        (
            label(problem),
            lines(number(rival.ours.value, digits=1), _named(served(e, problem), V8, served(e, problem))),
            lines(number(rival.us.value, digits=1), _named(rival.version, usual, VERSIONS[rival.version].title)),
            lines(ratio(rival.over), mark("slower", "wrong") * (rival.over.side < 0)),
        )
        for problem, rival in sorted(found.items(), key=lambda pair: pair[1].over.value)
    ]
    header = ("problem", "rope_attention, µs", "fastest other, µs", "speedup")
    caption = (
        f"Time of one call on the GPU alone, {e.card}, float32, tensors in the L2 cache if they fit. The smallest "
        f"speedup comes first, with the 95 % interval {e.covers()}. {LETTERS} rope_attention "
        "chooses by an estimate for each shape whether to fuse fully, to rotate K "
        "first (rope_hybrid_v8), or Q and K (rope_prompt32). Where nothing is named, it runs rope_v8, full fusion, and "
        f"the fastest other with a right result is: {VERSIONS[usual].title}."
    )
    return Table(header, rows, header[1:], caption, source=measured(e, *MEASURED_IN), title="Beside PyTorch")


def _named(version: str, usual: str, title: str) -> str:
    return "" if version == usual else small(escape(title))


def fusing(e: Evidence) -> Table | str:
    """Full fusion beside the same attention with K rotated in front of it."""
    few, header = f"{MOST_QUERIES + 1} to {fuse.FEW_QUERIES}", ("queries, float32", "fuse?", *COUNTS)
    rows = _counted({
        (few, "yes"): lambda: fuse.outcomes(e, lambda p: fuse.few_queries(p) and p.kv_heads == p.heads),
        (f"{few}, heads share K", "yes"): lambda: fuse.outcomes(
            e, lambda p: fuse.few_queries(p) and p.kv_heads < p.heads
        ),
        (f"more than {fuse.FEW_QUERIES}", "mostly no"): lambda: fuse.outcomes(e, fuse.many_queries),
    })
    caption = (
        f"{e.card}: at how many shapes full fusion is faster than, level with or slower than the better of a hybrid "
        "and separate kernels with the same attention. A tie is within 3 %, or its interval reaches 1. Queries are "
        f"those of a head; a call with up to {MOST_QUERIES} counts as decode."
    )
    if not rows:
        return missing("map")
    return Table(header, rows, COUNTS, caption, source=measured(e, "map", "heldout"), title="Does fusing pay?")


LIBRARIES = {  # by how the names of peers begin
    "torch": "PyTorch", "triton": "Triton", "flashinfer": "FlashInfer", "flash3": "FlashAttention 3",
}  # fmt: skip


def calls(e: Evidence) -> Table | str:
    """`rope_attention`, fused or not, beside the fastest other wherever the kernel that runs was timed beside one."""

    single = ("float32",)

    def others(dtypes: Sequence[str], *studies: str) -> str:
        """The libraries that some call was timed beside."""
        found = set()
        for study in studies:
            problems = [problem for problem in e.study(study).problems("rope") if problem.dtype in dtypes]
            names = e.study(study).versions("rope", peers=True)
            found |= {name.split("_")[0] for name in names if e.time(name, study, problem=problems)}
        return ", ".join(words for start, words in LIBRARIES.items() if start in found)

    def half(study: str, version: str = "") -> Callable[[], fuse.Outcomes]:
        return lambda: beside(over_others(e, study, version, WARM, *HALF))

    rows = _counted({
        ("decode, half precision", others(HALF, STUDY)): half(STUDY, RAW),
        ("decode, float32", others(single, *MEASURED_IN)): lambda: beside(float32_over_others(e, fuse.decodes)),
        ("prompts, half precision", others(HALF, "half_prompts")): half("half_prompts"),
        ("few queries on many keys, bfloat16", others(HALF, "few")): half("few"),
        ("long prompts, bfloat16", others(HALF, "long")): half("long"),
        ("prompts, float32", others(single, *MEASURED_IN)): lambda: beside(
            float32_over_others(e, lambda problem: not fuse.decodes(problem))
        ),
    })
    caption = (
        f"With RoPE, {e.card}: at how many shapes rope_attention is faster, level or slower than the fastest other. "
        "Counted are shapes at which the kernel that runs today was timed beside one. Decode: raw keys, up to "
        f"{MOST_QUERIES} queries. Triton: a kernel of ours in that language."
    )
    if not rows:
        return missing("peers")
    source = measured(e, *MEASURED_IN, "half_prompts", "few", "long")
    header = ("your call", "beside", *COUNTS)
    return Table(header, rows, COUNTS, caption, source=source, title="Does our call win?")


def server(e: Evidence) -> Table:
    """The call for a server in half precision, by what its cache holds, and what that gains."""
    timed, rows = fuse.with_flash3(e), []
    for words, of in fuse.SERVED.items():
        raw, rotated = fuse.over_flash3(timed, *of)
        for keys, call, gains in (("rotated", "attention", rotated), ("raw", "rope_attention", raw)):
            counts = beside(gains)
            best = code(call) if counts.won >= counts.lost else "FlashAttention 3"
            ours = lines(f"{gains}", small(f"of {call}"))
            rows.append((words, keys, best, ours, *map(str, counts)))
    header = ("your call", "keys in the cache", "what to call", "ours over FlashAttention 3", *COUNTS)
    caption = (
        f"{timed.card}, bfloat16, warm. Ours is attention for rotated keys, rope_attention for raw ones; ratios are "
        "least to largest by shape, and wins are shapes at which ours is faster. At each call compiled RoPE rotates "
        "raw keys in front of FlashAttention 3."
    )
    source, title = measured(timed, "few", "long"), "In a server, half precision"
    return Table(header, rows, header[3:], caption, source=source, title=title)


def beside_flash3(e: Evidence) -> Table:
    """Each call beside FlashAttention 3."""
    timed, rows = fuse.with_flash3(e), []
    for study in ("few", "long"):
        rope, alone = fuse.over_flash3(timed, study)
        for problem in rope:
            ours = served(timed, problem)
            us = lines(number(timed.time(ours, study, problem=problem)[problem].value, digits=1), small(ours))
            rows.append((label(problem), us, ratio(rope[problem]), ratio(alone[problem])))
    title = "Beside FlashAttention 3, call by call"
    header = ("problem", "rope_attention, µs", "over RoPE and FlashAttention 3", "attention over FlashAttention 3")
    caption = (
        f"{timed.card}, bfloat16, the GPU alone, warm. Above 1 ours is faster. RoPE in front of FlashAttention 3 "
        "rotates all keys at each call. The last column is of tensors that are rotated already, as in a server's "
        f"cache. {LETTERS}"
    )
    return Table(header, rows, header[1:], caption, source=measured(timed, "few", "long"), title=title)


def families() -> Table:
    """Models of transformers: the op's arguments and the largest error, and whether `fuse` takes them."""
    found = read_rows(DATA / "families.csv", "families")
    (release,) = {row["release"] for row in found}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in found:
        arguments = (row["arguments"] or "").replace("d/2", "d // 2")
        groups.setdefault((arguments, row["refused"] or ""), []).append(row)
    rows = [
        (
            escape(", ".join(row["family"] for row in group)),
            f"<code>{escape(arguments)}</code>" if arguments else NOTHING,
            number(max(row["max_rel_err"] for row in group)) if arguments else NOTHING,
            f"refused: {escape(why)}" if why else "yes",
        )
        for (arguments, why), group in groups.items()
    ]
    header = ("model", "arguments", "error", "fuse")
    caption = (
        f"Arguments of rope_attention beside causal=True, for transformers {release}: cos and sin are the tables of "
        "all keys as the model makes them, d wide, and sin is passed like cos. Weights are random, on the CPU, in "
        "float32. The error is the largest difference from eager attention in float64, over the largest value: of "
        "logits, or of attention where fuse(model) refuses the model. Up to "
        f"{number(max(row['allowed_rel_err'] or 0 for row in found))} is allowed, 4 times the error of eager attention "
        "in float32."
    )
    source = computed(f"computed on the CPU with transformers {release}")
    return Table(header, rows, ("error",), caption, id="models", source=source, title="Models of transformers")


def _counted(asked: Mapping[tuple[str, ...], Callable[[], fuse.Outcomes]]) -> list[tuple[str, ...]]:
    """A row for each that was measured."""
    rows = []
    for cells, count in asked.items():
        try:
            rows.append((*cells, *map(str, count())))
        except Undecided:
            continue
    return rows
