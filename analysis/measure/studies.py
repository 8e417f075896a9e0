"""Which versions meet which problems in a study, and which timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kernels import VERSIONS, Problem, Version
from kernels.checking.check import OWN, problems, supports
from kernels.version import TABLES

TIMERS = ("device_warm", "device_cold", "launched")
SOURCE_TIMER = "launched"  # times what the documents' own harness times


@dataclass(frozen=True)
class Study:
    name: str
    about: str
    problems: tuple[Problem, ...]
    timers: tuple[str, ...]

    versions: Callable[[], Iterable[Version]] = lambda: (
        v for v in VERSIONS.values() if not v.ablation and not v.beyond and not v.control_of
    )
    skips: Callable[[Version, Problem], bool] = lambda version, problem: False
    scaled: Callable[[Problem, int], Problem] = lambda problem, sms: problem

    def on(self, sms: int) -> Study:
        """The study on a card of so many SMs; in `STUDIES` its problems are those of the authors' cards."""
        return replace(self, problems=tuple(dict.fromkeys(self.scaled(problem, sms) for problem in self.problems)))

    def pairs(self) -> Iterator[tuple[Version, Problem]]:
        """Every version with every problem of its family that the study does not skip, in the order of the log."""
        for version in self.versions():
            for problem in self.problems:
                if problem.family == version.family and not self.skips(version, problem):
                    yield version, problem


def _ablations() -> list[Version]:
    """Every ablation, and what it is compared with: its parent and that one's baseline, and a few neighbours."""
    chosen = {name for v in VERSIONS.values() if v.ablation for name in (v.id, v.parent, v.baseline)}
    chosen |= {"rope_v4", "rope_v6a"}
    return [v for v in VERSIONS.values() if v.id in chosen]


def _controls() -> list[Version]:
    """Every control, and the version that it is in CUDA C++."""
    chosen = {name for v in VERSIONS.values() if v.control_of for name in (v.id, v.control_of)}
    return [v for v in VERSIONS.values() if v.id in chosen]


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
    "rope_v7_global_query",
    "fp16_phase4_scalar_loads",
    "fp16_phase4_64x64",
    "fp16_phase4_64x32",
)


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


def _control() -> Iterator[Problem]:
    yield from (problem for problem in _published() if not problem.causal)


def _host() -> Iterator[Problem]:
    yield from (problem for problem in _log() if problem.family == "rope")


HOST_VERSIONS = ("rope_separate", "rope_separate_one_sync", "rope_v7")


WAVES = (4, 6, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 21, 22, 24, 25, 26)  # heads: around where blocks need another


def _waves() -> Iterator[Problem]:
    """More and more blocks of the same size: time steps up where they no longer fit the card at once."""
    for hdim in (512, 2048):
        yield from (partial_rope(1, heads, 64, hdim) for heads in WAVES)


FUSIONS = ("rope_v8", "rope_hybrid_v8", "rope_separate_v8")  # one core: fused fully, Q alone, not at all
NAIVE = "rope_v6b"  # the log's full fusion, which rotates K once a query
NAIVE_LIMIT = 2**30  # multiply-adds of Q and K beyond which it is not measured: it would take longer than all others
GROUPED = 4  # heads that share keys, where some do

