"""Versions, problems and timers of each study."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kernels import VERSIONS, Problem, Version
from kernels.checking.check import problems, supports
from kernels.registry import OWN
from kernels.version import TABLES

from .errors import DataError
from .record.files import DATA, problem_of, read_records
from .record.problems import values_of
from .record.timers import TIMERS, timer_of

SOURCE_TIMER = "launched"  # times what the documents' own harness times
Pair = tuple[str, Problem]  # a version, by its name, and a problem


@dataclass(frozen=True)
class Study:
    """Versions and problems that are measured together: each part has versions and problems of their families."""

    name: str
    about: str
    timers: tuple[str, ...]
    parts: tuple[tuple[tuple[str, ...], tuple[Problem, ...]], ...] = ()
    scaled: Callable[[Problem, int], Problem] | None = None

    @property
    def sms(self) -> int:
        """SMs of the slice that all its times are of; 0 of the whole card, or of several slices."""
        slices = {timer_of(timer).sms for timer in self.timers}
        return slices.pop() if len(slices) == 1 else 0

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(dict.fromkeys(problem for _, of in self.parts for problem in of))

    def on(self, sms: int) -> "Study":
        """The study on a card with `sms` SMs; in `STUDIES` its problems are those of the authors' cards."""
        if (scaled := self.scaled) is None:
            return self
        parts = ((names, tuple(dict.fromkeys(scaled(problem, sms) for problem in of))) for names, of in self.parts)
        return replace(self, parts=tuple(parts))

    def pairs(self) -> Iterator[Pair]:
        """Every version of a part with every problem of its family there."""
        for names, of in self.parts:
            yield from ((name, problem) for name in names for problem in of if problem.family == VERSIONS[name].family)


def _ids(chosen: Callable[[Version], Any]) -> tuple[str, ...]:
    return tuple(version.id for version in VERSIONS.values() if chosen(version))


def _named(*names: str) -> tuple[Problem, ...]:
    """Problems by their names in the tables of data/, which white space separates."""
    return tuple(Problem(*values_of(name)) for line in names for name in line.split())


def _listed(name: str) -> tuple[Problem, ...]:
    """The problems of a list in data/problems.csv."""
    return tuple(problem_of(row) for row in read_records(DATA / "problems.csv", "problems") if row["list"] == name)


LOG_SHAPES = {512: (1, 4, 64), 2048: (1, 4, 64), 4096: (1, 2, 32), 8192: (1, 1, 16)}  # head dim: batch, heads, seq


