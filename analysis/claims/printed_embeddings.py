"""What stands beside the printed numbers of embeddings, where the columns of their rows do not say it."""

from __future__ import annotations

from functools import partial

from ..evidence import Estimates, Evidence, said
from .measures import FLOAT4, SCALAR
from .printed import Also, Values

SINUSOIDAL, ROPE, WIDE = (512, 2048, 4096), (128, 512, 2048), (128, 512, 2048, 4096, 8192)
HYBRID = "sinusoidal_hybrid_v1"
HYBRID_MOVES = (
    "read.sectors.q",
    "read.sectors.k_embedded",
    "read.sectors.v",
    "write.sectors.out",
    "write.sectors.k_embedded",
)
SEPARATE_MOVES = (
    "read.sectors.q", "read.sectors.k", "read.sectors.v", "write.sectors.out", "write.sectors.q_embedded",
    "write.sectors.k_embedded",
)  # fmt: skip


def sinusoidal(e: Evidence) -> Values:
    count, size = (partial(ask, hdim=2048) for ask in (e.count, e.size))
    moved = [(HYBRID, counter) for counter in HYBRID_MOVES] + [(FLOAT4, counter) for counter in SEPARATE_MOVES]

    def elements(rows: str) -> Estimates:
        heads, seq, dims = (e.size("sinusoidal_v5", column, hdim=SINUSOIDAL) for column in ("heads", rows, "hdim"))
        return heads * seq * dims

    return {
        "N025": e.count("sinusoidal_v5", "event.sincos", hdim=SINUSOIDAL) / (elements("seq_q") + elements("seq_k")),
        "N032": count("sinusoidal_v5", "event.sincos")
        / 2
        / (size("sinusoidal_v5", "heads") * size("sinusoidal_v5", "seq_k") * 2048),
        "N045": Also(
            count("sinusoidal_v5", "event.sincos") / size("sinusoidal_v5", "heads"),
            {"of a call with all heads": count("sinusoidal_v5", "event.sincos")},
        ),
        "N046 N047": [count(version, "event.sincos event.sin event.cos") for version in (HYBRID, FLOAT4)],
        "N048 N049 N050 N053 N054 N055 N056 N057 N060 N061 N062": Also(
            [4 * size(version, "heads") * size(version, "seq_k") * 2048 for version, _ in moved],
            {"asked for by the kernels": [32 * count(version, f"global.{counter}") for version, counter in moved]},
        ),
        "N051 N058": [2 * 4 * size(version, "seq_k") * 2048 for version in (HYBRID, FLOAT4)],
        "N052 N059": Also(
            [(3 * size(version, "heads") + 2) * 4 * size(version, "seq_k") * 2048 for version in (HYBRID, FLOAT4)],
            {
                "every sector once a launch": [
                    32 * count(version, "global.unique_sectors.read") for version in (HYBRID, FLOAT4)
                ],
                "asked for by the kernels": [
                    32 * count(version, "global.read.sectors") for version in (HYBRID, FLOAT4)
                ],
            },
        ),
        "N063 N064": 32 * (count(FLOAT4, "global.unique_sectors.write") - count(HYBRID, "global.unique_sectors.write")),
        "N065": Also(
            100
            * (count(FLOAT4, "global.unique_sectors.write") - count(HYBRID, "global.unique_sectors.write"))
            / count(FLOAT4, "global.unique_sectors.write global.unique_sectors.read"),
            {
                "by the document's own items": 100
                * said("N063")
                / (said("N059") + said("N060") + said("N061") + said("N062"))
            },
        ),
        "N313": 32
        * count(FLOAT4, "global.write.sectors.q_embedded global.write.sectors.k_embedded")
        / size(FLOAT4, "heads"),
        "N315 N317 N319": e.speedup("sinusoidal_v1", SCALAR, hdim=SINUSOIDAL),
        "N320": Also(
            (count("sinusoidal_v1", "inst.ld.global") - count(SCALAR, "inst.ld.global", launch=2))
            / size("sinusoidal_v1", "heads"),
            {"queries times keys times dims": size("sinusoidal_v1", "seq_q") * size("sinusoidal_v1", "seq_k") * 2048},
        ),
        "N382": (count(FLOAT4, "inst.fp32", launch=0) + 2 * count(FLOAT4, "inst.fma", launch=0))
        / (size(FLOAT4, "heads") * size(FLOAT4, "seq_q") * 2048),
        "N383": (
            count("sinusoidal_v5", "inst.fma inst.fp32")
            + count("sinusoidal_v5", "inst.mufu.sin inst.mufu.cos")
            - count(FLOAT4, "inst.fma", launch=2)
            - count(FLOAT4, "inst.fp32", launch=2)
        )
        / (size("sinusoidal_v5", "flops") / 2),
        "N384": (count("sinusoidal_v1", "inst.ld.global") - count(SCALAR, "inst.ld.global", launch=2))
        / (size("sinusoidal_v1", "flops") / 2),
    }


