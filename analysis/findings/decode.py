"""Decode: RoPE on the read of a cache of raw keys."""

from kernels import Problem

from ..claims.rope import DECODING
from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..record import published
from ..studies import FLASHINFER, LONGEST, MAIN, SWEPT, unrotated
from . import Says, beside, checks, committed, faster, finding, not_slower, numbers, of_values, ties, times

STUDY, COLD = "split_keys", "device_cold"  # the other layers of a model have passed through L2 between two steps
RAW, UNROTATED, CUDNN = "rope_decode", "attention_decode", "torch_sdpa_half_cudnn"
GRAPH = {"float32": "torch_rope_one_graph", "float16": "torch_rope_half_one_graph"}
MANY, FEWER = 16384, 4096  # keys
SECOND = "nvidia-h200"  # a card that reads memory faster


def step(dtype: str, keys: int, rotates: bool = True, heads: int = 32, kv_heads: int = 8) -> Problem:
    raw = Problem("rope", 1, heads, kv_heads, 1, keys, 128, 128, dtype=dtype)
    return raw if rotates else unrotated(raw)


def rival(e: Evidence, dtype: str, name: str, rotates: bool, keys: tuple[int, ...] = SWEPT) -> Estimates:
    """How many times as fast as another our kernel is with raw keys, by the number of keys, read from memory."""
    found = {}
    for count in keys:
        theirs, mine = step(dtype, count, rotates), step(dtype, count)
        slow, fast = e.time(name, STUDY, COLD, problem=theirs)[theirs], e.time(RAW, STUDY, COLD, problem=mine)[mine]
        found[count] = slow / fast
    return Estimates(found, "×")


@finding("decode-hybrid", """In float32, take V8's attention at six shapes with 1 to 4 queries, and rotate all keys at
each step. There the hybrid is at most {most:.2} as fast as separate kernels. At their own shape it is {prompt:.2} as
fast. So the hybrid still helps in decode, but by no more than there: [the guess](claims.html#C-31) holds in part.""")
def hybrid(e: Evidence) -> Says:
    asked = [*DECODING, MAIN]
    gain, said = e.speedup("rope_hybrid_v8", over="rope_separate_v8", study="map", problem=asked), published.load()
    decode, prompt = gain.at(*DECODING), gain.at(MAIN)
    timed = said[(said["family"] == "rope") & (said["quantity"] == "time_ms")]
    return numbers(most=times(decode.fastest), prompt=times(prompt)), checks(
        faster(decode.fastest), of_values(ties(decode.slowest)), prompt > decode.fastest,
        len(decode) == 6, all(problem.seq_q <= 4 for problem in decode),
        bool((timed["seq_q"] == timed["seq_k"]).all()),
    )  # fmt: skip


@finding("decode-fused", """If the cache holds raw keys, the alternative is a kernel in front that rotates all of them
at each step. With V8's attention in float32 on both sides, fusing is up to {most:.1} as fast. Of {all} shapes with up
to 8 queries it wins at {won} and loses at {lost}.""")
def fused(e: Evidence) -> Says:
    few = [problem for problem in e.study("map").problems("rope") if problem.seq_q <= 8]
    gain = e.speedup("rope_v8", over="rope_hybrid_v8", study="map", problem=few).known
    if not gain:
        raise NotMeasured("the map is not measured: `make measure STUDY=map`")
    won, _, lost = beside(gain)
    counts = {"all": len(gain), "won": won, "lost": lost}
    shown = {name: Estimate.count(count, gain.values()) for name, count in counts.items()}
    return numbers(most=times(gain.fastest), **shown), checks(faster(gain.fastest), 10 * won > 8 * len(gain))


