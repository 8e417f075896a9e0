"""Turns the tools' logs into the rows of sanitizers.csv, and says what these rows show that no version declares."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels import VERSIONS, Plan, Problem
from kernels.version import Hazard

from ...records.current import current, is_current
from ...records.files import problem_columns, problem_of, read_records, write_table
from ..runs import machine_columns
from .cases import MODES, TOOLS, SanitizeError, Session, plan_of
from .logs import PLANTED, Log, Report, read_log

Row = dict[str, Any]

SOMEWHERE = "shared"  # the place of what happened in shared memory where the tool gives no address
RESERVED_SHARED_BYTES = 1024  # the system's, at the start of a block's shared memory, from compute capability 8.0 on


def read_logs(folder: Path) -> dict[str, Log]:
    """The logs of all modes; a mode without one has an empty log. Raises: SanitizeError if none has."""
    logs = {}
    for name in MODES:
        plain, packed = folder / f"{name}.log", folder / f"{name}.log.gz"
        if plain.exists() or packed.exists():
            open_it: Any = open if plain.exists() else gzip.open
            with open_it(plain if plain.exists() else packed, "rt", encoding="utf-8", errors="replace") as file:
                logs[name] = read_log(file)
    if not logs:
        raise SanitizeError(f"{folder} holds no log of any tool, such as memcheck.log.gz")
    return {name: logs.get(name, Log()) for name in MODES}


def nearest_buffer(address: int, buffers: Mapping[str, Sequence[int]]) -> str:
    """The buffer that holds an address, or the nearest; of two as near, the one before it."""

    def distance(name: str) -> tuple[int, bool]:
        start, size = buffers[name]
        return max(start - address, address - (start + size - 1), 0), start > address

    return min(buffers, key=distance, default="nowhere")


def covers(hazard: Hazard, plan: Plan, finding: str, kernel: str, place: str) -> bool:
    """Whether a finding is what a plan declares; "shared" may be any array of shared memory."""
    same_place = place == hazard.place or (place == SOMEWHERE and hazard.place not in plan.buffers)
    return finding == hazard.kind and kernel == hazard.kernel and same_place


class Evidence:
    """The reports of a session, with names for their addresses."""

    def __init__(self, session: Session, logs: Mapping[str, Log]) -> None:
        self.session, self.logs = session, logs
        self.bases = {name: self._shared_base(log) for name, log in logs.items()}
        self.racing: dict[tuple[Any, ...], set[str]] = {}  # arrays that two instructions were seen to race on
        bytes_log = logs["racecheck_bytes"]
        for case, reports in bytes_log.reports.items():
            for report in reports:
                if case is not None and report.address is not None:
                    place = self._array("racecheck_bytes", report)
                    for key in self._keys(report, frozenset(report.instructions)):
                        self.racing.setdefault(key, set()).add(place)

    @staticmethod
    def _shared_base(log: Log) -> int:
        """The address that a tool gives to the first byte of dynamic shared memory: the planted kernel's word."""
        planted = [report.address for report in log.reports.get(PLANTED, ()) if report.shared]
        return min((address for address in planted if address is not None), default=RESERVED_SHARED_BYTES)

    def _array(self, mode: str, report: Report) -> str:
        """The array of shared memory at a report's address."""
        if report.case is None or report.case == PLANTED or report.launch is None or report.address is None:
            return SOMEWHERE
        launch = self.session.cases[report.case].plan(self.session.target).launches[report.launch]
        if launch.static.sizes:  # the assembler puts them where it likes
            return SOMEWHERE
        return launch.shared.place(report.address - self.bases[mode])

    def _keys(self, report: Report, instructions: frozenset[int]) -> list[tuple[Any, ...]]:
        """What two racing instructions are looked up by: in their own launch, then in the version's other cases."""
        if report.case is None or report.case == PLANTED:
            return []
        version = self.session.cases[report.case].version
        return [(report.case, report.launch, instructions), (version, report.kernel, instructions)]

    def places(self, mode: str, report: Report) -> set[str]:
        """Buffers or arrays of shared memory; several where a race is reported by its instructions."""
        if report.instructions and report.address is None:
            first, *others = report.instructions
            found = set()
            for other in others:
                known = (
                    self.racing[key] for key in self._keys(report, frozenset((first, other))) if key in self.racing
                )
                found |= next(known, {SOMEWHERE})
            return found or {SOMEWHERE}
        if report.shared:
            return {self._array(mode, report)}
        if report.address is None or report.case is None:
            return {""}
        return {nearest_buffer(report.address, self.logs[mode].buffers.get(report.case, {}))}

    def found(self, index: int, tool: str) -> set[tuple[str, str, str]]:
        """(finding, kernel, place) of a tool's reports on a case; "not_checked" if its silence says nothing."""
        modes = [mode for mode in MODES.values() if mode.tool == tool]
        log, planted = self.logs[modes[0].name], modes[0].planted
        if index in log.refused:
            return {("unsupported", "", "")}
        found = {
            (report.finding, report.kernel, place)
            for mode in modes
            for report in self.logs[mode.name].reports.get(index, ())
            for place in self.places(mode.name, report)
        }
        heard = index in log.heard and (not planted or log.planted(planted))
        return found if found or heard else {("not_checked", "", "")}

    def rows(self) -> list[Row]:
        """A row for all that a tool found in a case, or one that says "none"; cases of changed code are left out."""
        rows = []
        for index, case in enumerate(self.session.cases):
            if not is_current(case.version, case.source_hash):
                continue
            plan = case.plan()
            for tool in TOOLS:
                for finding, kernel, place in self.found(index, tool) or {("none", "", "")}:
                    declared = any(covers(hazard, plan, finding, kernel, place) for hazard in plan.hazards)
                    rows.append(
                        {
                            "run": self.session.run,
                            "tool": tool,
                            "version": case.version,
                            **problem_columns(case.problem),
                            "finding": finding,
                            "kernel": kernel or None,
                            "place": place or None,
                            "expected": declared or finding in ("none", "unsupported"),
                            "source_hash": case.source_hash,
                        }
                    )
        return rows


