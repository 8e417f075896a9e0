"""Which versions meet which problems in a study, and which timers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels import VERSIONS, Problem, Version

TIMERS = ("device_warm", "device_cold", "launched")


@dataclass(frozen=True)
class Study:
    name: str
    about: str
    problems: tuple[Problem, ...]
    timers: tuple[str, ...]

    def pairs(self) -> Iterator[tuple[Version, Problem]]:
        """Every version with every problem of its family, in the order of the log."""
        for version in VERSIONS.values():
            for problem in self.problems:
                if problem.family == version.family:
                    yield version, problem


def _log_problems() -> Iterator[Problem]:
    """The published shapes. RoPE also with every dim rotated, as the log's V1 to V6 do."""
    shapes = {512: (1, 4, 64), 2048: (1, 4, 64), 4096: (1, 2, 32), 8192: (1, 1, 16)}
    for family in ("attention", "sinusoidal"):
        for hdim, (batch, heads, seq) in shapes.items():
            yield Problem(family, batch, heads, seq_q=seq, hdim=hdim)
    yield Problem("attention", 1, 1, seq_q=8, hdim=16384)
    for hdim, (batch, heads, seq) in {128: (1, 4, 64), **shapes}.items():
        for rotary_dim in (64 if hdim == 128 else 128, hdim):
            yield Problem("rope", batch, heads, seq_q=seq, hdim=hdim, rotary_dim=rotary_dim)


STUDIES = {
    study.name: study
    for study in (Study("log", "The shapes of the documents, all timers", tuple(_log_problems()), TIMERS),)
}


def study(name: str) -> Study:
    """The study called `name`. Raises: ValueError with the known names."""
    if name not in STUDIES:
        raise ValueError(f"no study is called {name!r}; known: {', '.join(STUDIES)}")
    return STUDIES[name]
