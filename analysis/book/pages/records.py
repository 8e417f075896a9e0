"""What a version's page is made from: its plans, what was measured of it on one GPU, and what was counted."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from kernels import VERSIONS, Plan, Problem, Unsupported, Version

from ...measure.studies import STUDIES
from ...models.moves import example
from ...records.current import complete_runs
from ...records.files import COUNTS, RESOURCES, DataError, gpu_folder, parsed, with_problems
from ...records.measured import Measured
from ...records.published import main_problems
from ...verdicts import claims


class Records:
    """All that is known about the versions on one GPU, by version, from some studies or all.

    Raises: DataError where nothing is measured, and for a damaged file.
    """

    def __init__(self, slug: str, studies: Iterable[str] = tuple(STUDIES)) -> None:
        folder = gpu_folder(slug)
        self.slug = slug
        self.studies = dict(self._complete(folder, studies))
        if not self.studies:
            raise DataError(f"{folder / 'runs.csv'}: no run of any study is complete")
        self.counts = _by_version(COUNTS, "counts")
        counters = _by_version(folder / "counters.csv", "counters")
        published = {name: rows[rows["study"] != "matched"] for name, rows in counters.items()}
        self.counters = {name: rows for name, rows in published.items() if len(rows)}
        self.resources = _by_version(RESOURCES, "resources")
        self.sanitizers = _by_version(folder / "sanitizers.csv", "sanitizers", problems=False)
        self.verdicts = claims.recorded(slug)

    @staticmethod
    def _complete(folder: Path, studies: Iterable[str]) -> Iterator[tuple[str, Measured]]:
        """The studies with a complete run."""
        runs = parsed(folder / "runs.csv", "runs")
        complete = complete_runs(runs)
        for study in studies:
            if study in complete:
                yield study, Measured.read(folder, study)

    @property
    def gpu(self) -> str:
        return next(iter(self.studies.values())).card

    def taken(self, name: str) -> dict[str, list[Problem]]:
        """By study, the measured problems of a version but those that it does not take."""
        found = {}
        for study, measured in self.studies.items():
            checked = [(problem, measured.check(name, problem)) for problem in measured.problems(VERSIONS[name].family)]
            problems = [problem for problem, check in checked if check and check.status != "unsupported"]
            if problems:
                found[study] = problems
        return found

    def home(self, family: str) -> Measured | None:
        """The first study in which versions of a family were measured."""
        return next((measured for measured in self.studies.values() if measured.versions(family)), None)


def _by_version(path: Path, table: str, problems: bool = True) -> dict[str, pd.DataFrame]:
    """Rows of a table by version, with their problem; none where there is no such file."""
    if not path.exists():
        return {}
    frame = with_problems(parsed(path, table)) if problems else parsed(path, table)
    return dict(list(frame.groupby("version", sort=False)))


def totals(frame: pd.DataFrame | None, name: str) -> dict[Problem, Mapping[str, float]]:
    """By problem, the sum of each counter over the launches; of what is no sum, that of the last launch."""
    if frame is None:
        return {}
    found = {}
    for problem, rows in frame.groupby("problem", sort=False):
        last = rows[rows["launch"] == rows["launch"].max()]
        sums = rows.groupby(name)["value"].sum()
        averages = [key for key in sums.index if "__" in key and ".sum" not in key]
        found[problem] = {**sums, **last[last[name].isin(averages)].set_index(name)["value"]}
    return {problem: found[problem] for problem in main_problems(found)}


def plans(version: Version, problems: Iterable[Problem]) -> dict[Problem, Plan]:
    """Plans for the problems that a version takes."""
    found = {}
    for problem in problems:
        try:
            found[problem] = version(problem)
        except Unsupported:
            continue
    return found


@functools.cache
def planned(name: str) -> dict[Problem, Plan]:
    """Plans for the first study that a version takes a problem of; for a small problem where it takes none.

    None of a peer, which has no launches of its own.
    """
    version = VERSIONS[name]
    if version.is_peer:
        return {}
    for study in STUDIES.values():
        if found := plans(version, (problem for problem in study.problems if problem.family == version.family)):
            return found
    plan = example(version)
    return {plan.problem: plan}


@functools.cache
def claims_by_version() -> dict[str, list[claims.Claim]]:
    """Claims by the versions that their tests name."""
    found: dict[str, list[claims.Claim]] = {}
    for claim in claims.load():
        for name in sorted({name for test in claim.tests for name in claims.versions_of(test)}):
            found.setdefault(name, []).append(claim)
    return found


def families() -> list[str]:
    return list(dict.fromkeys(version.family for version in VERSIONS.values()))


def in_order(family: str) -> list[Version]:
    """The versions of a family as the pages follow: the log's, each before its fast-math build; ablations; controls;
    peers.
    """
    order = list(VERSIONS)
    mine = [version for version in VERSIONS.values() if version.family == family]
    return sorted(mine, key=lambda v: (v.is_peer, bool(v.control_of), v.ablation, order.index(v.built_from), v.id))