# ---------------------------------------------------------------- what the rows say

HazardKey = tuple[str, str, str]  # kind, kernel, place


def undeclared(rows: Iterable[Row]) -> list[str]:
    """Lines about what the tools found and the versions do not declare, as the rows say and as today's plans do."""
    lines = []
    for row in rows:
        expected = row["expected"]
        todays = is_current(row["version"], row["source_hash"])
        if expected and todays and row["finding"] not in ("none", "unsupported"):
            plan = plan_of(row["version"], problem_of(row))
            expected = any(
                covers(h, plan, row["finding"], row["kernel"] or "", row["place"] or "") for h in plan.hazards
            )
        if not expected:
            lines.append(f"{row['tool']}: {row['version']} on {problem_of(row)}: {describe(row)}")
    return lines


def unseen(rows: Iterable[Row], emulated: Callable[[str, Problem], set[HazardKey]]) -> list[str]:
    """Lines about declared hazards that no tool saw, nor the emulator, which is asked only about those.

    Versions whose code has changed since are left out.
    """
    found: dict[tuple[str, Problem], list[Row]] = {}
    for row in current(rows):
        found.setdefault((row["version"], problem_of(row)), []).append(row)
    lines = []
    for (name, problem), mine in found.items():
        plan = plan_of(name, problem)
        for hazard in plan.hazards:
            seen = any(covers(hazard, plan, r["finding"], r["kernel"] or "", r["place"] or "") for r in mine)
            if not seen and (hazard.kind, hazard.kernel, hazard.place) not in emulated(name, problem):
                lines.append(f"{name} on {problem}: {hazard.kind} of {hazard.place} in {hazard.kernel}")
    return lines


def describe(row: Row) -> str:
    place, kernel = (f" {word} {row[what]}" if row[what] else "" for word, what in (("of", "place"), ("in", "kernel")))
    return f"{row['finding']}{place}{kernel}"


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    problem = tuple(problem_columns(problem_of(row)).values())
    texts = (row["finding"], row["kernel"] or "", row["place"] or "")
    return list(VERSIONS).index(row["version"]), problem, TOOLS.index(row["tool"]), texts


def write(session: Session, rows: list[Row], folder: Path) -> Path:
    """Put a session's rows into sanitizers.csv, in place of those of the same versions, and the run into runs.csv."""
    path = folder / "sanitizers.csv"
    ran = {row["version"] for row in rows}
    kept = [row for row in read_records(path, "sanitizers") if row["version"] in VERSIONS and row["version"] not in ran]
    folder.mkdir(parents=True, exist_ok=True)
    write_table(path, "sanitizers", sorted([*kept, *rows], key=_order))
    entry = {
        "run": session.run,
        "study": "sanitizers",
        "started_at": session.started_at,
        "finished_at": session.finished_at,
        "complete": session.whole and not any(row["finding"] == "not_checked" for row in rows),
        "seconds": session.seconds,
        "throttle": "unknown",
        **machine_columns(session.gpu),
    }
    runs = read_records(folder / "runs.csv", "runs")
    others = [row for row in runs if (row["run"], row["study"]) != (session.run, entry["study"])]
    write_table(folder / "runs.csv", "runs", [*others, entry])
    return path
