"""Attention before any embedding."""

from __future__ import annotations

from ..evidence import Evidence, NotMeasured
from ..models.waves import occupied
from ..record import published
from . import Says, checks, faster, finding, not_faster, not_slower, numbers, slower, ties
from .common import fastest_peer, versions

BASE = "attention_baseline"
ONLINE, FIXED = "attention_online", "attention_online_fixed"
TWO_PASS, ALL_WARPS = "attention_two_pass_float4", "attention_two_pass_all_warps"
MULTI_QUERY = "attention_multi_query_227k"
TENSOR_CORES = "attention_tensor_core_v2"
TILED = "attention_register_tiling"
DIMS = (512, 2048, 4096, 8192)  # of the documents
READ = "global.read.sectors"


def right(e: Evidence) -> list[str]:
    """The log's versions whose results are right at every shape that they take."""
    log, found = e.study("log"), {}
    for name in versions(e, "attention"):
        found[name] = [log.check(name, problem) for problem in log.shapes(name).values()]
    return [name for name, given in found.items() if given and all(check and check.status == "ok" for check in given)]


@finding("attention-story", """On an {card} online softmax with its reductions corrected is {fixed} as fast as the log's
baseline, and no other kernel of the log with a right result beats it at the log's shapes on the GPU alone. Most of that
comes from float4 loads: a kernel that goes over the keys twice, as the baseline does, but loads float4 is {two_pass} as
fast as the baseline. The kernel that the documents recommend returns NaN for {lost:.1} of its outputs.""")
def story(e: Evidence) -> Says:
    fixed, two_pass = (e.speedup(name, over=BASE, hdim=DIMS) for name in (FIXED, TWO_PASS))
    others = [e.speedup(FIXED, over=name, hdim=DIMS) for name in right(e) if name != FIXED]
    loads = e.share_closed(BASE, TWO_PASS, FIXED, study="log", hdim=DIMS)
    lost = e.nan_share(ONLINE, hdim=DIMS)
    return numbers(fixed=fixed, two_pass=two_pass, lost=lost), checks(
        faster(fixed), faster(two_pass), loads > 0.5, *map(not_slower, others), lost > 0.5
    )


@finding("attention-idle-threads", """**The same bytes, all threads at work.** On an {card} the variant is {many} as
fast at head dims 512 and 2048, where a quarter of the threads own a key, and {few} at 4096 and 8192, where an eighth
and a sixteenth do. So bandwidth alone is not the limit: too few threads work.""")
def idle_threads(e: Evidence) -> Says:
    idle = e.speedup(ALL_WARPS, over=TWO_PASS, hdim=DIMS)
    bytes_read = e.count(ALL_WARPS, READ, hdim=DIMS) / e.count(TWO_PASS, READ, hdim=DIMS)
    return numbers(many=idle.at(512, 2048), few=idle.at(4096, 8192)), checks(
        faster(idle), bytes_read > 0.999, bytes_read < 1.001
    )


@finding("attention-shuffles-why", """**Shuffles gain little: a block reduces twice, and multiplies thousands of
times.** With shuffles and unrolled loops the baseline is {both} as fast as the kernel with atomics on an {card}.
Shuffles alone, with float4 loads in both kernels, are worth {small} at head dim 512 and {large} at 4096 and 8192; claim
A-03, below, is judged by this pair.""")
def shuffles_why(e: Evidence) -> Says:
    both = e.speedup(BASE, over="attention_atomics", hdim=DIMS)
    alone = e.speedup(TWO_PASS, over="attention_atomics_float4", hdim=DIMS)
    return numbers(both=both, small=alone.at(512), large=alone.at(4096, 8192)), checks(
        not_slower(both), both < 1.25, faster(alone.at(512)), alone < 1.25, ties(alone.at(4096, 8192))
    )


