"""How much of a ratio is the language: versions beside their controls in CUDA C++."""

from ..evidence import Estimates, Evidence
from . import Says, checks, faster, finding, not_faster, numbers, slower
from .common import times

FLOAT4, SEPARATE = "sinusoidal_separate_float4", "rope_separate"
COMPARED = (  # a version, what it is compared with, and how it does in Python and in C++
    ("rope_v7", SEPARATE, slower), ("rope_v1c", SEPARATE, slower), ("rope_v3", SEPARATE, slower),
    ("sinusoidal_v5", FLOAT4, not_faster), ("sinusoidal_hybrid_v1", FLOAT4, faster),
)  # fmt: skip


@finding("language-alike", """**Little: in C++ the same versions win and lose.** The sinusoidal hybrid, for example, is
{python:.1} as fast as separate kernels in Python and {cpp:.1} as fast in C++. The page of each version shows its
control, and says why it differs where it does.""")
def most_alike(e: Evidence) -> Says:
    def gain(one: str, other: str, made: str = "") -> Estimates:
        return e.speedup(made + one, over=made + other, study="control")

    same = [compare(gain(one, other, made)) for made in ("", "control_") for one, other, compare in COMPARED]
    python, cpp = (times(gain(*COMPARED[-1][:2], made).at(2048)) for made in ("", "control_"))
    return numbers(python=python, cpp=cpp), checks(*same)