def partial_rope(batch: int, heads: int, seq: int, hdim: int) -> Problem:
    """RoPE with the rotary dim of the documents' partial rotation: 128, or half of a smaller head dim."""
    return Problem("rope", batch, heads, seq_q=seq, hdim=hdim, rotary_dim=min(128, hdim // 2))


MAIN = partial_rope(1, 4, 64, 2048)  # the documents' shape that V8 is made for


def _shapes(shapes: Mapping[int, tuple[int, int, int]]) -> Iterator[Problem]:
    """The families of the log in shapes by head dim; with RoPE also all dims rotated, as the log's V1 to V6a do."""
    for family in ("attention", "sinusoidal", "rope"):
        for hdim, (batch, heads, seq) in shapes.items():
            if family == "rope":
                yield partial_rope(batch, heads, seq, hdim)
            yield Problem(family, batch, heads, seq_q=seq, hdim=hdim, rotary_dim=hdim if family == "rope" else 0)


def _log() -> Iterator[Problem]:
    found = _shapes({128: LOG_SHAPES[512], **LOG_SHAPES})
    yield from (problem for problem in found if problem.family == "rope" or problem.hdim in LOG_SHAPES)
    yield Problem("attention", 1, 1, seq_q=8, hdim=16384)


AUTHORS_SMS, AUTHORS_TARGET = 48, "sm_89"  # of the RTX 4000 Ada
AUTHORS_FP16_SMS = 58  # of the L4
SLICE, FP16_SLICE = AUTHORS_SMS, 56  # SMs of a slice that plays their card: a Hopper card gives multiples of 8


def timers_on(sms: int, *caps: str) -> tuple[str, ...]:
    """The timers of a slice: the GPU alone and by the documents' harness, without a cap and with each."""
    return tuple(f"{timer}@{sms}{cap}" for timer in ("device_warm", SOURCE_TIMER) for cap in ("", *caps))


def matched(problem: Problem, sms: int) -> Problem:
    """A published problem with as many heads as give each of `sms` SMs the load that it had on the authors' card."""
    authors = AUTHORS_FP16_SMS if problem.family == "fp16" else AUTHORS_SMS
    heads = max(1, (2 * problem.heads * sms + authors) // (2 * authors))  # a half rounds up
    return replace(problem, heads=heads, kv_heads=heads)


def _fp16() -> Iterator[Problem]:
    for causal in (False, True):
        yield Problem("fp16", 1, 8, seq_q=512, hdim=64, dtype="float16", causal=causal)
        for seq in (512, 1024, 2048, 4096, 8192):
            yield Problem("fp16", 2, 16, seq_q=seq, hdim=128, dtype="float16", causal=causal)


# Heads of a call: around where its blocks need another wave.
WAVES = (4, 6, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 21, 22, 24, 25, 26)
FUSIONS = ("rope_v8", "rope_hybrid_v8", "rope_separate_v8")  # one core: fused fully, Q alone, not at all
NAIVE = "rope_v6b"  # the log's full fusion, which rotates K once a query
NAIVE_LIMIT = 2**30  # multiply-adds of Q and K beyond which it is not measured: it would take longer than all others
# 1 to 128 heads, 1 to 2048 queries, 16 to 4096 keys, head dims of 64 to 4096, of which 32 to all are rotated. Steps are
# large, as what decides spans decades.
MAP = _listed("map")
LOG_AND_V8 = (*FUSIONS, "rope_v8_mma", "rope_v8_portable", "rope_v7", "rope_separate")
COMPILED = ("torch_rope_compiled_sdpa", "torch_rope_compiled_sdpa_efficient", "torch_rope_compiled_sdpa_math")
ONE_GRAPH = ("torch_rope_one_graph", "torch_rope_sdpa_one_graph")
BEYOND = _listed("beyond")
HELD_OUT, HELD_OUT_SEED = 40, 45
HELD_OUT_FLOATS, HELD_OUT_FLOPS = 2**25, 2**33  # of Q, K and V together, and of both products


def _held_out() -> Iterator[Problem]:
    """Problems drawn at random, which no rule that chooses a shape was fitted to; sizes are log-uniform."""
    draw, found = random.Random(HELD_OUT_SEED), 0

    def size(least: int, most: int) -> int:
        return round(least * (most / least) ** draw.random())

    while found < HELD_OUT:
        kv_heads, group, seq_k = size(1, 16), draw.choice((1, 1, 1, 2, 4)), size(16, 4096)
        seq_q = draw.choice((1, min(size(2, 64), seq_k), size(2, seq_k), seq_k))
        hdim = 32 * size(2, 256)
        rotary_dim = draw.choice((hdim, hdim // 2, 32, min(128, hdim)))
        problem = Problem(
            "rope", size(1, 8), kv_heads * group, kv_heads, seq_q, seq_k, hdim, rotary_dim, causal=draw.random() < 0.5
        )
        rows = problem.heads * seq_q + 2 * kv_heads * seq_k
        if problem.batch * rows * hdim <= HELD_OUT_FLOATS and problem.flops <= HELD_OUT_FLOPS:
            found += 1
            yield problem


CHOSEN = _listed("chosen")
AUTOTUNED = tuple(f"{name}_autotuned" for name in ONE_GRAPH)  # by far the longest to compile


def loads_ahead(version: Version) -> bool:
    """Whether PyTorch compiles it without timing what it makes, so that several processes may at once."""
    return version.compiled_embedding or version.id in (*ONE_GRAPH, HALF_PEERS[0])


DECODED = _listed("decoded")
SWEPT = (256, 1024, 4096, 8192, 16384, 32768, 131_072)  # keys of one sequence, 32 heads on 8
LONGEST = 2**20  # as far as positions go, on 4 heads
SPLIT_KEYS = ("rope_decode", "attention_decode")
HALF_PEERS = (
    "torch_rope_half_one_graph", "torch_rope_half_one_graph_autotuned", "torch_sdpa_half_flash",
    "torch_sdpa_half_cudnn",
)  # fmt: skip
FLASHINFER = ("flashinfer_rope", "flashinfer")
FLASH3 = ("flash3_rope", "flash3")


def _half(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(replace(problem, dtype="float16") for problem in problems)


def unrotated(problem: Problem) -> Problem:
    """The same without RoPE, from keys that are rotated already."""
    return replace(problem, family="attention", rotary_dim=0, q_offset=problem.q_offset * problem.causal)


def _embeddings() -> Iterator[Problem]:
    """Every embedding on one core, its table computed or stored in several precisions."""
    for batch, heads, hdim in ((1, 4, 512), (1, 4, 2048), (8, 16, 512)):
        yield Problem("attention", batch, heads, seq_q=64, hdim=hdim)
        yield Problem("rope", batch, heads, seq_q=64, hdim=hdim, rotary_dim=hdim)
        yield Problem("alibi", batch, heads, seq_q=64, hdim=hdim)
        for table in TABLES:
            yield Problem("sinusoidal", batch, heads, seq_q=64, hdim=hdim, table=table)
            if table != "computed":
                yield Problem("learned", batch, heads, seq_q=64, hdim=hdim, table=table)


EMBEDDINGS = ("attention_v8", "rope_v8", "alibi_v1", "sinusoidal_v6", "learned_v1")
EMBEDDING_PEERS = ("torch_sdpa", "torch_rope_compiled_sdpa", "torch_alibi_sdpa", "torch_learned_compiled_sdpa")


def _split_keys() -> Study:
    """RoPE with keys that are not rotated yet, and without RoPE.

    Peers of float32 have tables in the dtype of q, which half precision makes wrong.
    """
    grouped = DECODED[1]
    swept = (replace(grouped, seq_k=keys, q_offset=keys - 1) for keys in SWEPT)
    longest = replace(grouped, heads=4, kv_heads=1, seq_k=LONGEST, q_offset=LONGEST - 1)
    rope = tuple(dict.fromkeys((*DECODED, *swept, longest)))
    plain = tuple(unrotated(problem) for problem in rope if problem.seq_q == 1)
    half, plain_half, few_half = _half(rope), _half(plain), _half(plain[: len(DECODED) - 1])
    graph, graph_autotuned, flash, cudnn = HALF_PEERS
    parts = (
        (SPLIT_KEYS, (*rope, *plain, *half, *plain_half)),
        ((ONE_GRAPH[0],), rope),
        (("rope_v8",), DECODED),
        ((AUTOTUNED[0], "rope_v2", "rope_v7", "rope_separate"), (grouped,)),  # long to tune; the log's, which refuse it
        ((graph,), half),
        ((graph_autotuned,), _half([grouped])),
        ((cudnn,), plain_half),
        ((flash,), few_half),
        ((FLASHINFER[0],), half),
        ((FLASHINFER[1],), plain_half),
    )
    about = "Up to 8 queries a head by keys that blocks share, in float32 and half precision"
    return Study("split_keys", about, ("device_warm", "device_cold"), parts)


PROMPTS, PROMPT_KERNELS = _listed("prompts"), ("prompt", "prompt_persistent")
PHASES = tuple(f"fp16_phase7{step}" for step in "abcd")


def _half_prompts() -> Study:
    """The report's problem from Phase 4 to 7, and its other half of long ones; prompts with RoPE and without."""
    report = tuple(problem for problem in _fp16() if problem.seq_q in (512, 4096))
    rope, plain = _half(PROMPTS), _half(map(unrotated, PROMPTS))
    rope += (replace(rope[3], dtype="bfloat16"),)
    before = ("fp16_minimal", "fp16_phase4", "fp16_phase4_causal", "fp16_phase4_mma", "fp16_phase6_iter2")
    parts = (
        (before, tuple(problem for problem in report if problem.hdim == 64)),
        ((*PHASES, "torch_sdpa_fp16_flash", "torch_sdpa_fp16_cudnn"), report),
        (("rope_prompt", "rope_prompt_persistent", "torch_rope_half_flash", "torch_rope_half_cudnn"), rope),
        (("attention_prompt", "attention_prompt_persistent", *HALF_PEERS[2:]), plain),
        ((FLASHINFER[0],), rope),
        ((FLASHINFER[1],), plain),
    )
    return Study("half_prompts", "Prompts in half precision: Phase 7, and what else there is", ("device_warm",), parts)


WIDE = _listed("wide_decode")


def _wide_decode() -> Study:
    """Up to 8 queries a head at the documents' own head dims, with RoPE and without."""
    rope = ("rope_wide_decode", "rope_v8", *ONE_GRAPH), WIDE
    plain = ("attention_wide_decode", "attention_v8", "torch_sdpa"), tuple(map(unrotated, WIDE[:3]))
    return Study("wide_decode", "Decode at head dims of 512 to 16384 in float32", ("device_warm",), (rope, plain))


CHUNKS = _listed("chunks")
MODEL_PROMPTS = _listed("model_prompts")


def _prompts(everywhere: Sequence[Problem]) -> Study:
    """Shapes of `peers`, and of users, that the op runs by kernels for prompts and for chunks."""
    long = (problem for problem in everywhere if min(problem.seq_q, problem.seq_k) >= 256 and problem.hdim <= 128)
    prompts, beside = (*(problem for problem in long if problem not in CHUNKS), *MODEL_PROMPTS), ("rope_v8", *ONE_GRAPH)
    parts = (("rope_prompt32", *beside), prompts), (("rope_chunk", *beside), CHUNKS)
    return Study("prompts", "Prompts in float32, and chunks of queries against many keys", ("device_warm",), parts)


def _beside_flash3(name: str, about: str, *ours: str) -> Study:
    """Problems of the list `name`, with RoPE and without. `ours` end the names of kernels that the op may choose.

    PyTorch's kernels are beside ours in `half_prompts` and `split_keys`.
    """
    rope, rotated = _listed(name), (*(f"rope_{each}" for each in ours), FLASH3[0])
    alone = (*(f"attention_{each}" for each in ours), HALF_PEERS[2], FLASH3[1])
    parts = (rotated, rope), (alone, tuple(map(unrotated, rope)))
    return Study(name, f"{about}, in bfloat16, beside FlashAttention 3", ("device_warm",), parts)


def _studies() -> Iterator[Study]:
    warm, both = ("device_warm",), ("device_warm", SOURCE_TIMER)
    of_log = _ids(lambda v: not (v.ablation or v.beyond or v.control_of))
    published = tuple(p for p in (*_log(), *_fp16()) if p.hdim <= max(LOG_SHAPES) and p.batch == 1)  # with their times
    yield Study("log", "The shapes of the documents, all timers", TIMERS, ((of_log, tuple(_log())),))
    dims = tuple(_shapes({2**n: (1, 4, 64) for n in range(7, 15)}))
    yield Study("controlled", "Only the head dim varies", warm, ((of_log, dims),))
    filled = tuple(_shapes({hdim: (8, 16, 64) for hdim in (128, 512, 2048)}))
    yield Study("filled", "Enough heads to fill the card", warm, ((of_log, filled),))
    yield Study("fp16", "Half precision, causal and not", warm, ((of_log, tuple(_fp16())),))
    changed = {name for v in VERSIONS.values() if v.ablation for name in (v.id, v.parent, v.baseline)}
    beside = _ids(lambda v: v.id in changed | {"rope_v4", "rope_v6a"})
    yield Study("ablation", "One thing changed", warm, ((beside, published),))
    in_c = {name for v in VERSIONS.values() if v.control_of for name in (v.id, v.control_of)}
    plain = tuple(problem for problem in published if not problem.causal)
    listed = _ids(lambda v: v.of_log)
    parts = (listed, published), (beside, published), (_ids(lambda v: v.control_of), plain)
    for name, sms, family in (("slices", SLICE, ""), ("slices_fp16", FP16_SLICE, "fp16")):
        mine = tuple((ids, tuple(p for p in of if (p.family == "fp16") == bool(family))) for ids, of in parts)
        timers = timers_on(sms, f"/{AUTHORS_TARGET}")
        yield Study(name, f"The shapes of the documents on {sms} SMs, as many as their card has", timers, mine)
    race = ("rope_separate", "rope_v7", "sinusoidal_separate_scalar", "sinusoidal_separate_float4", "sinusoidal_v5")
    heads = tuple(partial_rope(1, heads, 64, hdim) for hdim in (512, 2048) for heads in range(1, 17))
    one = MAIN, Problem("sinusoidal", 1, 4, seq_q=64, hdim=MAIN.hdim)
    by_sms = tuple(f"device_warm@{sms}" for sms in range(8, 129, 8))
    by_blocks = tuple(f"device_warm@{SLICE}/{blocks}" for blocks in range(3, 9))
    yield Study("slices_heads", "V7 by heads on their SMs", timers_on(SLICE), ((race[:2], heads),))
    yield Study("slices_sms", "RoPE V7 and sinusoidal V5 by SMs", (*by_sms, "device_warm"), ((race, one),))
    yield Study("slices_blocks", "V7 by blocks an SM on their SMs", by_blocks, ((race[:2], (MAIN,)),))
    yield Study("matched", "The load of each SM as on the authors' card", (), ((of_log, published),), matched)
    blocks = tuple(partial_rope(1, heads, 64, hdim) for hdim in (512, 2048) for heads in WAVES)
    yield Study("waves", "Time by blocks of a call", warm, ((("rope_separate", "rope_v7"), blocks),))
    yield Study("control", "The same in CUDA C++", both, ((_ids(lambda v: v.id in in_c), plain),))
    everywhere = tuple(dict.fromkeys((*CHOSEN, *BEYOND, *MAP)))
    yield Study("beyond", "V8 against the log and PyTorch", warm, (((*LOG_AND_V8, *COMPILED), BEYOND),))
    peers = (
        (("rope_v8", COMPILED[0], *ONE_GRAPH), everywhere),
        (("triton_rope_sliced",), CHOSEN),
    )
    yield Study("peers", "V8 against whatever else there is", warm, peers)
    tuned = ("rope_v8", *ONE_GRAPH, *AUTOTUNED)
    yield Study("autotuned", "V8 against what PyTorch tunes", warm, ((tuned, CHOSEN),))
    embedded = tuple(_embeddings())
    computed = tuple(problem for problem in embedded if problem.table == "computed")  # PyTorch's peer makes its own
    own: Any = ((*EMBEDDINGS, *EMBEDDING_PEERS), embedded), (("torch_sinusoidal_compiled_sdpa",), computed)
    yield Study("embeddings", "Every embedding on one core", warm, own)
    yield _split_keys()
    yield _wide_decode()
    yield _half_prompts()
    yield _beside_flash3("few", "Few queries that meet many keys", "decode", *PROMPT_KERNELS, "prompt_split")
    yield _beside_flash3("long", "Long prompts", *PROMPT_KERNELS)
    yield _prompts(everywhere)
    against = (*FUSIONS, "rope_chunk", "rope_decode", "rope_wide_decode", "rope_prompt32", *ONE_GRAPH)
    yield Study("heldout", "V8 on problems drawn at random", warm, ((against, tuple(_held_out())),))
    few_products = tuple(problem for problem in MAP if problem.flops <= 4 * NAIVE_LIMIT)
    yield Study("map", "When to fuse, on one core", warm, ((FUSIONS, MAP), ((NAIVE,), few_products)))


STUDIES = {study.name: study for study in _studies()}
# What `python -m analysis op` runs.
OP = ("op_problems", "op_time", "op_decode", "op_prompts", "op_slices", "op_stress", "op_first")
OTHER_RUNS = ("sanitizers", "counters", *OP)  # what else stands in run.json


class Condition(NamedTuple):
    """How what documents say is measured here: in the study of its shape or in another, and by which timer."""

    timer: str
    study: str = ""


SLICES, MATCHED = "slices", "matched"
THEIR_CLOCK, THEIR_SMS = "their SMs, by their clock", "their SMs, the GPU alone"
CLOCK, DEVICE = "whole card, by their clock", "whole card, the GPU alone"
CONDITIONS = {
    THEIR_CLOCK: Condition(SOURCE_TIMER, SLICES),
    THEIR_SMS: Condition("device_warm", SLICES),
    CLOCK: Condition(SOURCE_TIMER),
    DEVICE: Condition("device_warm"),
    MATCHED: Condition("device_warm", MATCHED),  # of counters alone
}
PUBLISHED = "log,fp16,ablation,control"  # the studies that hold every shape of the documents
# Hardware counters that the book shows: studies, with versions and head dims of theirs, all where none is named.
# First those of the pages of versions and stall reasons, then those of claims and findings at other shapes and loads.
_ASKED = ("attention_online", "attention_online_fixed", "rope_v1b", "rope_v1c", "rope_v2", "rope_separate")
_EMBEDDED = ("sinusoidal_separate_float4", "sinusoidal_hybrid_v1", "sinusoidal_v5", "fp16_phase4")
PROFILED: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = (
    (PUBLISHED, (), (64, MAIN.hdim)),
    ("log", (*_ASKED, "rope_v7"), ()),
    ("matched", (*_ASKED, *_EMBEDDED), ()),
    ("beyond", ("rope_v8", "rope_hybrid_v8", "rope_v8_portable"), (MAIN.hdim,)),
)


def study(name: str) -> Study:
    """The study called `name`. Raises: DataError with the known names."""
    if name not in STUDIES:
        raise DataError(f"no study is called {name!r}; known: {', '.join(STUDIES)}")
    return STUDIES[name]


def studies(names: str) -> list[Study]:
    """Studies by their names, separated by commas; "all" for all that time. Raises: DataError with the known names."""
    if names == "all":
        return [each for each in STUDIES.values() if each.timers]
    return [study(name) for name in names.split(",")]


COUNTED = Study(  # at shapes of the log, beyond which these go
    "counted", "What goes beyond the log, counted and compiled", (),
    (
        ((*FUSIONS, "rope_v8_mma", "rope_v8_portable"), _named("rope-b1-h4-s64-d512-r128 rope-b1-h4-s64-d2048-r128")),
        (("attention_v8",), _named("attention-b1-h4-s64-d512 attention-b1-h4-s64-d2048")),
        (PHASES, _named("fp16-b1-h8-s512-d64-float16")),
    ),
)  # fmt: skip


def _of_models() -> Study:
    """Kernels beyond the log at head dims of models, 32 heads on 8 KV heads, with few keys: emulated in seconds."""
    half = "-h32-kv8-s{0}-d128-r128-float16{1} rope-b1-h32-kv8-s{0}-d64-r64-float16{1}"
    single = "-h32-kv8-s{0}-d128-r128{1}"

    def named(sizes: str, *texts: str, mask: str = "") -> tuple[Problem, ...]:
        return _named(*(f"rope-b1{text.format(sizes, mask)}" for text in texts))

    prompts = named("256", half, mask="-causal")
    taken = {
        "decode": named("1-k4096", half, single),
        "prompt": prompts,
        "prompt_persistent": prompts,
        "prompt_split": named("16-k1024", half),
        "prompt32": named("256", single, mask="-causal"),
        "chunk": named("16-k1024", single),
        "v8": named("64", single),
    }
    alone = ((f"attention_{kernel}", tuple(map(unrotated, of))) for kernel, of in taken.items())
    parts = [((f"rope_{kernel}",), of) for kernel, of in taken.items()]
    parts += [((name,), of) for name, of in alone if name in VERSIONS]
    return Study("models", "What goes beyond the log, counted and compiled at head dims of models", (), tuple(parts))


MODELS = _of_models()


def own_pairs() -> list[Pair]:
    """The log's versions with the documents' problems, each pair once; with a small one where they take none.

    What goes beyond the log comes with it: on two of its shapes, or on a small problem, and at head dims of models.
    """
    found = (pair for each in (*studies(PUBLISHED), COUNTED) for pair in each.pairs())
    chosen = [pair for pair in found if not VERSIONS[pair[0]].is_peer]
    fitting = {name for name, problem in chosen if supports(VERSIONS[name], problem)}
    unfit = (v for v in OWN if v.id not in fitting and not (v.ablation or v.control_of))
    small = [(version.id, max(problems(version), key=lambda p: p.hdim)) for version in unfit]
    return list(dict.fromkeys([*chosen, *small, *MODELS.pairs()]))


# Why a warp does not issue, and the hardware counter of one such reason.
STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
