"""How to use the kernel: whether fusing pays, how fast the op is beside others, and what a call costs."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import Any

import numpy as np

from kernels import VERSIONS, Problem, Unsupported
from kernels.flash.choose import ANY, TABLE, Rule
from kernels.flash.decode.plan import MOST_QUERIES
from kernels.limits import capability
from kernels.op.warm import Call

from ..evidence import Estimates, Evidence, Undecided, computed, measured
from ..findings import fuse
from ..findings.decode import STUDY
from ..findings.fuse import HALF, WARM, beside, float32_over_others, over_others
from ..models.rivals import COMPARED, MEASURED_IN, V8, beside_op, label, rivals, served
from ..models.waves import CARDS
from ..record.files import DATA, known_gpus, read_rows
from ..record.text import NOTHING, factor, number
from ..studies import HALF_PEERS, MAIN, STUDIES
from .table import Table, code, lines, link, missing, ratio, small

CALLS = (  # in words, the call, a study and a timer
    ("prompt of 2,048 tokens", fuse.LAYER, "long", "device_warm"),
    ("prompt of 2,048 tokens", replace(fuse.LAYER, dtype="float32"), "prompts", "device_warm"),
    ("a step on 16,384 keys", fuse.HALF_DECODE, "split_keys", "device_cold"),
    ("a step on 16,384 keys", fuse.FLOAT_DECODE, "split_keys", "device_cold"),
    ("64 tokens, head dim 2048", MAIN, "peers", "device_warm"),
)
FROM = {"device_warm": "inputs in L2", "device_cold": "K and V from DRAM"}  # by timer, where inputs are before a call
SIDES = {1: "faster", 0: "level", -1: "slower"}
COUNTS = tuple(SIDES.values())
TIE = "Level is a <a href='../glossary.html#term-tie'>tie</a>"
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
        where = lines(fuse.named(at), small(FROM[timer]))
        shown = number(own.value, digits=0 if own.value >= 10 else 1) if own else NOTHING
        rows.append((words, problem.dtype, where, shown, over, number(extra / 1e6, digits=1)))
    header = ("call", "dtype", "card", "µs", "over the fastest other", "extra MB")
    caption = (
        "The GPU alone. All but the last are of a LLaMA layer: 32 heads on 8 of K and V, head dim 128. Others: PyTorch "
        "(compiled or not), a kernel of ours in the language Triton, FlashInfer and, on the H200, FlashAttention 3; "
        "those with a right result. Written out: "
        "scores, softmax and the product with V as operations of PyTorch, whose compiler fuses what it can. Extra: "
        "memory beside the tensors of the call, by the plan of the kernel."
    )
    source = measured(e, *{study: None for _, _, study, _ in CALLS}) + computed("memory by the plan")
    return Table(header, rows, header[3:], caption, "costs", source, "What calls take")


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
        "Kernels that rope_attention runs. Compiled: assembled for the card at a shape or two, whose registers and "
        "shared memory are on the version's page. Emulated: the kernels' code passes the checks in the emulator. On a "
        "card that was not timed the speedup over PyTorch is unknown."
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


FUSES = {  # by kernel, what it rotates itself
    "prompt_split": "fused up to 64 rows a KV head, else a hybrid", "prompt_persistent": "a hybrid: K is rotated first",
    "prompt": "a hybrid: K is rotated first", "prompt32": "not fused: Q and K are rotated first",
}  # fmt: skip


def _kernel(rule: Rule) -> str:
    return V8 if rule.kernel == "cluster" else f"rope_{rule.kernel}"


def rules() -> Table:
    """Which kernel the op runs for a call, and when."""
    rows = [
        (
            " and ".join(rule.dtypes), rule.queries, "–" if rule.when == ANY else rule.when, rule.capability,
            lines(link(_kernel(rule)), small(FUSES.get(rule.kernel, "fused"))),
        )
        for rule in TABLE
    ]  # fmt: skip
    header = ("dtype", "queries a head", "when", "compute capability", "kernel")
    example = Problem("rope", 1, 8, 8, 1, 4096, 128, 128, dtype="float16")
    caption = (
        "A call runs the first kernel whose row fits and that takes it; PyTorch computes what none takes. Rows a KV "
        "head are the queries of all heads that share a head of K and V. For example, float16, 1 query, 8 heads of "
        f"queries and of K, 4,096 keys: there is 1 row a KV head, so {link(Call(example).served('sm_90')[0])} runs. "
        "<code>python -m kernels which --heads 8 --seq-q 1 --seq-k 4096 --dtype float16</code> says it for a call."
    )
    source = computed("the table by which the op chooses")
    return Table(header, rows, caption=caption, id="rules", source=source, title="Which kernel runs")


def reasons() -> Table:
    """Why the op runs each kernel, from its source."""
    told = {_kernel(rule): rule.reason for rule in TABLE}
    caption = (
        "A tile is the rows, or the keys, that a block multiplies at a time. mma.sync and wgmma are instructions for "
        "tensor cores, of a warp and, on Hopper cards, of four."
    )
    rows = [(link(name), escape(reason)) for name, reason in told.items()]
    source = computed("the table by which the op chooses")
    return Table(("kernel", "why"), rows, caption=caption, id="reasons", source=source, title="Why each kernel runs")


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
        f"and separate kernels with the same attention. {TIE}. Queries are those of a head; a call with up to "
        f"{MOST_QUERIES} counts as decode."
    )
    if not rows:
        return missing("map")
    return Table(header, rows, COUNTS, caption, "fusing", measured(e, "map", "heldout"), "Does fusing pay?")


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

    def half(study: str) -> Callable[[], tuple[int, ...]]:
        return lambda: _with_untimed(over_others(e, study, "", WARM, *HALF), e.study(study).problems("rope"), HALF)

    def float32(of: Callable[[Problem], bool]) -> Callable[[], tuple[int, ...]]:
        return lambda: _with_untimed(float32_over_others(e, of), filter(of, COMPARED), single)

    rows = _counted({
        ("decode, half precision", others(HALF, STUDY)): half(STUDY),
        ("decode, float32", others(single, *MEASURED_IN)): float32(fuse.decodes),
        ("prompts, half precision", others(HALF, "half_prompts")): half("half_prompts"),
        ("few queries on many keys, bfloat16", others(HALF, "few")): half("few"),
        ("long prompts, bfloat16", others(HALF, "long")): half("long"),
        ("prompts, float32", others(single, *MEASURED_IN)): float32(lambda problem: not fuse.decodes(problem)),
    })
    caption = (
        f"With RoPE, {e.card}: at how many shapes rope_attention is faster, level or slower than the fastest other. "
        f"{TIE}. Not timed: shapes of the same studies whose kernel of today was not timed on this card beside a "
        f"library. Inputs are in L2 if they fit, for decode too. Decode: raw keys, up to {MOST_QUERIES} queries. "
        f"Prompts: of any length. Triton: a kernel that we wrote in that language.{_lost(e)}"
    )
    if not rows:
        return missing("peers")
    source = measured(e, *MEASURED_IN, "half_prompts", "few", "long")
    header = ("your call", "beside", *COUNTS, "not timed")
    return Table(header, rows, header[2:], caption, "calls", source, "Does our call win?")


def _with_untimed(gains: Estimates, problems: Iterable[Problem], dtypes: Sequence[str]) -> tuple[int, ...]:
    """At how many problems of some dtypes the op is faster, level and slower, and at how many it was not timed."""
    return *beside(gains), fuse.untimed_among(gains, (each for each in problems if each.dtype in dtypes))


def _lost(e: Evidence) -> str:
    """The float32 calls that lose, in words."""
    try:
        lost = {problem: over for problem, over in float32_over_others(e).items() if over.side < 0}
    except Undecided:
        return ""
    others = {p: VERSIONS[beside_op(e)[p].version].title for p in lost}
    told = (f"{label(p)} ({factor(lost[p].value)} of {title})" for p, title in others.items())
    return f" The float32 calls that lose: {escape('; '.join(told))}." if lost else ""


RIVAL = "The rival is the fastest of PyTorch's ways, or at a few prompts a Triton kernel that we wrote."
FLASH3, PEERS, SHORTER, LEAST = "FlashAttention 3", "PyTorch", "a shorter prompt", 1024
UNTIMED = (  # what to call on cards that were not timed
    "any call, on other cards", "raw, any dtype", code("rope_attention"), "nothing: time PyTorch's compiled call, too",
), (
    "any call, on other cards", "rotated, any dtype", lines("PyTorch's", code("scaled_dot_product_attention")),
    f"nothing: time {code('attention')}, too",
)  # fmt: skip


def _prompt(problem: Problem) -> bool:
    return not fuse.decodes(problem) and problem.seq_q >= problem.seq_k


FLOAT32: dict[str, Callable[[Problem], bool]] = {  # the same calls in float32
    fuse.DECODE: fuse.decodes,
    fuse.CHUNK: lambda problem: not fuse.decodes(problem) and problem.seq_q < problem.seq_k,
    fuse.PROMPTS: lambda problem: _prompt(problem) and problem.seq_q >= LEAST,
}


def what_to_call(e: Evidence) -> Table:
    """The call to make by the phase, what the cache holds and the dtype, and what was measured on which card."""
    timed = fuse.with_flash3(e)
    rows: list[tuple[str, ...]] = []

    def add(words: str, dtype: str, others: str, of: Callable[[Problem], bool]) -> None:
        """A row of raw keys on this card, where it was measured."""
        half, found = dtype in HALF, partial(over_others, e, "half_prompts", "", WARM, *HALF)
        with contextlib.suppress(Undecided):
            gains = _where(of, found()) if half else float32_over_others(e, of)
            asked = [each for each in (e.study("half_prompts").problems("rope") if half else COMPARED)
                     if of(each) and (each.dtype in HALF) is half]  # fmt: skip
            told = _found(e, "rope_attention", gains, others, fuse.untimed_among(gains, asked))
            keys = lines(f"raw, {dtype}", _dims(gains) if words == fuse.DECODE else "")
            rows.append((words, keys, code("rope_attention"), told))

    for words, of in fuse.SERVED.items():
        raw, rotated = fuse.over_flash3(timed, *of)
        for keys, call, gains, front in (
            ("rotated", "attention", rotated, ""), ("raw", "rope_attention", raw, "RoPE and "),
        ):  # fmt: skip
            counts = beside(gains)
            best = code(call) if counts.won >= counts.lost else lines(FLASH3, small("for Hopper cards"))
            rows.append((words, f"{keys}, bfloat16", best, _found(timed, call, gains, front + FLASH3)))
        add(words, "float32", PEERS, FLOAT32[words])
        if words == fuse.DECODE:
            rows += _wide(timed)
    rows += _short_rotated(e)
    for dtype, others in (("float16", "PyTorch and FlashInfer"), ("float32", PEERS)):
        add(SHORTER, dtype, others, lambda problem: _prompt(problem) and problem.seq_q < LEAST)
    rows.append(("any call", "rotated, float32", code("attention"), "few shapes beside a library"))
    header = ("your call", "keys in the cache", "what to call", "measured")
    caption = (
        "How many times as fast as another ours is, least to largest by shape, and at how many shapes it is faster, "
        f"level and slower. {TIE}. Not timed: shapes of the same studies where the kernel that runs today has no time "
        "beside a library on that card. By device_warm in all rows, decode too: the "
        "GPU alone, inputs in L2 if they fit. Raw keys are rotated at each call: in front of FlashAttention 3 by "
        "compiled RoPE. float16 and bfloat16 run the same kernels. In bfloat16 chunks of "
        f"{_span(timed, fuse.CHUNK)} queries were timed. {RIVAL}"
    )
    source = measured(timed, "few", "long") + measured(e, *MEASURED_IN, "half_prompts")
    return Table(header, [*rows, *UNTIMED], caption=caption, id="what-to-call", source=source, title="What to call")


def _wide(e: Evidence) -> Iterator[tuple[str, ...]]:
    """The row of decode with large head dims, which is a kernel of its own, on the card that timed it."""
    with contextlib.suppress(Undecided):
        gains = over_others(e, "wide_decode", "", WARM, "float32")
        keys = lines("raw, float32", _dims(gains))
        yield fuse.DECODE, keys, code("rope_attention"), _found(e, "rope_attention", gains, "PyTorch")


def _dims(gains: Estimates) -> str:
    """The head dims that were timed."""
    dims = [problem.hdim for problem in gains.known]
    return small(f"head dim {min(dims)} to {max(dims)}")


def _short_rotated(e: Evidence) -> Iterator[tuple[str, ...]]:
    """The row of short prompts without RoPE in half precision, beside cuDNN, where the kernel that runs was timed."""
    with contextlib.suppress(Undecided):
        study, asked = "half_prompts", [p for p in fuse.prompts_over(e, HALF_PEERS[3]) if p.seq_q < LEAST]
        over = {p: e.speedup(served(e, p), HALF_PEERS[3], study, problem=p)[p] for p in asked}
        if gains := Estimates(over, "×").known:
            told = _found(e, "attention", gains, "cuDNN", fuse.untimed_among(gains, asked))
            yield SHORTER, "rotated, float16", code("attention"), told


def _where(of: Callable[[Problem], bool], gains: Estimates) -> Estimates:
    return gains.at(*filter(of, gains))


def _span(e: Evidence, call: str) -> str:
    """The queries of the calls of a kind that were timed beside FlashAttention 3, least to most."""
    study, of = fuse.SERVED[call]
    queries = [problem.seq_q for problem in e.study(study).problems("rope") if of(problem)]
    return f"{min(queries)} to {max(queries)}"


def _found(e: Evidence, call: str, gains: Estimates, other: str, untimed: int = 0) -> str:
    """How a call does over another on a card: the range, and at how many shapes it is faster, level, slower, unknown.
    """
    counts = ", ".join(f"{n} {word}" for n, word in zip(beside(gains), SIDES.values()))
    counts += f", {untimed} not timed" * bool(untimed)
    return lines(f"{code(call)} {gains} over {other}", small(f"{fuse.named(e).partition(' ')[0]}: {counts}"))


def beside_flash3(e: Evidence) -> Table:
    """Each call beside FlashAttention 3."""
    timed, rows = fuse.with_flash3(e), []
    for study in ("few", "long"):
        rope, alone = fuse.over_flash3(timed, study)
        for problem in rope:
            ours = served(timed, problem)
            us = lines(number(timed.time(ours, study, problem=problem)[problem].value, digits=1), small(ours))
            gains = (lines(ratio(each), small(SIDES[each.side])) for each in (rope[problem], alone[problem]))
            rows.append((label(problem), us, *gains))
    title = "Beside FlashAttention 3, call by call"
    header = ("problem", "rope_attention, µs", "over RoPE and FlashAttention 3", "attention over FlashAttention 3")
    caption = (
        f"{timed.card}, bfloat16, the GPU alone, inputs in L2 if they fit. Above 1 ours is faster. {TIE}, by the ratio "
        "before it is rounded. RoPE in front of FlashAttention 3 rotates all keys at each call. The last column is of "
        f"tensors that are rotated already, as in a server's cache. {LETTERS}"
    )
    return Table(header, rows, header[1:], caption, "flash3", measured(timed, "few", "long"), title)


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


def _counted(asked: Mapping[tuple[str, ...], Callable[[], tuple[int, ...]]]) -> list[tuple[str, ...]]:
    """A row for each that was measured."""
    rows = []
    for cells, count in asked.items():
        try:
            rows.append((*cells, *map(str, count())))
        except Undecided:
            continue
    return rows
