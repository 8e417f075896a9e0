"""Decode: RoPE on the read of a cache of raw keys."""

from kernels import Problem

from ..claims.rope import DECODING
from ..evidence import Estimates, Evidence
from ..record import published
from ..studies import FLASHINFER, LONGEST, SWEPT, unrotated
from . import Says, checks, committed, faster, finding, not_slower, numbers, of_values, ties, times

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


@finding("decode-hybrid", """Take their two ways literally, with V8's attention: a kernel in front rotates all keys at
each step, and the hybrid saves the launch that rotates the query. With {heads} and {keys:,} keys it is {most:.2} as
fast as separate kernels. With many heads and keys the two are level. So here the guess is [right in
direction](claims.html#C-31).""")
def hybrid(e: Evidence) -> Says:
    gain, said = e.speedup("rope_hybrid_v8", over="rope_separate_v8", study="map", problem=DECODING), published.load()
    timed = said[(said["family"] == "rope") & (said["quantity"] == "time_ms")]
    fastest = next(iter(gain.fastest))  # of several that are alike, the first
    given = {"heads": "one head" if fastest.heads == 1 else f"{fastest.heads} heads", "keys": fastest.seq_k}
    return numbers(most=times(gain.fastest), **given), checks(
        faster(gain.fastest), of_values(ties(gain.slowest)), bool((timed["seq_q"] == timed["seq_k"]).all())
    )


@finding("decode-free", """With {keys:,} keys in float32 the rotation adds next to nothing. In float16, where there is
half as much to read, it adds {half:slower}. With fewer keys it adds up to {most:slower} there.""")
def free(e: Evidence) -> Says:
    cost = rival(e, "float32", UNROTATED, False, (MANY, max(SWEPT)))
    half = rival(e, "float16", UNROTATED, False)
    few, many = (half.at(keys) for keys in (min(SWEPT), max(SWEPT)))
    return numbers(keys=MANY, half=half.at(MANY), most=half.slowest), checks(
        not_slower(cost), of_values(half.at(MANY) > 0.95), few < 1, of_values(few < many), half.slowest < half.at(MANY)
    )


@finding("decode-rivals", """It is {narrow:.1} as fast as PyTorch's, compiled as one graph.""")
def rivals(e: Evidence) -> Says:
    narrow = rival(e, "float16", GRAPH["float16"], True)
    return numbers(narrow=times(narrow.at(MANY))), checks(faster(narrow))


@finding("decode-flashinfer", """FlashInfer, a library for serving models, can rotate raw keys as it reads them. Where
four query heads share keys, as here, that costs it half of its speed: on raw keys it is {cost:.2} as fast as on rotated
ones. With {keys:,} raw keys in float16 our step is {raw:.1} as fast as FlashInfer's.""")
def flashinfer(e: Evidence) -> Says:
    raw, plain = rival(e, "float16", FLASHINFER[0], True), rival(e, "float16", FLASHINFER[1], False)
    cost, alone = raw.at(MANY) / plain.at(MANY), step("float16", FEWER, kv_heads=32)
    slow, fast = (e.time(name, STUDY, COLD, problem=p)[p] for name, p in zip(FLASHINFER, (alone, unrotated(alone))))
    own = slow / fast  # where each head has keys of its own
    return numbers(raw=times(raw.at(MANY)), cost=times(1 / cost), keys=MANY), checks(
        faster(raw), of_values(cost.within(0.15, 2)), cost > 1.5 * own
    )


@finding("decode-rotated", """Libraries that read keys already rotated do less. Still, in float16 neither NVIDIA's cuDNN
nor FlashInfer is faster on rotated keys than ours on raw ones, at any number of keys from {least} to {most:,}. On an
H200, which reads memory faster, cuDNN is: {there:.2} as fast at the most keys.""")
def rotated(e: Evidence) -> Says:
    theirs = [rival(e, "float16", name, False) for name in (CUDNN, FLASHINFER[1])]
    there = 1 / rival(committed(SECOND), "float16", CUDNN, False).at(max(SWEPT))
    return numbers(least=min(SWEPT), most=max(SWEPT), there=times(there)), checks(
        *(of_values(not_slower(each)) for each in theirs), faster(there)
    )


@finding("decode-error", """At position {last:,} the relative error of our float32 kernel is still below a millionth.
With angles in float32, as most models compute them, PyTorch's grows to {drift}. FlashInfer's, in float16, grows to
{library}.""")
def error(e: Evidence) -> Says:
    far = step("float32", LONGEST, heads=4, kv_heads=1)
    half = step("float16", LONGEST, heads=4, kv_heads=1)
    ours, theirs = (e.relative_error(name, STUDY, problem=far) for name in (RAW, GRAPH["float32"]))
    narrow, library = (e.relative_error(name, STUDY, problem=half) for name in (RAW, FLASHINFER[0]))
    return numbers(last=LONGEST, drift=theirs.measured_in("%"), library=library.measured_in("%")), checks(
        ours < 1e-6, theirs > 1e-2, library > 1e-2, narrow < 1e-3
    )
