"""The results of an emulated launch: findings and counts."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np


class UnknownInstruction(NotImplementedError):
    """The PTX has an opcode or an operand that the emulator does not know; the message names it."""


@dataclass(frozen=True)
class Finding:
    """One defect that an execution showed.

    `kind` is race, uninitialised, out_of_bounds, misaligned, endless_loop, divergent_barrier,
    divergent_warp (lanes named by a warp instruction never reached it), unfenced (no proxy fence between a
    write and a product of a warpgroup that reads it) or deadlock (threads wait for a phase of an mbarrier that
    no thread completes; `place` says what it lacks), registers (setmaxnreg needs more than the block has, and a GPU
    hangs). Else `place` is a buffer or an array
    of the shared layout, `block` and `thread` are linear indices of the first thread seen, `other` is
    the second instruction of a race, `count` how many accesses or threads were involved.
    """

    kind: str
    kernel: str
    space: str
    place: str
    block: int
    thread: int
    instruction: str
    other: str = ""
    count: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        return (self.kind, self.kernel, self.place, self.instruction, self.other)

    def __str__(self) -> str:
        against = f" against '{self.other}'" if self.other else ""
        where = f"{self.space} memory '{self.place}'" if self.space else self.place
        return (
            f"{self.kind} in {self.kernel}: block {self.block}, thread {self.thread}, "
            f"'{self.instruction}'{against}, {where} ({self.count} times)"
        )


def merge_findings(findings: Iterable[Finding]) -> list[Finding]:
    """One finding per (kind, kernel, place, instruction, other): the first one, with the counts added up."""
    merged: dict[tuple, Finding] = {}
    for finding in findings:
        first = merged.get(finding.key)
        merged[finding.key] = replace(first, count=first.count + finding.count) if first else finding
    return list(merged.values())


@dataclass
class LaunchReport:
    """Counts and findings of one launch; the package's docstring lists the counts."""

    kernel: str
    counts: dict[str, int]
    findings: list[Finding]


@dataclass
class PlanReport:
    """`out` and all buffers after the last launch, one LaunchReport per launch, and the findings of all launches."""

    out: np.ndarray | None
    buffers: dict[str, np.ndarray]
    launches: list[LaunchReport]
    findings: list[Finding] = field(default_factory=list)
