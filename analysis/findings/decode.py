"""Decode: RoPE on the read of a cache of raw keys."""

from __future__ import annotations

from ..evidence import Estimates, Evidence
from ..figures.decode import GRAPH, RAW, STUDY, UNROTATED, step
from ..measure.studies import LONGEST, SWEPT
from . import Says, checks, faster, finding, not_slower, numbers, of_values
from .common import times

COLD, CUDNN, MANY = "device_cold", "torch_sdpa_half_cudnn", 32768  # keys


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
    """To rotate {keys:,} keys as they are read costs {cost:slower} in float32. In float16, where there is
half as much to read, it costs {half:slower}. So it is free, or as good as.""",
    card="nvidia-h100-80gb-hbm3",
)
def free(e: Evidence) -> Says:
    cost, half = (rival(e, dtype, UNROTATED, False, (MANY, 131_072)) for dtype in ("float32", "float16"))
    return numbers(cost=cost.at(MANY), half=half.at(MANY), keys=MANY), checks(not_slower(cost), of_values(half > 0.95))


@finding(
    "decode-rivals",
    """PyTorch, with RoPE and attention compiled as one graph, takes {graph:.1} as long there.
cuDNN in float16 is no faster at any number of keys of the figure, though its keys come rotated.
""",
    card="nvidia-h100-80gb-hbm3",
)
def rivals(e: Evidence) -> Says:
    graph, cudnn = rival(e, "float32", GRAPH["float32"], True), rival(e, "float16", CUDNN, False)
    return numbers(graph=times(graph.at(MANY))), checks(faster(graph), of_values(not_slower(cudnn)))


@finding(
    "decode-short",
    """With few keys there is little to wait for. At {keys} the step is over in microseconds, and
in float16 rotating adds {half:slower}.""",
    card="nvidia-h100-80gb-hbm3",
)
def short(e: Evidence) -> Says:
    half = rival(e, "float16", UNROTATED, False, (SWEPT[0],))
    return numbers(keys=SWEPT[0], half=half), checks(half < 1)


@finding(
    "decode-error",
    """At position {last:,} the result in float32 is still right to a millionth. Where angles are
float32 products, as models make them, it is off by {drift}.""",
    card="nvidia-h100-80gb-hbm3",
)
def error(e: Evidence) -> Says:
    far = step("float32", LONGEST[4], heads=4, kv_heads=1)
    ours, theirs = (e.relative_error(name, STUDY, problem=far) for name in (RAW, GRAPH["float32"]))
    return numbers(last=LONGEST[4], drift=theirs.measured_in("%")), checks(ours < 1e-6, theirs > 1e-2)
