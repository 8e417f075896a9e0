"""Which versions meet which problems in a study, and which timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kernels import VERSIONS, Problem, Version
from kernels.check import OWN, problems, supports

TIMERS = ("device_warm", "device_cold", "launched")


@dataclass(frozen=True)
class Study:
    name: str
    about: str
    problems: tuple[Problem, ...]
    timers: tuple[str, ...]

    versions: Callable[[], Iterable[Version]] = lambda: (
        v for v in VERSIONS.values() if not v.ablation and not v.beyond
    )

    def pairs(self) -> Iterator[tuple[Version, Problem]]:
        """Every version of the study with every problem of its family, in the order of the log."""
        for version in self.versions():
            for problem in self.problems:
                if problem.family == version.family:
                    yield version, problem


def _ablations() -> list[Version]:
    """Every ablation, and what it is compared with: its parent and that one's baseline, and a few neighbours."""
    chosen = {name for v in VERSIONS.values() if v.ablation for name in (v.id, v.parent, v.baseline)}
    chosen |= {"rope_v4", "rope_v6a"}
    return [v for v in VERSIONS.values() if v.id in chosen]


LOG_SHAPES = {512: (1, 4, 64), 2048: (1, 4, 64), 4096: (1, 2, 32), 8192: (1, 1, 16)}  # head dim: batch, heads, seq


def _shape(family: str, hdim: int, batch: int, heads: int, seq: int) -> Iterator[Problem]:
    """A problem of a family; with RoPE also the one that rotates every dim, as the log's V1 to V6a do."""
    for rotary_dim in (min(128, hdim // 2), hdim) if family == "rope" else (0,):
        yield Problem(family, batch, heads, seq_q=seq, hdim=hdim, rotary_dim=rotary_dim)


def _log() -> Iterator[Problem]:
    for family in ("attention", "sinusoidal", "rope"):
        for hdim, shape in {**({128: (1, 4, 64)} if family == "rope" else {}), **LOG_SHAPES}.items():
            yield from _shape(family, hdim, *shape)
    yield Problem("attention", 1, 1, seq_q=8, hdim=16384)


def _at(hdims: Sequence[int], batch: int, heads: int, seq: int) -> Iterator[Problem]:
    for family in ("attention", "sinusoidal", "rope"):
        for hdim in hdims:
            yield from _shape(family, hdim, batch, heads, seq)


def _fp16() -> Iterator[Problem]:
    for causal in (False, True):
        yield Problem("fp16", 1, 8, seq_q=512, hdim=64, dtype="float16", causal=causal)
        for seq in (512, 1024, 2048, 4096, 8192):
            yield Problem("fp16", 2, 16, seq_q=seq, hdim=128, dtype="float16", causal=causal)


def _ablation() -> Iterator[Problem]:
    yield from (problem for problem in _log() if problem.hdim <= max(LOG_SHAPES))
    for causal in (False, True):
        yield Problem("fp16", 1, 8, seq_q=512, hdim=64, dtype="float16", causal=causal)


def _host() -> Iterator[Problem]:
    yield from (problem for problem in _log() if problem.family == "rope")


def _host_versions() -> list[Version]:
    return [VERSIONS[name] for name in ("rope_separate", "rope_separate_one_sync", "rope_v7")]


WARM = ("device_warm",)
STUDIES = {
    study.name: study
    for study in (
        Study("log", "The shapes of the documents, all timers", tuple(_log()), TIMERS),
        Study("controlled", "Only the head dim varies", tuple(_at([2**n for n in range(7, 15)], 1, 4, 64)), WARM),
        Study("filled", "Enough heads to fill the card", tuple(_at([128, 512, 2048], 8, 16, 64)), WARM),
        Study("fp16", "Half precision, causal and not", tuple(_fp16()), WARM),
        Study("host", "What a synchronisation of the host costs", tuple(_host()), ("launched",), _host_versions),
        Study("ablation", "One thing changed", tuple(_ablation()), WARM, _ablations),
    )
}


PUBLISHED = "log,fp16,ablation"  # the studies that hold every shape of the documents


def study(name: str) -> Study:
    """The study called `name`. Raises: ValueError with the known names."""
    if name not in STUDIES:
        raise ValueError(f"no study is called {name!r}; known: {', '.join(STUDIES)}")
    return STUDIES[name]


def studies(names: str) -> list[Study]:
    """Studies by their names, separated by commas; "all" for all. Raises: ValueError with the known names."""
    return [study(name) for name in (STUDIES if names == "all" else names.split(","))]


def own_pairs(names: str) -> list[tuple[str, Problem]]:
    """The log's versions with the problems of some studies, each pair once; with a small one where they take none.

    Raises: ValueError with the known names.
    """
    chosen = [pair for each in studies(names) for pair in each.pairs() if not pair[0].is_peer]
    fitting = {version.id for version, problem in chosen if supports(version, problem)}
    unfit = (version for version in OWN if version.id not in fitting and not version.ablation)
    small = [(version, max(problems(version), key=lambda p: p.hdim)) for version in unfit]
    return list(dict.fromkeys((version.id, problem) for version, problem in [*chosen, *small]))
