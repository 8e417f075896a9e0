"""The record of one card, read once: frames of measured, counted and compiled rows, and the studies in them."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kernels import Problem

from ..record import rows
from ..record.files import COUNTS, DATA, REFERENCE, RESOURCES, read_json, read_table, with_problems
from .interval import Pool
from .pool import by_run, pooled
from .study import Study

Groups = Mapping[str, Mapping[Problem, pd.DataFrame]]  # rows of a table by version and problem


class Record:
    """Contents of one folder of data/measured, and the records that are the same on every machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slug = folder.name
        self.gpu: dict[str, Any] = read_json(folder / "gpu.json")
        self._frames: dict[str, pd.DataFrame] = {}
        self._studies: dict[tuple[str, frozenset[str] | None], Study] = {}

    @property
    def is_reference(self) -> bool:
        """Whether it is the committed record that the book is written for, not a folder of that name elsewhere."""
        return self.folder == DATA / "measured" / REFERENCE

    @property
    def target(self) -> str:
        """The target of kernels on this card: `"sm_90"`."""
        return "sm_" + str(self.gpu["compute_capability"]).replace(".", "")

    @classmethod
    def load(cls, folder: Path) -> "Record":
        """The record of a folder, once until a file of it is written again."""
        states = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.exists())
        return _load(folder, *((path, state.st_mtime_ns, state.st_size) for path, state in states))

    def frame(self, table: str) -> pd.DataFrame:
        """The rows of all runs in a table: not to be changed."""
        if table not in self._frames:
            self._frames[table] = rows(self.folder, table)
        return self._frames[table]

    @functools.cached_property
    def pools(self) -> Mapping[str, Pool]:
        """How much ratios differ from run to run, by timer and size."""
        return pooled(self.ratios)

    @functools.cached_property
    def ratios(self) -> pd.DataFrame:
        return by_run(self.frame("runs"), self.frame("timings"))

    @functools.cached_property
    def complete(self) -> pd.DataFrame:
        runs = self.frame("runs")
        return runs[runs["complete"].astype(bool)].sort_values("run")

    @functools.cached_property
    def latest(self) -> Mapping[str, Mapping[str, Any]]:
        """The latest complete run of every study that has one."""
        return {row["study"]: row for row in self.complete.to_dict("records")}

    def study(self, name: str, among: frozenset[str] | None = None) -> Study:
        """The complete runs of a study, of all or `among` some; false of none."""
        key = name, among
        if key not in self._studies:
            mine = self.complete[self.complete["study"] == name].to_dict("records")
            mine = [run for run in mine if among is None or run["run"] in among]
            timings = self.frame("timings")
            most = int(timings["process"].max()) if len(timings) else 0
            self._studies[key] = Study(self.target, name, mine, self.frame("checks"), timings, most)
        return self._studies[key]

    def read(self) -> None:
        """Read everything, for all processes that are forked from this one."""
        _ = self.pools, self.counters, self.counts, self.resources
        for name in set(self.complete["study"]):
            self.study(name)

    @functools.cached_property
    def counters(self) -> Groups:
        return _grouped(self.frame("counters"))

    @functools.cached_property
    def counts(self) -> Groups:
        return everywhere(COUNTS, "counts")

    @functools.cached_property
    def resources(self) -> Groups:
        return everywhere(RESOURCES, "resources")

    @functools.cached_property
    def counted(self) -> frozenset[str]:
        """Counters of the emulator in any version: one that counts 0 has no row."""
        tables = (mine["counter"] for problems in self.counts.values() for mine in problems.values())
        return frozenset().union(*tables)


@functools.lru_cache(maxsize=16)
def _load(folder: Path, *states: Any) -> Record:
    return Record(folder)


@functools.cache
def everywhere(path: Path, table: str) -> Groups:
    """The rows of a table that is the same on every machine; none where there is no such file."""
    return _grouped(read_table(path, table)) if path.exists() else {}


def held(version: str, problem: Problem, target: str) -> dict[int, int]:
    """Blocks of each launch, from 0, that an SM of a target holds, by data/resources.csv; none where it has no row."""
    rows = everywhere(RESOURCES, "resources").get(version, {}).get(problem)
    mine = [] if rows is None else rows[rows["target"] == target][["launch", "blocks_per_sm"]].astype(int).to_numpy()
    return {int(launch): int(blocks) for launch, blocks in sorted(map(tuple, mine))}


def _grouped(frame: pd.DataFrame) -> Groups:
    """The rows of a table by version and problem."""
    groups: dict[str, dict[Problem, pd.DataFrame]] = {}
    for (version, problem), mine in with_problems(frame).groupby(["version", "problem"], sort=False):
        groups.setdefault(version, {})[problem] = mine
    return groups
