"""Which versions meet which problems in a study, and which timers."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kernels import VERSIONS, Problem, Version
from kernels.checking.check import OWN, problems, supports
from kernels.version import TABLES

from ..errors import DataError

TIMERS = ("device_warm", "device_cold", "launched")
SOURCE_TIMER = "launched"  # times what the documents' own harness times


@dataclass(frozen=True)
class Study:
    """What is measured together: in each part versions, by their names, with the problems of their families."""

    name: str
    about: str
    timers: tuple[str, ...]
    parts: tuple[tuple[tuple[str, ...], tuple[Problem, ...]], ...] = ()
    scaled: Callable[[Problem, int], Problem] | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(dict.fromkeys(problem for _, of in self.parts for problem in of))

    def on(self, sms: int) -> "Study":
        """The study on a card of so many SMs; in `STUDIES` its problems are those of the authors' cards."""
        if (scaled := self.scaled) is None:
            return self
        parts = ((names, tuple(dict.fromkeys(scaled(problem, sms) for problem in of))) for names, of in self.parts)
        return replace(self, parts=tuple(parts))

    def pairs(self) -> Iterator[tuple[Version, Problem]]:
        """Every version of a part with every problem of its family there."""
        for names, of in self.parts:
            for version in (VERSIONS[name] for name in names):
                yield from ((version, problem) for problem in of if problem.family == version.family)


def _ids(chosen: Callable[[Version], Any]) -> tuple[str, ...]:
    return tuple(version.id for version in VERSIONS.values() if chosen(version))


LOG_SHAPES = {512: (1, 4, 64), 2048: (1, 4, 64), 4096: (1, 2, 32), 8192: (1, 1, 16)}  # head dim: batch, heads, seq


