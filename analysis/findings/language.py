"""How much of a ratio is the language: versions beside their controls in CUDA C++."""

from kernels import VERSIONS, Problem
from kernels.checking.check import supports

from ..evidence import Estimates, Evidence, NotMeasured
from ..measure.studies import study
from ..record.published import main_problems
from . import Says, checks, faster, finding, not_faster, numbers, slower

ALIKE = 1.1  # a version and its control whose times are nearer than this owe nothing to the language
FLOAT4, SEPARATE = "sinusoidal_separate_float4", "rope_separate"
COMPARED = (  # a version, what it is compared with, and how it does in Python and in C++
    ("rope_v7", SEPARATE, slower), ("rope_v1c", SEPARATE, slower), ("rope_v3", SEPARATE, slower),
    ("sinusoidal_v5", FLOAT4, not_faster), ("sinusoidal_hybrid_v1", FLOAT4, faster),
)  # fmt: skip


def controls() -> dict[str, str]:
    """The control of each version that has one, in log order."""
    found = {version.control_of: version.id for version in VERSIONS.values() if version.control_of}
    return {name: found[name] for name in VERSIONS if name in found}


def shapes(name: str) -> dict[int, Problem]:
    """The published problem a head dim that a version takes: with RoPE the published rotary dim where it takes that."""
    version = VERSIONS[name]
    problems = (problem for problem in study("control").problems if problem.family == version.family)
    return {problem.hdim: problem for problem in main_problems(p for p in problems if supports(version, p))}


def over_control(e: Evidence, name: str) -> Estimates:
    """How many times as fast as its control a version is, by problem, where both were timed."""
    problems = list(shapes(name).values())
    return e.speedup(name, over=controls()[name], study="control", problem=problems).known


def alike(gain: Estimates) -> list[bool]:
    return [1 / ALIKE < each < ALIKE for each in gain.values_known.values()]


@finding("language-alike", """**Little: in C++ the same versions win and lose.** {alike} of {timed} times on the device
are within 10 % of the control's. The page of each version shows its own, and says why it differs by more.""")
def most_alike(e: Evidence) -> Says:
    found = [each for name in controls() for each in alike(over_control(e, name))]
    if not found:
        raise NotMeasured("no control was timed")
    same = [
        compare(e.speedup(made + one, over=made + other, study="control"))
        for made in ("", "control_")
        for one, other, compare in COMPARED
    ]
    return numbers(alike=sum(found), timed=len(found)), checks(sum(found) >= 0.9 * len(found), *same)