# What the map spans, as batch, heads, seq_q, seq_k, hdim, rotary_dim: 1 to 128 heads, 1 to 2048 queries, 16 to 4096
# keys, head dims of 64 to 4096, of which 32 to all are rotated. Steps are large, as what decides spans decades.
FEW_QUERIES = (  # decoding: K is rotated once in any case
    (1, 1, 1, 16, 64, 32),
    (1, 1, 1, 4096, 128, 128),
    (1, 8, 1, 4096, 128, 32),
    (1, 32, 1, 256, 128, 128),
    (1, 32, 1, 1024, 128, 128),
    (1, 32, 1, 4096, 128, 128),
    (1, 32, 1, 4096, 128, 64),
    (8, 16, 1, 1024, 128, 128),
    (8, 16, 1, 256, 256, 64),
    (1, 128, 1, 64, 128, 128),
    (4, 32, 1, 512, 64, 64),
    (1, 4, 1, 2048, 512, 512),
    (1, 2, 1, 1024, 2048, 128),
    (1, 1, 1, 512, 4096, 4096),
    (1, 16, 4, 2048, 128, 128),
    (1, 32, 8, 1024, 128, 64),
    (1, 8, 16, 4096, 128, 128),
    (1, 4, 16, 1024, 512, 128),
    (2, 2, 16, 256, 1024, 1024),
    (8, 16, 16, 128, 64, 32),
    (1, 1, 16, 16, 4096, 128),
)
SHORT_FEW_HEADS = (  # the shapes of the log, and around them
    (1, 4, 64, 64, 64, 64),
    (1, 4, 64, 64, 128, 64),
    (1, 4, 64, 64, 256, 32),
    (1, 4, 64, 64, 512, 128),
    (1, 4, 64, 64, 512, 512),
    (1, 4, 64, 64, 1024, 128),
    (1, 4, 64, 64, 2048, 128),
    (1, 4, 64, 64, 2048, 2048),
    (1, 2, 32, 32, 4096, 128),
    (1, 1, 32, 4096, 512, 512),
    (1, 2, 128, 1024, 256, 64),
    (2, 4, 128, 128, 1024, 256),
    (1, 8, 64, 512, 128, 32),
    (1, 16, 32, 256, 128, 128),
    (1, 3, 50, 77, 96, 48),
)
SHORT_MANY_HEADS = (  # enough heads to fill the card
    (4, 32, 64, 64, 64, 32),
    (8, 16, 64, 64, 128, 64),
    (8, 16, 64, 64, 512, 128),
    (8, 16, 64, 64, 512, 512),
    (8, 16, 64, 64, 2048, 128),
    (8, 16, 64, 64, 2048, 2048),
    (8, 16, 128, 128, 64, 64),
    (2, 32, 32, 32, 1024, 1024),
    (1, 32, 64, 64, 4096, 128),
    (2, 64, 128, 128, 256, 32),
    (8, 8, 64, 256, 256, 256),
    (1, 64, 64, 512, 128, 128),
    (1, 32, 128, 1024, 128, 128),
    (1, 64, 32, 2048, 128, 64),
)
MANY_QUERIES = (  # prefill: full fusion rotates K once a tile of queries
    (1, 8, 256, 256, 128, 64),
    (1, 8, 1024, 1024, 128, 64),
    (1, 8, 2048, 2048, 128, 64),
    (1, 8, 2048, 2048, 128, 128),
    (1, 32, 512, 512, 128, 128),
    (1, 32, 1024, 1024, 128, 32),
    (1, 1, 2048, 2048, 64, 64),
    (1, 1, 2048, 4096, 128, 32),
    (4, 8, 256, 256, 64, 32),
    (1, 4, 256, 256, 512, 128),
    (1, 4, 256, 256, 2048, 2048),
    (1, 2, 512, 512, 1024, 128),
    (1, 1, 1024, 1024, 4096, 512),
    (1, 16, 256, 4096, 128, 128),
)
GROUPED_HEADS = ((1, 32, 1, 4096, 128, 128), (1, 32, 16, 1024, 128, 128), (1, 32, 512, 512, 128, 128))
CAUSAL = ((1, 8, 1024, 1024, 128, 128), (1, 32, 512, 512, 128, 64), (1, 8, 256, 2048, 128, 128))


