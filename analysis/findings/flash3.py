"""The op beside FlashAttention 3, in bfloat16, on the card that has measured both."""

from collections.abc import Callable
from typing import NamedTuple

from kernels import Problem

from ..evidence import Estimate, Estimates, Evidence
from ..models.rivals import served
from ..studies import FLASH3, unrotated
from .fuse import WARM

CARD = "nvidia-h200"  # the reference was not to be had when they were timed
FEW, LONG = "few", "long"


class Both(NamedTuple):
    """Two times of a problem: RoPE and attention, in one call or in two, or attention alone."""

    ours: Estimate
    theirs: Estimate

    @property
    def over(self) -> Estimate:
        """How many times as long theirs takes."""
        return self.theirs / self.ours


def timed(e: Evidence, study: str, problem: Problem, name: str) -> Estimate:
    """A time of a problem of a study. Raises: NotMeasured."""
    return e.time(name, study, WARM, problem=problem)[problem]


def with_rope(e: Evidence, study: str, problem: Problem) -> Both:
    """The op, and FlashAttention 3 with a compiled rotation in front. Raises: NotMeasured."""
    return Both(timed(e, study, problem, served(e, problem)), timed(e, study, problem, FLASH3[0]))


def alone(e: Evidence, study: str, problem: Problem) -> Both:
    """Attention on tensors that are rotated already. Raises: NotMeasured."""
    plain = unrotated(problem)
    return Both(timed(e, study, plain, served(e, plain)), timed(e, study, plain, FLASH3[1]))


def over(e: Evidence, study: str, of: Callable[[Evidence, str, Problem], Both]) -> Estimates:
    """How many times as fast the op is, by problem of a study. Raises: NotMeasured."""
    return Estimates({p: of(e, study, p).over for p in e.study(study).problems("rope")}, "×")