@finding("attention-float4-why", """**Why it wins: of each sector of 32 bytes, a load uses four floats and not one.** At
the log's shapes two passes with float4 loads are {two_pass} as fast as the baseline on an {card}. The reverse test
agrees: scalar loads alone slow the online kernel (further down) to {scalar} its speed.""")
def float4_why(e: Evidence) -> Says:
    two_pass = e.speedup(TWO_PASS, over=BASE, hdim=DIMS)
    scalar = e.speedup("attention_online_scalar", over=FIXED, hdim=DIMS)
    return numbers(two_pass=two_pass, scalar=scalar), checks(faster(two_pass), slower(scalar))


@finding("attention-online-why", """**Why it wins: its loads, not online softmax.** With corrected reductions it is
{online} as fast as the baseline at the log's shapes (on an {card}); with scalar loads it is no faster than the
baseline, {scalar}. Float4 loads without online softmax close {loads} of the gap between the baseline and the corrected
online kernel.""")
def online_why(e: Evidence) -> Says:
    online, scalar = (e.speedup(name, over=BASE, hdim=DIMS) for name in (FIXED, "attention_online_scalar"))
    loads = e.share_closed(BASE, TWO_PASS, FIXED, study="log", hdim=DIMS)
    return numbers(online=online, scalar=scalar, loads=loads), checks(faster(online), not_faster(scalar), loads > 0.5)


@finding("attention-online-load", """**Whether it beats two passes with float4 depends on how many blocks each SM has.**
At head dims 512 and 2048 of the log's shapes the corrected kernel is {few} as fast as two passes on an {card}.""")
def online_load(e: Evidence) -> Says:
    few, loaded = (e.speedup(FIXED, over=TWO_PASS, study=study, hdim=(512, 2048)) for study in ("log", "matched"))
    return numbers(few=few), checks(faster(few), slower(loaded))


@finding("attention-online-waves", """With as many blocks for each SM as on the authors' card it runs at {loaded} the
speed of two passes: an SM holds fewer of the online kernel's blocks at a time, and the last ones need a second wave.
With 128 heads there are many waves, and it is at {full}.""")
def online_waves(e: Evidence) -> Says:
    loaded, full = (e.speedup(FIXED, over=TWO_PASS, study=study, hdim=(512, 2048)) for study in ("matched", "filled"))
    own, other = (occupied(e, name, "matched", (512, 2048)) for name in (FIXED, TWO_PASS))
    many = occupied(e, FIXED, "filled", (512, 2048))
    return numbers(loaded=loaded, full=full), checks(
        slower(loaded), own > 1, other < 1.001, many > 4, not_faster(full), full > loaded
    )


@finding("attention-online-wrong", """{lost:.1} of the outputs of `attention_online` are NaN on an {card}, and none with
the reductions corrected. The right reductions cost little: a call takes at most {cost:slower} longer than with the
broken ones, and the kernel is {fixed} as fast as the baseline.""")
def online_wrong(e: Evidence) -> Says:
    lost, none = (e.nan_share(name, hdim=DIMS) for name in (ONLINE, FIXED))
    cost, fixed = e.speedup(FIXED, over=ONLINE, hdim=DIMS), e.speedup(FIXED, over=BASE, hdim=DIMS)
    return numbers(lost=lost, cost=cost.slowest, fixed=fixed), checks(
        lost > 0.7, none < 1e-9, cost > 1 / 1.1, faster(fixed)
    )


@finding("attention-multi-query-why", """**Where it fits it loses.** With 227 KB it runs at {small} the baseline's speed
at head dim 512 and at {large} at 2048 and 4096 on an {card}. It reads fewer bytes, and takes longer: 14 of 256 threads
have a key at 2048, 7 at 4096, and a block goes through its four queries in turn.""")
def multi_query_why(e: Evidence) -> Says:
    fits = (512, 2048, 4096)
    multi = e.speedup(MULTI_QUERY, over=BASE, hdim=fits)
    bytes_read = e.count(MULTI_QUERY, READ, hdim=fits) / e.count(BASE, READ, hdim=fits)
    return numbers(small=multi.at(512), large=multi.at(2048, 4096)), checks(slower(multi), bytes_read < 1)


