"""Decode: RoPE on the read of a cache of raw keys."""

from __future__ import annotations

from ..evidence import Estimates, Evidence
from ..figures.decode import GRAPH, RAW, STUDY, UNROTATED, step
from ..measure.studies import LONGEST, SWEPT
from . import HOPPER, Says, checks, faster, finding, not_slower, numbers, of_values
from .common import times

COLD, CUDNN, MANY = "device_cold", "torch_sdpa_half_cudnn", 32768  # keys
FEWER, MIDDLE = 4096, 16384


def rival(e: Evidence, dtype: str, name: str, rotates: bool, keys: tuple[int, ...] = SWEPT) -> Estimates:
    """How many times as fast as another our kernel is with raw keys, by the number of keys, read from memory."""
    found = {}
    for count in keys:
        theirs, mine = step(dtype, count, rotates), step(dtype, count)
        slow, fast = e.time(name, STUDY, COLD, problem=theirs)[theirs], e.time(RAW, STUDY, COLD, problem=mine)[mine]
        found[count] = slow / fast
    return Estimates(found, "×")


@finding(
    "decode-free",
    """To rotate {keys:,} keys as they are read costs {cost:slower} in float32. In float16, where there is half as
much to read, it costs {half:slower}. With {few:,} keys that is {fewer:slower}.""",
    card=HOPPER,
)
def free(e: Evidence) -> Says:
    cost, half = (rival(e, dtype, UNROTATED, False, (MANY, 131_072)) for dtype in ("float32", "float16"))
    fewer = rival(e, "float16", UNROTATED, False, (FEWER,))
    return numbers(cost=cost.at(MANY), half=half.at(MANY), fewer=fewer, keys=MANY, few=FEWER), checks(
        not_slower(cost), of_values(half > 0.95), of_values(fewer < half.at(MANY)[MANY].value)
    )


@finding(
    "decode-rivals",
    """PyTorch, with RoPE and attention compiled as one graph, takes {graph:.1} as long there in float32.
Autotuned, at {few:,} keys, it takes {tuned:.1} as long. cuDNN in float16 gets rotated keys, and is faster
at no number of keys here.""",
    card=HOPPER,
)
def rivals(e: Evidence) -> Says:
    graph, cudnn = rival(e, "float32", GRAPH["float32"], True), rival(e, "float16", CUDNN, False)
    tuned = rival(e, "float32", f"{GRAPH['float32']}_autotuned", True, (FEWER,))
    return numbers(graph=times(graph.at(MANY)), tuned=times(tuned), few=FEWER), checks(
        faster(graph), faster(tuned), of_values(not_slower(cudnn))
    )


@finding(
    "decode-step",
    """A step over {keys:,} keys takes {single} in float32. In float16 it takes {half}.""",
    card=HOPPER,
)
def one_step(e: Evidence) -> Says:
    wide, narrow = (step(dtype, MIDDLE) for dtype in ("float32", "float16"))
    single, half = (e.time(RAW, STUDY, COLD, problem=problem)[problem] for problem in (wide, narrow))
    return numbers(keys=MIDDLE, single=f"{single.value:.0f} µs", half=f"{half.value:.0f} µs"), checks(
        faster(Estimates({MIDDLE: single / half}, "×"))
    )


@finding(
    "decode-short",
    """With few keys there is little to wait for. At {keys} the step is over in microseconds, and
in float16 rotating adds {half:slower}.""",
    card=HOPPER,
)
def short(e: Evidence) -> Says:
    half = rival(e, "float16", UNROTATED, False, (SWEPT[0],))
    return numbers(keys=SWEPT[0], half=half), checks(half < 1)


@finding(
    "decode-error",
    """At position {last:,} the result in float32 is still right to a millionth. With angles that are a float32
product of position and frequency, as in most models, it is off by {drift}.""",
    card=HOPPER,
)
def error(e: Evidence) -> Says:
    far = step("float32", LONGEST[4], heads=4, kv_heads=1)
    ours, theirs = (e.relative_error(name, STUDY, problem=far) for name in (RAW, GRAPH["float32"]))
    return numbers(last=LONGEST[4], drift=theirs.measured_in("%")), checks(ours < 1e-6, theirs > 1e-2)
