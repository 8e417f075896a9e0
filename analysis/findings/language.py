"""How much of a ratio is the language: versions beside their controls in CUDA C++."""

from __future__ import annotations

from kernels import VERSIONS, Problem
from kernels.checking.check import supports

from ..evidence import Estimates, Evidence, NotMeasured
from ..measure.studies import study
from ..record.published import main_problems
from . import Says, checks, faster, finding, not_faster, numbers, slower

ALIKE = 1.1  # a version and its control whose times are nearer than this owe nothing to the language
FLOAT4, SEPARATE = "sinusoidal_separate_float4", "rope_separate"
COMPARED = {
    "v7": ("rope_v7", SEPARATE), "v1": ("rope_v1c", SEPARATE), "v3": ("rope_v3", SEPARATE),
    "v5": ("sinusoidal_v5", FLOAT4), "hybrid": ("sinusoidal_hybrid_v1", FLOAT4),
}  # fmt: skip


def controls() -> dict[str, str]:
    """The control of each version that has one, in log order."""
    found = {version.control_of: version.id for version in VERSIONS.values() if version.control_of}
    return {name: found[name] for name in VERSIONS if name in found}


def shapes(name: str) -> dict[int, Problem]:
    """The published problem a head dim that a version takes: with RoPE the published rotary dim where it takes that."""
    version = VERSIONS[name]
    problems = (problem for problem in study("control").problems if problem.family == version.family)
    return {problem.hdim: problem for problem in main_problems(p for p in problems if supports(version, p))}


def over_control(e: Evidence, name: str, timer: str = "") -> Estimates:
    """How many times as fast as its control a version is, by problem, where both were timed."""
    problems = list(shapes(name).values())
    return e.speedup(name, over=controls()[name], study="control", timer=timer, problem=problems).known


def alike(gain: Estimates) -> list[bool]:
    return [1 / ALIKE < each < ALIKE for each in gain.values_known.values()]


@finding("causes-alike", """On an {card} {alike} of {timed} times on the device are within 10 % of the control's. The
page of each version shows its own, and says why it differs by more.""")
def most_alike(e: Evidence) -> Says:
    found = [each for name in controls() for each in alike(over_control(e, name))]
    if not found:
        raise NotMeasured("no control was timed")
    return numbers(alike=sum(found), timed=len(found)), checks(sum(found) >= 0.9 * len(found))


def in_both(e: Evidence) -> tuple[dict[str, Estimates], dict[str, Estimates]]:
    """The compared speedups, and the same of the controls."""
    python, cpp = (
        {name: e.speedup(made + one, over=made + other, study="control") for name, (one, other) in COMPARED.items()}
        for made in ("", "control_")
    )
    return python, cpp


@finding("causes-language", """**Little: in C++ the same versions win and lose.** On an {card} V7 runs at {v7} the speed
of separate kernels, and at {v7_cpp} where both are in C++. For V1 it is {v1} and {v1_cpp}, for sinusoidal V5 {v5} and
{v5_cpp}.""")
def language(e: Evidence) -> Says:
    python, cpp = in_both(e)
    lose = [slower(made[name]) for made in (python, cpp) for name in ("v7", "v1")]
    win = [faster(made["hybrid"]) for made in (python, cpp)]
    return numbers(**python, **{f"{name}_cpp": found for name, found in cpp.items()}), checks(
        *lose, *win, *(not_faster(made["v5"]) for made in (python, cpp))
    )


@finding("causes-language-rest", """The sinusoidal hybrid is {hybrid} as fast as separate kernels, and {hybrid_cpp} in
C++. V3 is at {v3} and {v3_cpp}: our V3 is {port} as fast as its control.""")
def language_rest(e: Evidence) -> Says:
    python, cpp = in_both(e)
    port = e.speedup("rope_v3", over="control_rope_v3", study="control")
    return numbers(**python, **{f"{name}_cpp": found for name, found in cpp.items()}, port=port), checks(
        *(faster(made["hybrid"]) for made in (python, cpp)),
        *(slower(made["v3"]) for made in (python, cpp)),
        faster(port),
    )