@finding("attention-tensor-cores-why", """**Why the second loses: sixteen queries in turn.** At the log's shapes it runs
at {v2} the baseline's speed on an {card}; with one query a block and nothing else changed it is {one} as fast. The
conversions to half precision, which the documents blame, are not the cause: with tiles of floats and no conversion the
kernel is slower ({floats}).""")
def tensor_cores_why(e: Evidence) -> Says:
    v2 = e.speedup(TENSOR_CORES, over=BASE, hdim=DIMS)
    one, floats = (e.speedup(f"{TENSOR_CORES}_{name}", over=TENSOR_CORES) for name in ("one_query", "float_tiles"))
    return numbers(v2=v2, one=one, floats=floats), checks(slower(v2), faster(one), slower(floats))


@finding("attention-tensor-cores-used", """**What tensor cores would bring.** On an {card}, with both products on tensor
cores at the precision of floats, two passes are {small} as fast as without them at head dims 512 to 4096, and {large}
at 8192. A block has one query and uses each element of K and V once, so tensor cores find nothing to share.""")
def tensor_cores_used(e: Evidence) -> Says:
    mma = e.speedup("attention_two_pass_mma", over=TWO_PASS, hdim=DIMS)
    return numbers(small=mma.at(512, 2048, 4096), large=mma.at(8192)), checks(
        slower(mma.at(512, 2048, 4096)), faster(mma.at(8192))
    )


@finding("attention-async-why", """**It can fit, and does not pay.** In slices of dims two buffers take 20 KB, whatever
the head dim. Our version of it, built for head dims up to 4096, runs at {sliced} the speed of the corrected online
kernel on an {card}.""")
def async_why(e: Evidence) -> Says:
    sliced = e.speedup("attention_async_sliced", over=FIXED, hdim=(512, 2048, 4096))
    return numbers(sliced=sliced), checks(slower(sliced))


@finding("attention-register-tiling-why", """**At large head dims it leaves out work.** Over the online kernel it is
{large} as fast at head dims 4096 and 8192 on an {card}, where it computes a half and a quarter of the output. Where it
computes all of it, it is {middle} as fast at 2048 and no faster at 512, {small}.""")
def register_tiling_why(e: Evidence) -> Says:
    tiled = e.speedup(TILED, over=ONLINE, hdim=DIMS)
    return numbers(large=tiled.at(4096, 8192), middle=tiled.at(2048), small=tiled.at(512)), checks(
        faster(tiled.at(2048, 4096, 8192)), not_faster(tiled.at(512))
    )


@finding("attention-rates", """The printed rates do not follow from the printed times and shapes: at head dim 512 the
write-up gives {printed:.2f} TFLOP/s, and its own time gives {derived:.2f}.""")
def rates(e: Evidence) -> Says:
    problem = e.study("log").shapes(ONLINE)[512]
    rate, took = published.published(ONLINE, problem, "tflops"), published.published(ONLINE, problem)
    if not (rate and took):
        raise NotMeasured("no rate is printed")
    derived = problem.flops / took.value / 1e9
    return numbers(printed=rate.value, derived=derived), checks(abs(rate.value / derived - 1) > 0.05)


@finding("attention-left", """On an {card} keeping the query row in shared memory, where all threads of a block read it,
makes the corrected online kernel {query} as fast.""")
def left(e: Evidence) -> Says:
    query = e.speedup("attention_online_shared_query", over=FIXED, hdim=DIMS)
    return numbers(query=query), checks(faster(query))


@finding("attention-pytorch", """At head dim 512 the corrected online kernel runs at {small} the speed of the fastest of
PyTorch's ways on an {card}, at 8192 at {large}.""")
def pytorch(e: Evidence) -> Says:
    small, large = (fastest_peer(e, FIXED, hdim).over for hdim in (512, 8192))
    return numbers(small=small, large=large), checks(slower(small), slower(large))
