"""What the sanitizers run: every version on small problems, each tool in its modes, and the record of a session."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kernels import VERSIONS, Plan, Problem, Unsupported, Version
from kernels.checking.reference import TABLES_OF
from kernels.limits import EMULATED_TARGET

from ...records.current import today
from ...records.files import problem_columns, problem_of

# (batch, heads, seq, hdim): a last tile that is not full, two tiles of keys, and heads shorter than the 64 positions
# of the separate paths. Versions that fit fewer dims get the first of FEWER_DIMS that they take; one takes no fewer
# than MORE_DIMS.
SHAPES = [(1, 2, 33, 96), (1, 1, 65, 128), (1, 2, 32, 64)]
FEWER_DIMS = (64, 36, 32, 16)
MORE_DIMS = 332
FP16_SHAPES = [(1, 2, 64, 64), (1, 1, 128, 64)]


class SanitizeError(RuntimeError):
    """The sanitizers could not run, or their logs cannot be read."""


class Case(NamedTuple):
    """A version on a problem; its index in the list of cases is in the names of its kernels."""

    version: str
    problem: Problem
    source_hash: str

    def plan(self, target: str = EMULATED_TARGET) -> Plan:
        return plan_of(self.version, self.problem, target)


@functools.cache
def plan_of(version: str, problem: Problem, target: str = EMULATED_TARGET) -> Plan:
    return VERSIONS[version](problem, target)


def _first_supported(version: Version, candidates: Iterable[Problem]) -> Iterator[Problem]:
    for problem in candidates:
        with contextlib.suppress(Unsupported):
            version(problem)
            yield problem
            return


def problems(version: Version) -> list[Problem]:
    """The small problems that show the hazards of `version`. Raises: SanitizeError if it takes none of them."""
    found: dict[Problem, None] = {}
    if version.family == "fp16":
        for batch, heads, seq, hdim in FP16_SHAPES:
            for causal in (False, True):
                problem = Problem("fp16", batch, heads, seq_q=seq, hdim=hdim, dtype="float16", causal=causal)
                found.update(dict.fromkeys(_first_supported(version, [problem])))
    else:
        table = TABLES_OF.get(version.family, ("computed",))[0]
        for batch, heads, seq, most in SHAPES:
            candidates = (
                Problem(version.family, batch, heads, seq_q=seq, hdim=hdim, rotary_dim=rotary_dim, table=table)
                for hdim in (most, *(dims for dims in FEWER_DIMS if dims < most), MORE_DIMS)
                for rotary_dim in ((hdim // 8 * 4, hdim) if version.family == "rope" else (0,))
            )
            found.update(dict.fromkeys(_first_supported(version, candidates)))
    if not found:
        raise SanitizeError(
            f"{version.id} takes none of the small problems: give analysis/measure/sanitize/cases.py one that fits"
        )
    return list(found)


def cases(versions: str = "") -> list[Case]:
    """Every own version, or those named, on its problems, in the order of the log. Raises: SanitizeError."""
    named = versions.split(",") if versions else [version.id for version in VERSIONS.values() if not version.is_peer]
    for name in named:
        if name not in VERSIONS or VERSIONS[name].is_peer:
            raise SanitizeError(f"no version of the log is called {name!r}")
    return [Case(name, problem, today(name)) for name in named for problem in problems(VERSIONS[name])]


@dataclass(frozen=True)
class Mode:
    """One process under one tool. `planted` is what the tool must find in the planted kernel."""

    name: str
    tool: str
    options: tuple[str, ...] = ()
    planted: str = ""
    one_block: bool = False

    @property
    def exact(self) -> bool:
        """Whether the padding that a declared read out of bounds lands in is left out, for memcheck to see it."""
        return self.tool == "memcheck"


MODES = {
    mode.name: mode
    for mode in (
        Mode("memcheck", "memcheck", ("--padding 65536", "--report-api-errors no"), "out_of_bounds"),
        Mode("racecheck", "racecheck", ("--racecheck-report analysis",), "race"),
        Mode("racecheck_bytes", "racecheck", ("--racecheck-report hazard",), "race", one_block=True),
        Mode("initcheck", "initcheck", ("--initcheck-address-space all",), "uninitialised"),
        Mode("synccheck", "synccheck"),
    )
}
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


@dataclass
class Session:
    """One run of all tools: what ran where, kept beside the logs."""

    run: str
    started_at: str
    gpu: dict[str, Any]
    sanitizer: str
    whole: bool
    cases: list[Case]
    finished_at: str | None = None
    seconds: float = 0.0

    @property
    def target(self) -> str:
        """What its plans were made for."""
        return "sm_" + self.gpu["compute_capability"].replace(".", "")

    def save(self, folder: Path) -> None:
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content["cases"] = [
            {"version": c.version, "source_hash": c.source_hash, **problem_columns(c.problem)} for c in self.cases
        ]
        (folder / "session.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Session:
        """Raises: SanitizeError when the folder holds no session."""
        try:
            content = json.loads((folder / "session.json").read_text(encoding="utf-8"))
            rows = content.pop("cases")
            return cls(**content, cases=[Case(row["version"], problem_of(row), row["source_hash"]) for row in rows])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SanitizeError(
                f"{folder / 'session.json'} does not describe a run of the sanitizers: {error}"
            ) from error