def _map() -> Iterator[Problem]:
    plain = (*FEW_QUERIES, *SHORT_FEW_HEADS, *SHORT_MANY_HEADS, *MANY_QUERIES)
    for shapes, grouped, causal in ((plain, 1, False), (GROUPED_HEADS, GROUPED, False), (CAUSAL, 1, True)):
        for batch, heads, seq_q, seq_k, hdim, rotary_dim in shapes:
            kv_heads = heads // grouped
            yield Problem("rope", batch, heads, kv_heads, seq_q, seq_k, hdim, rotary_dim, causal=causal)


def _too_long(version: Version, problem: Problem) -> bool:
    return version.id == NAIVE and problem.flops > 4 * NAIVE_LIMIT


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


SMALLEST, SHORT = partial_rope(1, 4, 64, 128), partial_rope(1, 4, 64, 512)
LONG = partial_rope(1, 8, 2048, 128, causal=True)


def _chosen() -> Iterator[Problem]:
    """Short and long sequences, small and large head dims, and few queries that meet many keys."""
    yield from (SMALLEST, SHORT, LONG, partial_rope(1, 8, 2048, 128))
    yield from (partial_rope(1, 4, 64, 2048), partial_rope(1, 4, 64, 8192), partial_rope(8, 16, 64, 2048))
    for heads, kv_heads, seq_q, seq_k, hdim, rotary_dim in (
        (32, 32, 1, 4096, 128, 128),
        (8, 8, 1, 16384, 128, 64),
        (32, 8, 1, 4096, 128, 128),
        (1, 1, 1, 4096, 128, 128),
        (10, 10, 16, 4096, 160, 160),
        (4, 4, 16, 1024, 512, 128),
    ):
        yield Problem("rope", 1, heads, kv_heads, seq_q, seq_k, hdim, rotary_dim)


CHOSEN = tuple(_chosen())


def _peers() -> Iterator[Problem]:
    """Every problem on which V8 is timed, once."""
    yield from dict.fromkeys((*CHOSEN, *_beyond(), *_map()))


def _peers_of_v8() -> list[Version]:
    """V8 and the peers that are in no study of the documents' shapes; of those that are, one as an anchor."""
    elsewhere = {*AUTOTUNED, *CACHED, *HALF_PEERS}
    peers = (v for v in VERSIONS.values() if v.is_peer and v.family == "rope" and v.beyond and v.id not in elsewhere)
    return [VERSIONS["rope_v8"], VERSIONS[COMPILED[0]], *peers]


def loads_ahead(version: Version) -> bool:
    """Whether PyTorch compiles it without timing what it makes, so that several processes may at once."""
    return version.compiled_embedding or version.id in (*ONE_GRAPH, *CACHED, HALF_PEERS[0])


CACHED = ("torch_rope_cache_one_graph", "torch_rope_cache_sdpa")  # decode from keys that are rotated already


def _decoding() -> Iterator[Problem]:
    """Where one query meets many keys: with keys that are not rotated yet, and with a cache of rotated ones."""
    for problem in _peers():
        if problem.seq_q == 1:
            yield problem
            yield replace(problem, cache="rotated")


def _other_cache(version: Version, problem: Problem) -> bool:
    return (version.id in CACHED) != (problem.cache == "rotated")


# Decode as batch, heads, KV heads, queries, keys and head dim: a cache of 67 to 268 MB in float32, grouped heads and
# not, one head, a batch, a wide head, 8 heads a group; and four queries, as speculative decoding has them.
DECODED = (
    (1, 32, 32, 1, 4096, 128),
    (1, 32, 8, 1, 4096, 128),
    (1, 8, 8, 1, 16384, 128),
    (1, 1, 1, 1, 4096, 128),
    (16, 32, 8, 1, 2048, 128),
    (1, 32, 8, 1, 32768, 128),
    (4, 16, 16, 1, 1500, 256),
    (1, 64, 8, 1, 8192, 128),
    (2, 32, 8, 4, 3000, 128),
)
SWEPT = (256, 1024, 4096, 8192, 16384, 32768, 131_072)  # keys of one sequence, 32 heads on 8
LONGEST = (1, 4, 1, 1, 2**20, 128)  # as far as positions go
SPLIT_KEYS = ("rope_decode", "attention_decode")
HALF_PEERS = (
    "torch_rope_half_one_graph",
    "torch_rope_half_one_graph_autotuned",
    "torch_sdpa_half_flash",
    "torch_sdpa_half_cudnn",
)
DECODED_AT_ALL = ("rope_v8", "torch_rope_cache_one_graph", "torch_sdpa_half_flash")  # DECODED, no longer sweep of keys
DECODED_AT_ONE = (  # what takes long to tune, and the log's, which refuse fewer queries than keys
    "torch_rope_one_graph_autotuned",
    "torch_rope_half_one_graph_autotuned",
    "rope_v2",
    "rope_v7",
    "rope_separate",
)