@finding("decode-free", """In float32 with {keys:,} keys rotating adds next to nothing. In float16, where there is half
as much to read, it adds {half:.1}. The most it adds is {most:.1}, in float16 with {at:,} keys.""")
def free(e: Evidence) -> Says:
    cost = rival(e, "float32", UNROTATED, False, (MANY, max(SWEPT)))
    half = rival(e, "float16", UNROTATED, False)
    few, many = (half.at(keys) for keys in (min(SWEPT), max(SWEPT)))
    added = ((1 / each - 1).measured_in("%") for each in (half.at(MANY), half.slowest))
    return numbers(keys=MANY, at=next(iter(half.slowest)), **dict(zip(("half", "most"), added))), checks(
        not_slower(cost), of_values(half.at(MANY) > 0.95), few < 1, of_values(few < many), half.slowest < half.at(MANY)
    )


@finding("decode-rivals", """It is {narrow:.1} as fast as PyTorch's step, compiled as one graph.""")
def rivals(e: Evidence) -> Says:
    narrow = rival(e, "float16", GRAPH["float16"], True)
    return numbers(narrow=times(narrow.at(MANY))), checks(faster(narrow))


@finding("decode-flashinfer", """FlashInfer, a library for serving models, can rotate raw keys as it reads them. Here
four query heads share a head of keys, and rotating costs it half of its speed: with {keys:,} keys in float16
FlashInfer is {cost:.2} as fast on raw keys as on rotated ones. Our step on as many raw keys is {raw:.1} as fast as
FlashInfer's.""")
def flashinfer(e: Evidence) -> Says:
    raw, plain = rival(e, "float16", FLASHINFER[0], True), rival(e, "float16", FLASHINFER[1], False)
    cost, alone = raw.at(MANY) / plain.at(MANY), step("float16", FEWER, kv_heads=32)
    slow, fast = (e.time(name, STUDY, COLD, problem=p)[p] for name, p in zip(FLASHINFER, (alone, unrotated(alone))))
    own = slow / fast  # where each head has keys of its own
    return numbers(raw=times(raw.at(MANY)), cost=times(1 / cost), keys=MANY), checks(
        faster(raw), of_values(cost.within(0.15, 2)), cost > 1.5 * own
    )


@finding("decode-rotated", """A library that reads rotated keys does less. Still, in float16 neither NVIDIA's cuDNN nor
FlashInfer is faster on rotated keys than our kernel is on raw ones, at the {count} numbers of keys that we timed,
{least} to {most:,}. The nearest is cuDNN with {most:,} keys, at {here:.2} our speed. On an H200 cuDNN is {there:.2} as
fast as our kernel at as many keys ([card by card](compare.html)).""")
def rotated(e: Evidence) -> Says:
    theirs = [rival(e, "float16", name, False) for name in (CUDNN, FLASHINFER[1])]
    here, there = (1 / rival(at, "float16", CUDNN, False).at(max(SWEPT)) for at in (e, committed(SECOND)))
    return numbers(count=len(SWEPT), least=min(SWEPT), most=max(SWEPT), here=times(here), there=times(there)), checks(
        *(of_values(not_slower(each)) for each in theirs), faster(there), of_values(1 / here <= theirs[0].slowest)
    )


@finding("decode-error", """At position {last:,} the relative error of our float32 kernel is still below a millionth.
PyTorch's error in float32 grows to {drift} there, with angles in float32 as most models compute them. FlashInfer's
error in float16 grows to {library}.""")
def error(e: Evidence) -> Says:
    far = step("float32", LONGEST, heads=4, kv_heads=1)
    half = step("float16", LONGEST, heads=4, kv_heads=1)
    ours, theirs = (e.relative_error(name, STUDY, problem=far) for name in (RAW, GRAPH["float32"]))
    narrow, library = (e.relative_error(name, STUDY, problem=half) for name in (RAW, FLASHINFER[0]))
    return numbers(last=LONGEST, drift=theirs.measured_in("%"), library=library.measured_in("%")), checks(
        ours < 1e-6, theirs > 1e-2, library > 1e-2, narrow < 1e-3
    )
