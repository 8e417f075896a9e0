"""What stands beside the printed numbers of embeddings, where the columns of their rows do not say it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..evidence import Estimates, Evidence, said
from .measures import FLOAT4, SCALAR
from .printed import Entry, each, same

SINUSOIDAL, ROPE, WIDE = (512, 2048, 4096), (128, 512, 2048), (128, 512, 2048, 4096, 8192)
HYBRID_MOVES = (("read", "q"), ("read", "k_embedded"), ("read", "v"), ("write", "out"), ("write", "k_embedded"))
SEPARATE_MOVES = (
    ("read", "q"), ("read", "k"), ("read", "v"), ("write", "out"), ("write", "q_embedded"), ("write", "k_embedded"),
)  # fmt: skip


def sinusoidal(e: Evidence) -> Iterator[Entry]:
    count, size = (partial(ask, hdim=2048) for ask in (e.count, e.size))

    def elements(rows: str) -> Estimates:
        heads, seq, dims = (e.size("sinusoidal_v5", column, hdim=SINUSOIDAL) for column in ("heads", rows, "hdim"))
        return heads * seq * dims

    yield from same(
        "N025",
        e.count("sinusoidal_v5", "event.sincos", hdim=SINUSOIDAL) / (elements("seq_q") + elements("seq_k")),
        note="calls of V5 over the elements that separate kernels embed",
        counted="sincos calls of V5 for each element of Q and K",
    )
    yield from same(
        "N032",
        count("sinusoidal_v5", "event.sincos")
        / 2
        / (size("sinusoidal_v5", "heads") * size("sinusoidal_v5", "seq_k") * 2048),
        note="how often V5 embeds an element of K, which the hybrid embeds once",
    )
    yield from same(
        "N045",
        count("sinusoidal_v5", "event.sincos") / size("sinusoidal_v5", "heads"),
        counted="sincos calls of V5, a head, head dim 2048",
        also={"of a call with all heads": count("sinusoidal_v5", "event.sincos")},
    )
    yield from each(
        "N046 N047",
        *(count(version, "event.sincos event.sin event.cos") for version in ("sinusoidal_hybrid_v1", FLOAT4)),
        counted="sincos calls of hybrid V1 and of separate kernels",
    )
    asked = [("sinusoidal_hybrid_v1", f"{way}.sectors.{name}") for way, name in HYBRID_MOVES]
    asked += [(FLOAT4, f"{way}.sectors.{name}") for way, name in SEPARATE_MOVES]
    yield from each(
        "N048 N049 N050 N053 N054 N055 N056 N057 N060 N061 N062",
        *(4 * size(version, "heads") * size(version, "seq_k") * 2048 for version, _ in asked),
        note="the tensor once",
        also={"asked for by the kernels": [32 * count(version, f"global.{counter}") for version, counter in asked]},
    )
    yield from each(
        "N051 N058",
        *(2 * 4 * size(version, "seq_k") * 2048 for version in ("sinusoidal_hybrid_v1", FLOAT4)),
        note="both tables once",
    )
    yield from each(
        "N052 N059",
        *(
            (3 * size(version, "heads") + 2) * 4 * size(version, "seq_k") * 2048
            for version in ("sinusoidal_hybrid_v1", FLOAT4)
        ),
        note="every tensor and table once a call",
        counted="bytes that hybrid V1 and separate kernels load, head dim 2048",
        also={
            "every sector once a launch": [
                *(32 * count(version, "global.unique_sectors.read") for version in ("sinusoidal_hybrid_v1", FLOAT4))
            ],
            "asked for by the kernels": [
                *(32 * count(version, "global.read.sectors") for version in ("sinusoidal_hybrid_v1", FLOAT4))
            ],
        },
    )
    yield from same(
        "N063 N064",
        32
        * (count(FLOAT4, "global.unique_sectors.write") - count("sinusoidal_hybrid_v1", "global.unique_sectors.write")),
        counted="bytes that the hybrid saves in writes",
    )
    yield from same(
        "N065",
        100
        * (count(FLOAT4, "global.unique_sectors.write") - count("sinusoidal_hybrid_v1", "global.unique_sectors.write"))
        / count(FLOAT4, "global.unique_sectors.write global.unique_sectors.read"),
        note="every sector once a launch",
        counted="share of the traffic of separate kernels that the hybrid saves",
        also={
            "by the document's own items": 100
            * said("N063")
            / (said("N059") + said("N060") + said("N061") + said("N062"))
        },
    )
    yield from same(
        "N313",
        32 * count(FLOAT4, "global.write.sectors.q_embedded global.write.sectors.k_embedded") / size(FLOAT4, "heads"),
        note="embedded Q and K of a head, written once",
        counted="bytes of redundant traffic of separate kernels, a head",
    )
    yield from each(
        "N315 N317 N319",
        e.speedup("sinusoidal_v1", SCALAR, hdim=SINUSOIDAL),
        note="over the scalar separate kernels; the document names no baseline",
    )
    yield from same(
        "N320",
        (count("sinusoidal_v1", "inst.ld.global") - count(SCALAR, "inst.ld.global", launch=2))
        / size("sinusoidal_v1", "heads"),
        counted="table loads of V1, a head, head dim 2048",
        also={"queries times keys times dims": size("sinusoidal_v1", "seq_q") * size("sinusoidal_v1", "seq_k") * 2048},
    )
    yield from same(
        "N382",
        (count(FLOAT4, "inst.fp32", launch=0) + 2 * count(FLOAT4, "inst.fma", launch=0))
        / (size(FLOAT4, "heads") * size(FLOAT4, "seq_q") * 2048),
        note="FLOP of the embed kernel for each element",
        counted="operations of an added embedding, an element",
    )
    yield from same(
        "N383",
        (
            count("sinusoidal_v5", "inst.fma inst.fp32")
            + count("sinusoidal_v5", "inst.mufu.sin inst.mufu.cos")
            - count(FLOAT4, "inst.fma", launch=2)
            - count(FLOAT4, "inst.fp32", launch=2)
        )
        / (size("sinusoidal_v5", "flops") / 2),
        note="floating-point and special-function instructions that V5 adds to attention, an element that it embeds",
        counted="operations of a computed embedding, an element",
    )
    yield from same(
        "N384",
        (count("sinusoidal_v1", "inst.ld.global") - count(SCALAR, "inst.ld.global", launch=2))
        / (size("sinusoidal_v1", "flops") / 2),
        note="table loads that V1 makes for each element that it embeds",
        counted="memory transactions of V1, an element",
    )


def rope_dims(e: Evidence) -> Iterator[Entry]:
    count, size = (partial(ask, hdim=2048) for ask in (e.count, e.size))
    yield from same(
        "N004 N005", 100 * e.size("rope_v7", "rotary_dim", hdim=ROPE) / e.size("rope_v7", "hdim", hdim=ROPE)
    )
    yield from each(
        "N179 N181",
        100 * e.size("rope_v7", "rotary_dim", hdim=(128, 2048)) / e.size("rope_v7", "hdim", hdim=(128, 2048)),
    )
    yield from same("N180", 100 * e.size("rope_v7", "rotary_dim", study="controlled", hdim=256) / 256)
    yield from same(
        "N084",
        e.speedup("rope_separate", "rope_v7", hdim=WIDE),
        unit="× as fast as V7, from the least to the largest head dim",
    )
    yield from same(
        "N126", e.speedup("rope_v2", "rope_separate", hdim=128, rotary="full"), unit="× as fast as separate at 128"
    )
    yield from same(
        "N127", e.speedup("rope_separate", "rope_v2", hdim=512, rotary="full"), unit="× as fast as fused at 512"
    )
    yield from same(
        "N087", 128 * e.status("rope_v1a", "wrong", hdim=128), note="the least head dim that is measured; 0 if right"
    )
    yield from same("N093", 32, note="threads of a warp")
    yield from same("N095", e.size("rope_v1a", "heads", hdim=128) * e.size("rope_v1a", "seq_q", hdim=128) * 128)
    yield from same(
        "N096", 100 * e.nan_share("rope_v1a", hdim=128), note="outputs that are not a number, and so wrong at least"
    )
    yield from each("X031 X032 X033", 100 * e.nan_share("rope_v1a", hdim=(128, 512, 2048)))
    yield from each(
        "N100 N101",
        *(
            (count(version, "global.read.bytes_requested") - (32 * count(version, "global.read.sectors.v")))
            / (count(version, "inst.ld.global") - (8 * count(version, "global.read.sectors.v")))
            for version in ("rope_v1c", "rope_v1b")
        ),
        note="loads of all but V, which both take a float at a time",
    )
    yield from same(
        "N118",
        2
        * (count("rope_v1c", "event.rotation") - count("rope_separate", "event.rotation", rotary="full", launch=0))
        / (size("rope_v1c", "heads") * size("rope_v1c", "seq_q"))
        / 2048,
        note="a cosine and a sine for each rotation of K, a query, over the head dim",
        counted="table loads of V1 for each query, over the head dim",
        also={
            "floats in the sectors that are read": 8
            * count("rope_v1c", "global.read.sectors.cos global.read.sectors.sin")
            / (size("rope_v1c", "heads") * size("rope_v1c", "seq_q"))
            / 2048
        },
    )


def rope_rotations(e: Evidence) -> Iterator[Entry]:
    count, size = (partial(ask, hdim=2048) for ask in (e.count, e.size))
    yield from same(
        "N139 N175 N351",
        count("rope_separate", "event.rotation", rotary="full", launch=1)
        / (size("rope_separate", "heads", rotary="full") * 2048 / 2),
        note="in rows of a head",
    )
    yield from same(
        "N350",
        count("rope_separate", "event.rotation", rotary="full", launch=0)
        / (size("rope_separate", "heads", rotary="full") * 2048 / 2),
        note="in rows of a head",
    )
    yield from same(
        "N352",
        count("rope_separate", "event.rotation", rotary="full")
        / (size("rope_separate", "heads", rotary="full") * 2048 / 2),
        note="in rows of a head",
        counted="rotations of separate kernels, rows of a head",
    )
    yield from same(
        "N353",
        count("rope_separate", "event.rotation", rotary="full", launch=0)
        / (size("rope_separate", "heads", rotary="full") * 2048 / 2),
        note="in rows of a head; each query is rotated once, as in the separate kernels",
    )
    yield from same(
        "N354",
        (count("rope_v1c", "event.rotation") - count("rope_separate", "event.rotation", rotary="full", launch=0))
        / (size("rope_v1c", "heads") * 2048 / 2),
        note="in rows of a head",
    )
    yield from same(
        "N355",
        count("rope_v1c", "event.rotation") / (size("rope_v1c", "heads") * 2048 / 2),
        note="in rows of a head",
        counted="rotations of V1, rows of a head",
    )
    yield from same(
        "N356",
        count("rope_v1c", "event.rotation") / count("rope_separate", "event.rotation", rotary="full"),
        counted="rotations of V1 over those of separate kernels",
    )
    yield from same(
        "N357",
        count("rope_v1c", "inst.fp32 inst.fma") / count("rope_separate", "inst.fp32 inst.fma", rotary="full"),
        note="floating-point instructions of a call",
        counted="computation of V1 over that of separate kernels",
    )
    yield from same(
        "N379 N210",
        (count("rope_v1c", "event.rotation") - count("rope_separate", "event.rotation", rotary="full", launch=0))
        / count("rope_separate", "event.rotation", rotary="full", launch=1),
        counted="rotations of K in V1 over those of separate kernels",
    )
    yield from same(
        "N138",
        (count("rope_v3", "event.rotation") - count("rope_separate", "event.rotation", rotary="full", launch=0))
        / (size("rope_v3", "heads") * 2048 / 2),
        note="in rows of a head",
        counted="rotations of K in V3, rows of a head",
    )
    yield from same(
        "N140",
        (count("rope_v3", "event.rotation") - count("rope_separate", "event.rotation", rotary="full", launch=0))
        / count("rope_separate", "event.rotation", rotary="full", launch=1),
        counted="rotations of K in V3 over those of separate kernels",
    )
    yield from same(
        "N359",
        count("rope_v3", "event.rotation") / count("rope_separate", "event.rotation", rotary="full"),
        note="rotations of Q and K",
        counted="rotations of V3 over those of separate kernels",
    )
    yield from same(
        "N174",
        (
            count("rope_v6a", "event.rotation", rotary="full")
            - count("rope_separate", "event.rotation", rotary="full", launch=0)
        )
        / (size("rope_v6a", "heads", rotary="full") * 2048 / 2),
        note="in rows of a head; those of Q taken off",
        counted="rotations of K in V6, rows of a head",
    )
    yield from same(
        "N176",
        (
            count("rope_v6a", "event.rotation", rotary="full")
            - count("rope_separate", "event.rotation", rotary="full", launch=0)
        )
        / count("rope_separate", "event.rotation", rotary="full", launch=1),
    )
    yield from same(
        "N188",
        2
        * count("rope_separate", "event.rotation", rotary="partial")
        / size("rope_separate", "heads", rotary="partial"),
        note="elements, two for each rotation",
        counted="elements that separate kernels rotate, a head, 128 of 2048 dims",
    )
    yield from same(
        "N189",
        2
        * count("rope_separate", "event.rotation", rotary="partial")
        / size("rope_separate", "heads", rotary="partial")
        / size("rope_separate", "rotary_dim", rotary="partial"),
    )
    yield from same(
        "N190 N205",
        2
        * (
            count("rope_v6b", "event.rotation", rotary="partial")
            - count("rope_separate", "event.rotation", rotary="partial", launch=0)
        )
        / size("rope_v6b", "heads", rotary="partial"),
        note="elements of K, two for each rotation; those of Q taken off",
        counted="elements of K that V6 rotates, a head, 128 of 2048 dims",
    )
    yield from same(
        "N191",
        (
            count("rope_v6b", "event.rotation", rotary="partial")
            - count("rope_separate", "event.rotation", rotary="partial", launch=0)
        )
        / count("rope_separate", "event.rotation", rotary="partial"),
        note="K in V6 over Q and K in separate kernels",
    )
    yield from each(
        "N380 N381",
        *(
            (
                count("rope_separate", "inst.fp32", rotary="full", launch=0)
                + 2 * count("rope_separate", "inst.fma", rotary="full", launch=0)
            )
            / count("rope_separate", "event.rotation", rotary="full", launch=0)
            - said(other)
            for other in ("N381", "N380")
        ),
        note="FLOP of the rotate kernel for each pair, less those of the other kind",
        counted="multiplications and additions of a rotation, a pair",
    )
    yield from same(
        "N385",
        (
            count("rope_separate", "inst.fp32", rotary="full", launch=0)
            + 2 * count("rope_separate", "inst.fma", rotary="full", launch=0)
        )
        / (2 * count("rope_separate", "event.rotation", rotary="full", launch=0)),
        note="FLOP of the rotate kernel for each element",
        counted="FLOP of a rotation, an element",
    )


def rope_tiles(e: Evidence) -> Iterator[Entry]:
    blocks, launches, ran, shared_bytes, size = (
        partial(ask, hdim=2048) for ask in (e.blocks, e.launches, e.ran, e.shared_bytes, e.size)
    )
    yield from same("N128 N358", size("rope_v3", "heads") * size("rope_v3", "seq_q") / blocks("rope_v3"))
    yield from same(
        "N129", shared_bytes("rope_v3", "query"), counted="shared memory for rotated Q in V3, head dim 2048"
    )
    yield from same("N141", size("rope_v3", "seq_q"), note="queries of a head")
    yield from same(
        "N142 N178 N212 N251 N255 N267 N364",
        shared_bytes("attention_multi_query_227k") * ran("attention_multi_query_227k"),
        note="what a block may have here that asks for more than a launch gets unasked, 49,152 B",
    )
    yield from same(
        "N143 N177 N211",
        4 * size("rope_v6a", "seq_k", rotary="full") * 2048,
        note="rotated K of a head",
        counted="shared memory for rotated K of a head, head dim 2048",
    )
    yield from same("N155", shared_bytes("rope_v5"), note="what a block asks for")
    yield from same("N156", shared_bytes("rope_v5") / 4, note="what a block asks for")
    yield from same(
        "N157",
        (shared_bytes("rope_v5", "query") + shared_bytes("rope_v5", "inv_freq") + shared_bytes("rope_v5", "reduction"))
        / 4,
        counted="floats of V5 apart from its tile, head dim 2048",
    )
    yield from same(
        "N158",
        (said("N156") - said("N157")) / (2048 + 1),
        note="the document's division",
        counted="keys of a tile of V5 before rounding",
    )
    yield from same("N159 N366", shared_bytes("rope_v5", "scores") / 4)
    yield from same("N160 N165 N367", size("rope_v5", "seq_k") / (shared_bytes("rope_v5", "scores") / 4))
    yield from same(
        "N161", shared_bytes("rope_v6a", "keys", rotary="full") / shared_bytes("rope_v6a", "scores", rotary="full")
    )
    yield from same(
        "N162",
        2048 * shared_bytes("rope_v6a", "scores", rotary="full") / shared_bytes("rope_v6a", "keys", rotary="full"),
    )
    yield from same("N163", shared_bytes("rope_v6a", "scores", rotary="full") / 4)
    yield from same(
        "N164", size("rope_v6a", "seq_k", rotary="full") / (shared_bytes("rope_v6a", "scores", rotary="full") / 4)
    )
    yield from same(
        "N365",
        shared_bytes("rope_v5", "keys") / (shared_bytes("rope_v5", "scores") / 4 * 2048),
        counted="bytes of an element of V5's tile",
    )
    yield from same("N194", size("rope_v7", "seq_k"))
    yield from same("N197", shared_bytes("rope_v7", "scores") / 4)
    yield from each("N207 N209", *(launches(version, rotary="partial") for version in ("rope_separate", "rope_v7")))
    yield from same(
        "X090",
        e.shared_bytes("rope_v6b", hdim=4096, rotary="partial"),
        counted="shared memory that V6 asks for, head dim 4096, 128 dims rotated",
    )


MEASURED = (sinusoidal, rope_dims, rope_rotations, rope_tiles)