def _split_keys() -> Iterator[Problem]:
    """RoPE with keys that are not rotated yet, from a cache of rotated ones, and without RoPE."""
    for dtype in ("float32", "float16"):
        swept = ((1, 32, 8, 1, keys, 128) for keys in SWEPT)
        for batch, heads, kv_heads, seq_q, seq_k, hdim in dict.fromkeys((*DECODED, *swept, LONGEST)):
            raw = Problem(
                "rope", batch, heads, kv_heads, seq_q, seq_k, hdim, rotary_dim=hdim, dtype=dtype, causal=seq_q > 1
            )
            yield raw
            if seq_q == 1:
                yield replace(raw, family="attention", rotary_dim=0, q_offset=0)
                yield replace(raw, cache="rotated")


def _not_split(version: Version, problem: Problem) -> bool:
    """Peers of float32 have tables in the dtype of q, which half precision makes wrong."""
    sizes = (problem.batch, problem.heads, problem.kv_heads, problem.seq_q, problem.seq_k, problem.hdim)
    if version.id in SPLIT_KEYS:
        return problem.cache == "rotated"
    if version.id in DECODED_AT_ONE and sizes != DECODED[1]:
        return True
    if version.id in DECODED_AT_ALL and sizes not in DECODED:
        return True
    return (problem.dtype != "float32") != (version.id in HALF_PEERS) or _other_cache(version, problem)


AT_ALL = ("rope_v8", COMPILED[0], *ONE_GRAPH)
AUTOTUNED = tuple(f"{name}_autotuned" for name in ONE_GRAPH)  # by far the longest to compile
AT_CHOSEN = ("triton_rope_sliced",)
AT_ONE = {  # what compiles for longest
    "flex_rope": SMALLEST,  # at 512 dims it was not compiled after five minutes
    "flex_rope_tf32x3": LONG,
    "torch_rope_sdpa_one_graph_efficient": LONG,
    "torch_rope_sdpa_one_graph_math": LONG,
}


def _not_tried(version: Version, problem: Problem) -> bool:
    if version.id in AT_ONE:
        return problem != AT_ONE[version.id]
    few = CHOSEN if version.id in AT_CHOSEN else (SMALLEST, SHORT, LONG)
    return version.id not in AT_ALL and problem not in few


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
EMBEDDING_PEERS = (
    "torch_sdpa",
    "torch_rope_compiled_sdpa",
    "torch_sinusoidal_compiled_sdpa",
    "torch_alibi_sdpa",
    "torch_learned_compiled_sdpa",
)


def _stores_a_table(version: Version, problem: Problem) -> bool:
    """PyTorch's sinusoidal peer makes its own table in float32."""
    return version.is_peer and version.family == "sinusoidal" and problem.table != "computed"


def _named(names: Iterable[str]) -> Callable[[], list[Version]]:
    return lambda: [VERSIONS[name] for name in names]