def partial_rope(batch: int, heads: int, seq: int, hdim: int, causal: bool = False) -> Problem:
    """RoPE with the rotary dim of the documents' partial rotation: 128, or half of a smaller head dim."""
    return Problem("rope", batch, heads, seq_q=seq, hdim=hdim, rotary_dim=min(128, hdim // 2), causal=causal)


MAIN = partial_rope(1, 4, 64, 2048)  # the documents' shape that V8 is made for


def _shape(family: str, hdim: int, batch: int, heads: int, seq: int) -> Iterator[Problem]:
    """A problem of a family; with RoPE also the one that rotates every dim, as the log's V1 to V6a do."""
    if family == "rope":
        yield partial_rope(batch, heads, seq, hdim)
    yield Problem(family, batch, heads, seq_q=seq, hdim=hdim, rotary_dim=hdim if family == "rope" else 0)


def _log() -> Iterator[Problem]:
    for family in ("attention", "sinusoidal", "rope"):
        for hdim, shape in {**({128: (1, 4, 64)} if family == "rope" else {}), **LOG_SHAPES}.items():
            yield from _shape(family, hdim, *shape)
    yield Problem("attention", 1, 1, seq_q=8, hdim=16384)


AUTHORS_SMS = 48  # of the RTX 4000 Ada
AUTHORS_FP16_SMS = 58  # of the L4


ALSO_MATCHED = (  # ablations that explain what is faster with that load alone
    "rope_v7_global_query", "fp16_phase4_scalar_loads", "fp16_phase4_64x64", "fp16_phase4_64x32"
)  # fmt: skip


def matched(problem: Problem, sms: int) -> Problem:
    """A published problem with as many heads as give each of `sms` SMs the load that it had on the authors' card."""
    authors = AUTHORS_FP16_SMS if problem.family == "fp16" else AUTHORS_SMS
    heads = max(1, (2 * problem.heads * sms + authors) // (2 * authors))  # a half rounds up
    return replace(problem, heads=heads, kv_heads=heads)


def _at(hdims: Sequence[int], batch: int, heads: int, seq: int) -> Iterator[Problem]:
    for family in ("attention", "sinusoidal", "rope"):
        for hdim in hdims:
            yield from _shape(family, hdim, batch, heads, seq)


def _fp16() -> Iterator[Problem]:
    for causal in (False, True):
        yield Problem("fp16", 1, 8, seq_q=512, hdim=64, dtype="float16", causal=causal)
        for seq in (512, 1024, 2048, 4096, 8192):
            yield Problem("fp16", 2, 16, seq_q=seq, hdim=128, dtype="float16", causal=causal)


def _published() -> Iterator[Problem]:
    """The shapes that the documents give times of."""
    yield from (problem for problem in _log() if problem.hdim <= max(LOG_SHAPES))
    for causal in (False, True):
        yield Problem("fp16", 1, 8, seq_q=512, hdim=64, dtype="float16", causal=causal)


# Heads of a call: around where its blocks need another wave.
WAVES = (4, 6, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 21, 22, 24, 25, 26)
FUSIONS = ("rope_v8", "rope_hybrid_v8", "rope_separate_v8")  # one core: fused fully, Q alone, not at all
NAIVE = "rope_v6b"  # the log's full fusion, which rotates K once a query
NAIVE_LIMIT = 2**30  # multiply-adds of Q and K beyond which it is not measured: it would take longer than all others
GROUPED = 4  # heads that share keys, where some do

# What the map spans, as batch, heads, seq_q, seq_k, hdim, rotary_dim: 1 to 128 heads, 1 to 2048 queries, 16 to 4096
# keys, head dims of 64 to 4096, of which 32 to all are rotated. Steps are large, as what decides spans decades.
FEW_QUERIES = (  # decoding: K is rotated once in any case
    (1, 1, 1, 16, 64, 32), (1, 1, 1, 4096, 128, 128), (1, 8, 1, 4096, 128, 32), (1, 32, 1, 256, 128, 128),
    (1, 32, 1, 1024, 128, 128), (1, 32, 1, 4096, 128, 128), (1, 32, 1, 4096, 128, 64), (8, 16, 1, 1024, 128, 128),
    (8, 16, 1, 256, 256, 64), (1, 128, 1, 64, 128, 128), (4, 32, 1, 512, 64, 64), (1, 4, 1, 2048, 512, 512),
    (1, 2, 1, 1024, 2048, 128), (1, 1, 1, 512, 4096, 4096), (1, 16, 4, 2048, 128, 128), (1, 32, 8, 1024, 128, 64),
    (1, 8, 16, 4096, 128, 128), (1, 4, 16, 1024, 512, 128), (2, 2, 16, 256, 1024, 1024), (8, 16, 16, 128, 64, 32),
    (1, 1, 16, 16, 4096, 128),
)  # fmt: skip
SHORT_FEW_HEADS = (  # the shapes of the log, and around them
    (1, 4, 64, 64, 64, 64), (1, 4, 64, 64, 128, 64), (1, 4, 64, 64, 256, 32), (1, 4, 64, 64, 512, 128),
    (1, 4, 64, 64, 512, 512), (1, 4, 64, 64, 1024, 128), (1, 4, 64, 64, 2048, 128), (1, 4, 64, 64, 2048, 2048),
    (1, 2, 32, 32, 4096, 128), (1, 1, 32, 4096, 512, 512), (1, 2, 128, 1024, 256, 64), (2, 4, 128, 128, 1024, 256),
    (1, 8, 64, 512, 128, 32), (1, 16, 32, 256, 128, 128), (1, 3, 50, 77, 96, 48),
)  # fmt: skip
SHORT_MANY_HEADS = (  # enough heads to fill the card
    (4, 32, 64, 64, 64, 32), (8, 16, 64, 64, 128, 64), (8, 16, 64, 64, 512, 128), (8, 16, 64, 64, 512, 512),
    (8, 16, 64, 64, 2048, 128), (8, 16, 64, 64, 2048, 2048), (8, 16, 128, 128, 64, 64), (2, 32, 32, 32, 1024, 1024),
    (1, 32, 64, 64, 4096, 128), (2, 64, 128, 128, 256, 32), (8, 8, 64, 256, 256, 256), (1, 64, 64, 512, 128, 128),
    (1, 32, 128, 1024, 128, 128), (1, 64, 32, 2048, 128, 64),
)  # fmt: skip
MANY_QUERIES = (  # prefill: full fusion rotates K once a tile of queries
    (1, 8, 256, 256, 128, 64), (1, 8, 1024, 1024, 128, 64), (1, 8, 2048, 2048, 128, 64), (1, 8, 2048, 2048, 128, 128),
    (1, 32, 512, 512, 128, 128), (1, 32, 1024, 1024, 128, 32), (1, 1, 2048, 2048, 64, 64), (1, 1, 2048, 4096, 128, 32),
    (4, 8, 256, 256, 64, 32), (1, 4, 256, 256, 512, 128), (1, 4, 256, 256, 2048, 2048), (1, 2, 512, 512, 1024, 128),
    (1, 1, 1024, 1024, 4096, 512), (1, 16, 256, 4096, 128, 128),
)  # fmt: skip
GROUPED_HEADS = ((1, 32, 1, 4096, 128, 128), (1, 32, 16, 1024, 128, 128), (1, 32, 512, 512, 128, 128))
CAUSAL = ((1, 8, 1024, 1024, 128, 128), (1, 32, 512, 512, 128, 64), (1, 8, 256, 2048, 128, 128))


def _map() -> Iterator[Problem]:
    plain = (*FEW_QUERIES, *SHORT_FEW_HEADS, *SHORT_MANY_HEADS, *MANY_QUERIES)
    for shapes, grouped, causal in ((plain, 1, False), (GROUPED_HEADS, GROUPED, False), (CAUSAL, 1, True)):
        for batch, heads, seq_q, seq_k, hdim, rotary_dim in shapes:
            kv_heads = heads // grouped
            yield Problem("rope", batch, heads, kv_heads, seq_q, seq_k, hdim, rotary_dim, causal=causal)


LOG_AND_V8 = (*FUSIONS, "rope_v8_mma", "rope_v8_portable", "rope_v7", "rope_separate")
COMPILED = ("torch_rope_compiled_sdpa", "torch_rope_compiled_sdpa_efficient", "torch_rope_compiled_sdpa_math")
ONE_GRAPH = ("torch_rope_one_graph", "torch_rope_sdpa_one_graph")


def _beyond() -> Iterator[Problem]:
    """The shapes that V8 is held to: those of the documents and around them, a full card, and prefill."""
    for hdim, shape in {128: (1, 4, 64), **LOG_SHAPES}.items():
        yield from _shape("rope", hdim, *shape)
    for hdim in (256, 1024, 4096, 8192, 16384):
        yield partial_rope(1, 4, 64, hdim)
    for hdim in (128, 512, 2048):
        yield partial_rope(8, 16, 64, hdim)
    yield Problem("rope", 8, 16, seq_q=64, hdim=2048, rotary_dim=2048)
    for causal in (False, True):
        for seq in (256, 1024, 2048, 4096):
            yield partial_rope(1, 8, seq, 128, causal)


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


SMALLEST, SHORT = partial_rope(1, 4, 64, 128), partial_rope(1, 4, 64, 512)
LONG = partial_rope(1, 8, 2048, 128, causal=True)


def _chosen() -> Iterator[Problem]:
    """Short and long sequences, small and large head dims, and few queries that meet many keys."""
    yield from (SMALLEST, SHORT, LONG, partial_rope(1, 8, 2048, 128))
    yield from (partial_rope(1, 4, 64, 2048), partial_rope(1, 4, 64, 8192), partial_rope(8, 16, 64, 2048))
    for shape in (
        (32, 32, 1, 4096, 128, 128), (8, 8, 1, 16384, 128, 64), (32, 8, 1, 4096, 128, 128), (1, 1, 1, 4096, 128, 128),
        (10, 10, 16, 4096, 160, 160), (4, 4, 16, 1024, 512, 128),
    ):  # fmt: skip
        yield Problem("rope", 1, *shape)


CHOSEN = tuple(_chosen())
AUTOTUNED = tuple(f"{name}_autotuned" for name in ONE_GRAPH)  # by far the longest to compile
AT_ALL = ("rope_v8", COMPILED[0], *ONE_GRAPH)
AT_ONE = {  # what compiles for longest
    "flex_rope": SMALLEST,  # at 512 dims it was not compiled after five minutes
    "flex_rope_tf32x3": LONG,
    "torch_rope_sdpa_one_graph_efficient": LONG,
    "torch_rope_sdpa_one_graph_math": LONG,
}


def loads_ahead(version: Version) -> bool:
    """Whether PyTorch compiles it without timing what it makes, so that several processes may at once."""
    return version.compiled_embedding or version.id in (*ONE_GRAPH, HALF_PEERS[0])


# Decode as batch, heads, KV heads, queries, keys and head dim: a cache of 67 to 268 MB in float32, grouped heads and
# not, one head, a batch, a wide head, 8 heads a group; and four queries, as speculative decoding has them.
DECODED = (
    (1, 32, 32, 1, 4096, 128), (1, 32, 8, 1, 4096, 128), (1, 8, 8, 1, 16384, 128), (1, 1, 1, 1, 4096, 128),
    (16, 32, 8, 1, 2048, 128), (1, 32, 8, 1, 32768, 128), (4, 16, 16, 1, 1500, 256), (1, 64, 8, 1, 8192, 128),
    (2, 32, 8, 4, 3000, 128),
)  # fmt: skip
SWEPT = (256, 1024, 4096, 8192, 16384, 32768, 131_072)  # keys of one sequence, 32 heads on 8
LONGEST = (1, 4, 1, 1, 2**20, 128)  # as far as positions go
SPLIT_KEYS = ("rope_decode", "attention_decode")
HALF_PEERS = (
    "torch_rope_half_one_graph", "torch_rope_half_one_graph_autotuned", "torch_sdpa_half_flash",
    "torch_sdpa_half_cudnn",
)  # fmt: skip
HALF_ROPE = ("torch_rope_half_flash", "torch_rope_half_cudnn")
FLASHINFER = ("flashinfer_rope", "flashinfer")


def _decoded(dtype: str, *shapes: Any) -> tuple[Problem, ...]:
    """RoPE with keys that are not rotated yet."""
    return tuple(
        Problem("rope", batch, heads, kv_heads, seq_q, seq_k, hdim, hdim, dtype=dtype, causal=seq_q > 1)
        for batch, heads, kv_heads, seq_q, seq_k, hdim in dict.fromkeys(shapes)
    )


def _unembedded(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(
        replace(problem, family="attention", rotary_dim=0, q_offset=0) for problem in problems if problem.seq_q == 1
    )


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
    sweep = (*DECODED, *((1, 32, 8, 1, keys, 128) for keys in SWEPT), LONGEST)
    single, half = _decoded("float32", *sweep), _decoded("float16", *sweep)
    few, few_half = _decoded("float32", *DECODED), _decoded("float16", *DECODED)
    one, one_half = _decoded("float32", DECODED[1]), _decoded("float16", DECODED[1])
    graph, graph_autotuned, flash, cudnn = HALF_PEERS
    parts = (
        (SPLIT_KEYS, (*single, *_unembedded(single), *half, *_unembedded(half))),
        ((ONE_GRAPH[0],), single),
        (("rope_v8",), few),
        ((AUTOTUNED[0], "rope_v2", "rope_v7", "rope_separate"), one),  # long to tune; the log's, which refuse it
        ((graph,), half),
        ((graph_autotuned,), one_half),
        ((cudnn,), _unembedded(half)),
        ((flash,), _unembedded(few_half)),
        ((FLASHINFER[0],), half),
        ((FLASHINFER[1],), _unembedded(half)),
    )
    about = "Up to 8 queries a head by keys that blocks share, in float32 and half precision"
    return Study("split_keys", about, ("device_warm", "device_cold"), parts)


# Prompts as batch, heads, KV heads, tokens, head dim and mask: the report's, a model's, long, then around these.
PROMPTS = (
    (1, 8, 8, 512, 64, False), (1, 8, 8, 512, 64, True), (1, 8, 8, 512, 128, False), (1, 32, 8, 2048, 128, True),
    (2, 16, 16, 4096, 128, False), (2, 16, 16, 4096, 128, True), (1, 32, 8, 2048, 64, True), (1, 8, 8, 64, 64, False),
    (8, 16, 16, 64, 64, True), (1, 32, 8, 128, 128, True), (4, 32, 8, 256, 128, True), (1, 12, 12, 1000, 96, False),
    (1, 32, 32, 1024, 64, True), (16, 8, 8, 512, 128, True), (2, 32, 8, 1500, 128, True), (1, 16, 8, 1024, 256, True),
    (1, 8, 8, 2048, 64, False), (1, 64, 8, 4096, 128, True), (1, 16, 16, 8192, 128, True), (1, 8, 8, 8192, 64, False),
    (1, 16, 16, 256, 64, False), (16, 16, 16, 128, 64, True), (4, 32, 8, 512, 64, True), (16, 32, 8, 64, 128, True),
    (1, 32, 8, 300, 128, True), (4, 16, 16, 1024, 64, False), (2, 64, 8, 1024, 128, True), (1, 32, 32, 4096, 64, True),
    (1, 8, 8, 4096, 128, False), (1, 8, 8, 8192, 128, False), (1, 16, 16, 2048, 192, False),
    (1, 16, 8, 4096, 256, True),
)  # fmt: skip
PHASES = tuple(f"fp16_phase7{step}" for step in "abcd")


def _half_prompts() -> Study:
    """The report's problem from Phase 4 to 7, and its other half of long ones; prompts with RoPE and without."""
    report = tuple(problem for problem in _fp16() if problem.seq_q in (512, 4096))
    plain = tuple(
        Problem("attention", batch, heads, kv_heads, seq, seq, hdim, dtype="float16", causal=causal)
        for batch, heads, kv_heads, seq, hdim, causal in PROMPTS
    )
    rope = tuple(replace(problem, family="rope", rotary_dim=problem.hdim) for problem in plain)
    rope += (replace(rope[3], dtype="bfloat16"),)
    before = ("fp16_minimal", "fp16_phase4", "fp16_phase4_causal", "fp16_phase4_mma", "fp16_phase6_iter2")
    parts = (
        (before, tuple(problem for problem in report if problem.hdim == 64)),
        ((*PHASES, "torch_sdpa_fp16_flash", "torch_sdpa_fp16_cudnn"), report),
        (("rope_prompt", *HALF_ROPE), rope),
        (("attention_prompt", *HALF_PEERS[2:]), plain),
        ((FLASHINFER[0],), rope),
        ((FLASHINFER[1],), plain),
    )
    return Study("half_prompts", "Prompts in half precision: Phase 7, and what else there is", ("device_warm",), parts)


# Chunks of queries that the op takes by kernels of their own: those of `peers`, then of a user.
CHUNKS = (
    (1, 10, 10, 16, 4096, 160, 160, False), (1, 8, 8, 16, 4096, 128, 128, False), (1, 2, 2, 128, 1024, 256, 64, False),
    (1, 8, 8, 64, 512, 128, 32, False), (1, 32, 8, 16, 1024, 128, 128, False), (1, 8, 8, 256, 2048, 128, 128, True),
    (3, 5, 1, 17, 700, 320, 320, False), (4, 8, 2, 48, 2500, 192, 96, True), (1, 32, 8, 64, 8192, 128, 128, True),
    (1, 32, 8, 32, 32768, 128, 128, True), (2, 32, 8, 24, 2000, 128, 128, True), (1, 64, 8, 9, 16384, 128, 128, True),
    (1, 16, 16, 64, 1024, 64, 64, True),
)  # fmt: skip
MODEL_PROMPTS = (
    (1, 32, 8, 2048, 2048, 128, 128, True), (1, 32, 8, 2048, 2048, 64, 64, True),
    (1, 16, 16, 2048, 2048, 192, 192, False), (1, 16, 8, 4096, 4096, 256, 256, True),
)  # fmt: skip


def _prompts(everywhere: Sequence[Problem]) -> Study:
    """What the op takes of the shapes of `peers`, and of users, by kernels for prompts and for chunks."""

    def made(shapes: Any) -> tuple[Problem, ...]:
        return tuple(replace(Problem("rope", *shape[:-1]), causal=shape[-1]) for shape in shapes)

    chunks, beside = made(CHUNKS), ("rope_v8", *ONE_GRAPH)
    long = (problem for problem in everywhere if min(problem.seq_q, problem.seq_k) >= 256 and problem.hdim <= 128)
    prompts = *(problem for problem in long if problem not in chunks), *made(MODEL_PROMPTS)
    parts = (("rope_prompt32", *beside), prompts), (("rope_chunk", *beside), chunks)
    return Study("prompts", "Prompts in float32, and chunks of queries against many keys", ("device_warm",), parts)


def _studies() -> Iterator[Study]:
    warm, both = ("device_warm",), ("device_warm", SOURCE_TIMER)
    of_log = _ids(lambda v: not (v.ablation or v.beyond or v.control_of))
    published = tuple(_published())
    yield Study("log", "The shapes of the documents, all timers", TIMERS, ((of_log, tuple(_log())),))
    dims = tuple(_at([2**n for n in range(7, 15)], 1, 4, 64))
    yield Study("controlled", "Only the head dim varies", warm, ((of_log, dims),))
    yield Study("filled", "Enough heads to fill the card", warm, ((of_log, tuple(_at([128, 512, 2048], 8, 16, 64))),))
    yield Study("fp16", "Half precision, causal and not", warm, ((of_log, tuple(_fp16())),))
    changed = {name for v in VERSIONS.values() if v.ablation for name in (v.id, v.parent, v.baseline)}
    beside = _ids(lambda v: v.id in changed | {"rope_v4", "rope_v6a"})
    yield Study("ablation", "One thing changed", warm, ((beside, published),))
    load = _ids(lambda v: v.of_log or v.id in ALSO_MATCHED)
    yield Study("matched", "The load of each SM as on the authors' card", both, ((load, published),), matched)
    blocks = tuple(partial_rope(1, heads, 64, hdim) for hdim in (512, 2048) for heads in WAVES)
    yield Study("waves", "Time by blocks of a call", warm, ((("rope_separate", "rope_v7"), blocks),))
    in_c = {name for v in VERSIONS.values() if v.control_of for name in (v.id, v.control_of)}
    plain = tuple(problem for problem in published if not problem.causal)
    yield Study("control", "The same in CUDA C++", both, ((_ids(lambda v: v.id in in_c), plain),))
    beyond, everywhere = tuple(_beyond()), tuple(dict.fromkeys((*CHOSEN, *_beyond(), *_map())))
    yield Study("beyond", "V8 against the log and PyTorch", warm, (((*LOG_AND_V8, *COMPILED), beyond),))
    apart = {*AT_ALL, *AT_ONE, *AUTOTUNED, *HALF_PEERS, *FLASHINFER, *HALF_ROPE, "triton_rope_sliced"}
    others = _ids(lambda v: v.is_peer and v.family == "rope" and v.beyond and v.id not in apart)
    alone = (((name,), (problem,)) for name, problem in AT_ONE.items())
    few = ((("triton_rope_sliced",), CHOSEN), (others, (SMALLEST, SHORT, LONG)), *alone)
    yield Study("peers", "V8 against whatever else there is", warm, ((AT_ALL, everywhere), *few))
    tuned = ("rope_v8", *ONE_GRAPH, *AUTOTUNED)
    yield Study("autotuned", "V8 against what PyTorch tunes", warm, ((tuned, CHOSEN),))
    embedded = tuple(_embeddings())
    computed = tuple(problem for problem in embedded if problem.table == "computed")  # PyTorch's peer makes its own
    own: Any = ((*EMBEDDINGS, *EMBEDDING_PEERS), embedded), (("torch_sinusoidal_compiled_sdpa",), computed)
    yield Study("embeddings", "Every embedding on one core", warm, own)
    yield _split_keys()
    yield _half_prompts()
    yield _prompts(everywhere)
    against = (*FUSIONS, "rope_chunk", "rope_decode", "rope_prompt32", *ONE_GRAPH)
    yield Study("heldout", "V8 on problems drawn at random", warm, ((against, tuple(_held_out())),))
    spanned = tuple(_map())
    short = tuple(problem for problem in spanned if problem.flops <= 4 * NAIVE_LIMIT)
    yield Study("map", "When to fuse, on one core", warm, ((FUSIONS, spanned), ((NAIVE,), short)))


STUDIES = {study.name: study for study in _studies()}
OP = ("op_problems", "op_time", "op_decode", "op_prompts", "op_stress", "op_first")  # what `python -m analysis op` runs
OTHER_RUNS = ("sanitizers", "counters", *OP)  # what else stands in run.json


class Condition(NamedTuple):
    """How a published ratio is measured here: in the study of its shape or in another, and by which timer."""

    timer: str
    study: str = ""


CONDITIONS = {
    "as timed": Condition(SOURCE_TIMER),
    "device": Condition("device_warm"),
    "matched": Condition("device_warm", "matched"),
    "matched launched": Condition(SOURCE_TIMER, "matched"),
}
PUBLISHED = "log,fp16,ablation,control"  # the studies that hold every shape of the documents
# What the book shows hardware counters of: studies, which versions of theirs and head dims, all where none is named.
# First the pages of versions and what warps wait for, then what claims and findings ask at other shapes and loads.
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
    """Studies by their names, separated by commas; "all" for all. Raises: DataError with the known names."""
    return [study(name) for name in (STUDIES if names == "all" else names.split(","))]


COUNTED = (*FUSIONS, "rope_v8_mma", "rope_v8_portable", "attention_v8")  # at shapes of the log, beyond which they go


def _counted() -> Iterator[tuple[Version, Problem]]:
    for name in COUNTED:
        for hdim in (512, 2048):
            yield VERSIONS[name], next(_shape(VERSIONS[name].family, hdim, *LOG_SHAPES[hdim]))
    for name in PHASES:
        yield VERSIONS[name], next(_fp16())


def own_pairs(names: str) -> list[tuple[str, Problem]]:
    """The log's versions with the problems of some studies, each pair once; with a small one where they take none.

    What goes beyond the log comes with it: on two of its shapes, or on a small problem.

    Raises: DataError with the known names.
    """
    chosen = [pair for each in studies(names) for pair in each.pairs() if not pair[0].is_peer]
    chosen += _counted()
    fitting = {version.id for version, problem in chosen if supports(version, problem)}
    unfit = (v for v in OWN if v.id not in fitting and not (v.ablation or v.control_of))
    small = [(version, max(problems(version), key=lambda p: p.hdim)) for version in unfit]
    return list(dict.fromkeys((version.id, problem) for version, problem in [*chosen, *small]))


# Why a warp does not issue, and the hardware counter of one such reason.
STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
