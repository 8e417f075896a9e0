"""The steps of attention before any embedding: why each gains or loses. Numbers are of head dim 2048."""

from ..evidence import Estimates, Evidence, said
from ..models.waves import LOG_BLOCKS, places
from ..record import published
from ..studies import SLICES
from . import Says, checks, faster, finding, not_faster, not_slower, numbers, of_values, slower, ties, times

BASE = "attention_baseline"
ONLINE, FIXED = "attention_online", "attention_online_fixed"
TWO_PASS = "attention_two_pass_float4"
TENSOR_CORES = "attention_tensor_core_v2"
LATER = ("X034", "X035", "X036", "X037")  # published times of the corrected kernel
HDIM = 2048
DIMS = (512, 2048, 4096, 8192)  # of the documents


@finding("attention-shuffles", """A block reduces rarely and multiplies often. So at head dim 2048 nothing is gained.
At the best head dim the kernel is {most:.2} as fast as the one with atomics. And the store that shares the result is
missing: each warp then scales its keys by its own maximum and sum, and the result is wrong where several warps have
keys.""")
def shuffles(e: Evidence) -> Says:
    gain, wrong = e.speedup(BASE, over="attention_atomics", hdim=DIMS), e.status(BASE, "wrong", hdim=(512, HDIM))
    return numbers(most=times(gain.fastest)), checks(
        ties(gain.at(HDIM)), of_values(not_slower(gain)), gain < 1.25, wrong > 0.5
    )


@finding("attention-float4", """A load uses half of its sector of memory, where a single float uses an eighth. So the
loads of K take {keys} of the sectors of before, and all reads {all}, as V is read as it was. The reverse test agrees:
with scalar loads the online kernel, further down, is {scalar:.2} as fast.""")
def float4(e: Evidence) -> Says:
    two_pass, scalar = e.speedup(TWO_PASS, over=BASE, hdim=DIMS), e.speedup("attention_online_scalar", FIXED, hdim=DIMS)

    def asked(what: str) -> Estimates:
        vector, single = (e.count(name, f"global.read.sectors{what}", hdim=HDIM) for name in (TWO_PASS, BASE))
        return (vector / single).measured_in("%")

    keys, values, all = map(asked, (".k", ".v", ""))
    return numbers(scalar=times(scalar.at(HDIM)), keys=keys, all=all), checks(
        faster(two_pass), slower(scalar), keys > 0.2499, keys < 0.2501, values > 0.9999, values < 1.0001, all > 0.3,
        all < 0.36,
    )


@finding("attention-online", """Its loads win, not online softmax: with scalar loads it is no faster than the baseline,
and at the documents' shapes all keys are in a single tile. On *their SMs* it is {loaded:.2} as fast as the two-pass
kernel with float4: fewer of its blocks fit an SM of their card, and the last ones wait.""")
def online(e: Evidence) -> Says:
    scalar = e.speedup("attention_online_scalar", over=BASE, hdim=DIMS)
    fixed, tiles = e.speedup(FIXED, over=BASE, hdim=DIMS), [p.seq_k for p in e.study().problems("attention")]
    loaded = e.speedup(FIXED, over=TWO_PASS, study=SLICES, hdim=(512, HDIM))
    own, other = (places(e, name) for name in (FIXED, TWO_PASS))
    return numbers(loaded=times(loaded.at(HDIM))), checks(
        not_faster(scalar), faster(fixed), max(tiles, default=0) <= 64, slower(loaded), own < LOG_BLOCKS <= other
    )


@finding("attention-nan", """At head dim 2048 the kernel as published returns {share} NaN. The corrected one returns
none, and is {gain:.2} as fast. The authors later ran a corrected kernel, too. Its published time is from a log of
theirs that no document prints. What the authors' test made of the NaN is [a chapter](checks.html).""")
def corrected(e: Evidence) -> Says:
    nan, fixed = e.nan_share(ONLINE, hdim=DIMS), e.nan_share(FIXED, hdim=DIMS)
    gain, rows = e.speedup(FIXED, over=ONLINE, hdim=DIMS), [published.by_id()[each] for each in LATER]
    return numbers(share=nan.at(HDIM), gain=times(gain.at(HDIM))), checks(
        nan > 0.5, fixed <= 0, of_values(not_slower(gain)),
        all("0215293/execute-log.txt" in row["source_document"] and "fixed" in row["note"] for row in rows),
    )  # fmt: skip