WARM = ("device_warm",)
STUDIES = {
    study.name: study
    for study in (
        Study("log", "The shapes of the documents, all timers", tuple(_log()), TIMERS),
        Study("controlled", "Only the head dim varies", tuple(_at([2**n for n in range(7, 15)], 1, 4, 64)), WARM),
        Study("filled", "Enough heads to fill the card", tuple(_at([128, 512, 2048], 8, 16, 64)), WARM),
        Study("fp16", "Half precision, causal and not", tuple(_fp16()), WARM),
        Study("host", "What a synchronisation of the host costs", tuple(_host()), ("launched",), _named(HOST_VERSIONS)),
        Study("ablation", "One thing changed", tuple(_published()), WARM, _ablations),
        Study(
            "matched",
            "The load of each SM as on the authors' card",
            tuple(_published()),
            ("device_warm", SOURCE_TIMER),
            lambda: (v for v in VERSIONS.values() if v.of_log or v.id in ALSO_MATCHED),
            scaled=matched,
        ),
        Study("waves", "Time by blocks of a call", tuple(_waves()), WARM, _named(("rope_separate", "rope_v7"))),
        Study("control", "The same in CUDA C++", tuple(_control()), ("device_warm", SOURCE_TIMER), _controls),
        Study(
            "beyond",
            "V8 against the log and PyTorch",
            tuple(_beyond()),
            WARM,
            _named((*LOG_AND_V8, *COMPILED)),
        ),
        Study("peers", "V8 against whatever else there is", tuple(_peers()), WARM, _peers_of_v8, _not_tried),
        Study("autotuned", "V8 against what PyTorch tunes", CHOSEN, WARM, _named(("rope_v8", *ONE_GRAPH, *AUTOTUNED))),
        Study(
            "embeddings",
            "Every embedding on one core",
            tuple(_embeddings()),
            WARM,
            _named((*EMBEDDINGS, *EMBEDDING_PEERS)),
            _stores_a_table,
        ),
        Study(
            "decode",
            "One query a head: V8 and a cache of rotated keys",
            tuple(_decoding()),
            WARM,
            _named(("rope_v8", *ONE_GRAPH, *CACHED)),
            _other_cache,
        ),
        Study(
            "split_keys",
            "Up to 8 queries a head by keys that blocks share, in float32 and half precision",
            tuple(_split_keys()),
            ("device_warm", "device_cold"),
            _named(dict.fromkeys((*SPLIT_KEYS, ONE_GRAPH[0], *HALF_PEERS, *DECODED_AT_ALL, *DECODED_AT_ONE))),
            _not_split,
        ),
        Study("map", "When to fuse, on one core", tuple(_map()), WARM, _named((*FUSIONS, NAIVE)), _too_long),
    )
}


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
# What the book shows hardware counters of: studies, and which versions of theirs, all where none is named.
PROFILED: tuple[tuple[str, str], ...] = (
    (f"{PUBLISHED},matched", ""),
    ("beyond", "rope_v8,rope_hybrid_v8,rope_v8_portable"),
)


def study(name: str) -> Study:
    """The study called `name`. Raises: ValueError with the known names."""
    if name not in STUDIES:
        raise ValueError(f"no study is called {name!r}; known: {', '.join(STUDIES)}")
    return STUDIES[name]


def studies(names: str) -> list[Study]:
    """Studies by their names, separated by commas; "all" for all. Raises: ValueError with the known names."""
    return [study(name) for name in (STUDIES if names == "all" else names.split(","))]


COUNTED = (*FUSIONS, "rope_v8_mma", "rope_v8_portable", "attention_v8")  # at shapes of the log, beyond which they go


def _counted() -> Iterator[tuple[Version, Problem]]:
    for name in COUNTED:
        for hdim in (512, 2048):
            yield VERSIONS[name], next(_shape(VERSIONS[name].family, hdim, *LOG_SHAPES[hdim]))


def own_pairs(names: str) -> list[tuple[str, Problem]]:
    """The log's versions with the problems of some studies, each pair once; with a small one where they take none.

    What goes beyond the log comes with it: on two of its shapes, or on a small problem.

    Raises: ValueError with the known names.
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