def rope_dims(e: Evidence) -> Values:
    count, size = (partial(ask, hdim=2048) for ask in (e.count, e.size))
    return {
        "N004 N005": 100 * e.size("rope_v7", "rotary_dim", hdim=ROPE) / e.size("rope_v7", "hdim", hdim=ROPE),
        "N179 N181": 100
        * e.size("rope_v7", "rotary_dim", hdim=(128, 2048))
        / e.size("rope_v7", "hdim", hdim=(128, 2048)),
        "N180": 100 * e.size("rope_v7", "rotary_dim", study="controlled", hdim=256) / 256,
        "N084": e.speedup("rope_separate", "rope_v7", hdim=WIDE),
        "N126": e.speedup("rope_v2", "rope_separate", hdim=128, rotary="full"),
        "N127": e.speedup("rope_separate", "rope_v2", hdim=512, rotary="full"),
        "N087": 128 * e.status("rope_v1a", "wrong", hdim=128),
        "N093": 32,
        "N095": e.size("rope_v1a", "heads", hdim=128) * e.size("rope_v1a", "seq_q", hdim=128) * 128,
        "N096": 100 * e.nan_share("rope_v1a", hdim=128),
        "X031 X032 X033": 100 * e.nan_share("rope_v1a", hdim=ROPE),
        "N100 N101": [
            (count(version, "global.read.bytes_requested") - (32 * count(version, "global.read.sectors.v")))
            / (count(version, "inst.ld.global") - (8 * count(version, "global.read.sectors.v")))
            for version in ("rope_v1c", "rope_v1b")
        ],
        "N118": Also(
            2
            * (count("rope_v1c", "event.rotation") - count("rope_separate", "event.rotation", rotary="full", launch=0))
            / (size("rope_v1c", "heads") * size("rope_v1c", "seq_q"))
            / 2048,
            {
                "floats in the sectors that are read": 8
                * count("rope_v1c", "global.read.sectors.cos global.read.sectors.sin")
                / (size("rope_v1c", "heads") * size("rope_v1c", "seq_q"))
                / 2048
            },
        ),
    }


def rope_rotations(e: Evidence) -> Values:
    count, size = (partial(ask, hdim=2048) for ask in (e.count, e.size))
    heads = size("rope_separate", "heads")
    rows = heads * 2048 / 2  # pairs in a row of all heads
    separate_q, separate_k = (count("rope_separate", "event.rotation", rotary="full", launch=n) for n in (0, 1))
    separate = separate_q + separate_k
    few, partial_q = (count("rope_separate", "event.rotation", rotary="partial", launch=n) for n in (None, 0))
    v1, v3 = (count(version, "event.rotation") for version in ("rope_v1c", "rope_v3"))
    v6 = count("rope_v6a", "event.rotation", rotary="full")
    v6_few = count("rope_v6b", "event.rotation", rotary="partial")
    multiply, add = (count("rope_separate", f"inst.{each}", rotary="full", launch=0) for each in ("fma", "fp32"))
    flop = add + 2 * multiply
    return {
        "N139 N175 N351": separate_k / rows,
        "N350": separate_q / rows,
        "N352": separate / rows,
        "N353": separate_q / rows,
        "N354": (v1 - separate_q) / rows,
        "N355": v1 / rows,
        "N356": v1 / separate,
        "N357": count("rope_v1c", "inst.fp32 inst.fma") / count("rope_separate", "inst.fp32 inst.fma", rotary="full"),
        "N379 N210": (v1 - separate_q) / separate_k,
        "N138": (v3 - separate_q) / rows,
        "N140": (v3 - separate_q) / separate_k,
        "N359": v3 / separate,
        "N174": (v6 - separate_q) / rows,
        "N176": (v6 - separate_q) / separate_k,
        "N188": 2 * few / heads,
        "N189": 2 * few / heads / size("rope_separate", "rotary_dim", rotary="partial"),
        "N190 N205": 2 * (v6_few - partial_q) / heads,
        "N191": (v6_few - partial_q) / few,
        "N380 N381": [flop / separate_q - said(other) for other in ("N381", "N380")],
        "N385": flop / (2 * separate_q),
    }


def rope_tiles(e: Evidence) -> Values:
    blocks, launches, ran, shared_bytes, size = (
        partial(ask, hdim=2048) for ask in (e.blocks, e.launches, e.ran, e.shared_bytes, e.size)
    )
    return {
        "N128 N358": size("rope_v3", "heads") * size("rope_v3", "seq_q") / blocks("rope_v3"),
        "N129": shared_bytes("rope_v3", "query"),
        "N141": size("rope_v3", "seq_q"),
        "N142 N178 N212 N251 N255 N267 N364": shared_bytes("attention_multi_query_227k")
        * ran("attention_multi_query_227k"),
        "N143 N177 N211": 4 * size("rope_v6a", "seq_k", rotary="full") * 2048,
        "N155": shared_bytes("rope_v5"),
        "N156": shared_bytes("rope_v5") / 4,
        "N157": (
            shared_bytes("rope_v5", "query")
            + shared_bytes("rope_v5", "inv_freq")
            + shared_bytes("rope_v5", "reduction")
        )
        / 4,
        "N158": (said("N156") - said("N157")) / (2048 + 1),
        "N159 N366": shared_bytes("rope_v5", "scores") / 4,
        "N160 N165 N367": size("rope_v5", "seq_k") / (shared_bytes("rope_v5", "scores") / 4),
        "N161": shared_bytes("rope_v6a", "keys", rotary="full") / shared_bytes("rope_v6a", "scores", rotary="full"),
        "N162": 2048
        * shared_bytes("rope_v6a", "scores", rotary="full")
        / shared_bytes("rope_v6a", "keys", rotary="full"),
        "N163": shared_bytes("rope_v6a", "scores", rotary="full") / 4,
        "N164": size("rope_v6a", "seq_k", rotary="full") / (shared_bytes("rope_v6a", "scores", rotary="full") / 4),
        "N365": shared_bytes("rope_v5", "keys") / (shared_bytes("rope_v5", "scores") / 4 * 2048),
        "N194": size("rope_v7", "seq_k"),
        "N197": shared_bytes("rope_v7", "scores") / 4,
        "N207 N209": [launches(version, rotary="partial") for version in ("rope_separate", "rope_v7")],
        "X090": e.shared_bytes("rope_v6b", hdim=4096, rotary="partial"),
    }


MEASURED = (sinusoidal, rope_dims, rope_rotations, rope_tiles)