@finding("attention-register-tiling", """A block writes at most {dims:,} dims. At larger head dims the rest is never
written, which flatters its time. At head dim 2048 it is {middle:.1} as fast as the online kernel, with the same broken
reductions. Its code was not kept, and the order of its loops is our assumption.""")
def register_tiling(e: Evidence) -> Says:
    tiled = e.speedup("attention_register_tiling", over=ONLINE, hdim=DIMS)
    wrong = e.status("attention_register_tiling", "wrong", hdim=DIMS)
    return numbers(dims=HDIM, middle=times(tiled.at(HDIM))), checks(faster(tiled.at(HDIM, 4096, 8192)), wrong > 0.5)


@finding("attention-tensor-cores", """The queries of a block take turns: with a block for each query and nothing else
changed the kernel is {one:.1} as fast. The conversions to half precision, which the documents blame, are not the cause:
without them, with tiles of floats, it is slower still. By the authors' log the kernel is {logged:.2} times as fast as
the two-pass kernel with float4. Ours on *their SMs* is {theirs:.2} as fast ([A-15](claims.html#A-15)), and we do not
know why.""")
def tensor_cores(e: Evidence) -> Says:
    lost = e.speedup(TENSOR_CORES, over=BASE, hdim=DIMS)
    one, floats = (e.speedup(f"{TENSOR_CORES}_{name}", over=TENSOR_CORES) for name in ("one_query", "float_tiles"))
    logged, theirs = said("X014") / said("X049"), e.speedup(TENSOR_CORES, over=TWO_PASS, study=SLICES, hdim=HDIM)
    return numbers(one=times(one.at(HDIM)), logged=logged, theirs=times(theirs)), checks(
        slower(lost), faster(one), slower(floats), slower(logged), theirs < 0.5 * logged
    )


@finding("attention-multi-query", """It reads {bytes} of the baseline's bytes and takes longer, since few threads have a
key and a block goes through its queries in turn. Each tile has a softmax of its own and their outputs are added up, so
the result is wrong too.""")
def multi_query(e: Evidence) -> Says:
    name, fits, read = "attention_multi_query_227k", (512, HDIM, 4096), "global.read.sectors"
    multi, wrong = e.speedup(name, over=BASE, hdim=fits), e.status(name, "wrong", hdim=fits)
    moved = (e.count(name, read, hdim=fits) / e.count(BASE, read, hdim=fits)).measured_in("%")
    return numbers(bytes=moved.at(HDIM)), checks(slower(multi), moved < 1, wrong > 0.5)


@finding("attention-async", """In slices of dims two buffers fit, whatever the head dim. That does not pay: our version
of it is {sliced:.2} as fast as the corrected online kernel.""")
def in_slices(e: Evidence) -> Says:
    sliced = e.speedup("attention_async_sliced", over=FIXED, hdim=(512, HDIM, 4096))
    return numbers(sliced=times(sliced.at(HDIM))), checks(slower(sliced))


@finding("attention-idle", """Most threads of a block own no key and wait until the scores are done. Where several
threads share the dims of a key, the two-pass kernel with float4 is {many:.1} as fast for the same bytes. At head dim
8192, where even fewer threads own a key, it is {few:.1} as fast.""")
def idle(e: Evidence) -> Says:
    busy = "attention_two_pass_all_warps"
    gain = e.speedup(busy, over=TWO_PASS, hdim=DIMS)
    moved = e.count(busy, "global.read.sectors", hdim=DIMS) / e.count(TWO_PASS, "global.read.sectors", hdim=DIMS)
    return numbers(many=times(gain.at(HDIM)), few=times(gain.at(8192))), checks(
        faster(gain), moved > 0.999, moved < 1.001
    )
