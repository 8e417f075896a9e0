"""Decode: RoPE on the read of a cache of raw keys."""

from kernels import Problem

from ..claims.rope import DECODING
from ..evidence import Estimates, Evidence
from ..figures.decode import GRAPH, RAW, STUDY, UNROTATED, step
from ..measure.studies import FLASHINFER, LONGEST, SWEPT
from . import Says, checks, faster, finding, not_slower, numbers, of_values
from .common import times

COLD, CUDNN = "device_cold", "torch_sdpa_half_cudnn"
MANY, FEWER = 16384, 4096  # keys


def rival(e: Evidence, dtype: str, name: str, rotates: bool, keys: tuple[int, ...] = SWEPT) -> Estimates:
    """How many times as fast as another our kernel is with raw keys, by the number of keys, read from memory."""
    found = {}
    for count in keys:
        theirs, mine = step(dtype, count, rotates), step(dtype, count)
        slow, fast = e.time(name, STUDY, COLD, problem=theirs)[theirs], e.time(RAW, STUDY, COLD, problem=mine)[mine]
        found[count] = slow / fast
    return Estimates(found, "×")


@finding(
    "decode-hybrid",
    """With V8's attention [the guess is wrong](claims.html#C-28): with few queries and many keys of 128 dims a hybrid
is at most {most:faster} faster than separate kernels.""",
)
def hybrid(e: Evidence) -> Says:
    shapes = [Problem("rope", 1, n, n, seq_q, seq_k, 128, rotated) for n, seq_q, seq_k, rotated in DECODING]
    gain = e.speedup("rope_hybrid_v8", over="rope_separate_v8", study="map", problem=shapes)
    return numbers(most=gain.fastest), checks(gain < 1.06, not_slower(gain))


@finding(
    "decode-free",
    """Rotating the keys adds nothing to these times in float32, and {half:slower} in float16, where there is less to
read.""",
)
def free(e: Evidence) -> Says:
    cost, half = (rival(e, dtype, UNROTATED, False, (MANY, 131_072)) for dtype in ("float32", "float16"))
    return numbers(half=half.at(MANY)), checks(not_slower(cost), of_values(half > 0.95))


@finding(
    "decode-rivals",
    """PyTorch, with RoPE and attention compiled as one graph, takes {graph:.1} as long in float32, and {narrow:.1} as
long in float16. With autotuning, timed at {few:,} keys only, it takes {tuned:.1} as long in float32. cuDNN in float16,
although its keys are rotated already, is never faster from memory.""",
)
def rivals(e: Evidence) -> Says:
    graph, narrow = (rival(e, dtype, GRAPH[dtype], True) for dtype in ("float32", "float16"))
    cudnn = rival(e, "float16", CUDNN, False)
    tuned = rival(e, "float32", f"{GRAPH['float32']}_autotuned", True, (FEWER,))
    shown = {"graph": times(graph.at(MANY)), "narrow": times(narrow.at(MANY)), "tuned": times(tuned)}
    return numbers(**shown, few=FEWER), checks(
        faster(graph), faster(narrow), faster(tuned), of_values(not_slower(cudnn))
    )


@finding(
    "decode-flashinfer",
    """FlashInfer also rotates raw keys as it reads them, but every query head rotates them again. In float16 it takes
{raw:.1} as long as ours, and rotating makes it {cost:.1} as slow as it is on rotated keys.""",
)
def flashinfer(e: Evidence) -> Says:
    raw = rival(e, "float16", FLASHINFER[0], True)
    plain = rival(e, "float16", FLASHINFER[1], False)
    cost = raw.at(MANY) / plain.at(MANY)
    return numbers(raw=times(raw.at(MANY)), cost=times(cost)), checks(faster(raw), faster(cost))


@finding(
    "decode-step",
    """A step over {keys:,} keys takes {single} in float32 and {half} in float16.""",
)
def one_step(e: Evidence) -> Says:
    wide, narrow = (step(dtype, MANY) for dtype in ("float32", "float16"))
    single, half = (e.time(RAW, STUDY, COLD, problem=problem)[problem] for problem in (wide, narrow))
    return numbers(keys=MANY, single=f"{single.value:.0f} µs", half=f"{half.value:.0f} µs"), checks(
        faster(Estimates({MANY: single / half}, "×"))
    )


@finding(
    "decode-short",
    """The fewer keys, the shorter the wait that hides the rotation: in float16 it costs up to {most:slower}.""",
)
def short(e: Evidence) -> Says:
    half = rival(e, "float16", UNROTATED, False)
    few, many = (half.at(keys) for keys in (min(SWEPT), max(SWEPT)))
    return numbers(most=half.slowest), checks(few < 1, of_values(few < many))


@finding(
    "decode-error",
    """At position {last:,} the relative error in float32 is still below a millionth. With angles that are a float32
product of position and frequency, as in most models, it is {drift}.""",
)
def error(e: Evidence) -> Says:
    far = step("float32", LONGEST[4], heads=4, kv_heads=1)
    ours, theirs = (e.relative_error(name, STUDY, problem=far) for name in (RAW, GRAPH["float32"]))
    return numbers(last=LONGEST[4], drift=theirs.measured_in("%")), checks(ours < 1e-6, theirs > 1e-2)
