"""What a ladder's chapter sets below its steps: what every version does, races on a full card, and tests of claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from kernels import VERSIONS, Problem

from ...models.roofline import SECTOR_BYTES
from ...records import published
from ...records.files import COUNTS, DataError, problem_of, read_table
from ...records.known import FAILED, OK, WRONG, known
from ...records.measured import Measured
from ...records.text import number
from ...verdicts import claims
from ..origin import COUNTED, DECIDED, measured_in
from ..table import NOTHING, Table, link, rotary, timed
from ..tables.claims import tested as tests_of

MEGABYTES = 1e6 / SECTOR_BYTES
# What a version does in one call: counter, words, by what it is divided.
WORK = (
    ("event.rotation", "rotations", 1.0),
    ("event.sincos", "sines with cosines", 1.0),
    ("event.pow", "powers", 1.0),
    ("inst.fma", "multiply-adds, M", 1e6),
    ("warp_inst", "instructions of warps, M", 1e6),
    ("global.read.sectors", "MB asked for", MEGABYTES),
    ("global.write.sectors", "MB written", MEGABYTES),
    ("shared.wavefronts", "cycles of shared memory, M", 1e6),
    ("barriers", "barriers", 1.0),
)


def shown_when_full(measured: Measured, filled: Measured, *names: str) -> bool | None:
    """Whether each of some versions is right wherever it runs at the shapes of the log and wrong somewhere on a full
    card; None where one of them was not measured there, or does not run."""
    at_log, at_full = ([_outcomes(evidence, name) for name in names] for evidence in (measured, filled))
    if not all(at_log) or not all(at_full):
        return None
    return all(found == {OK} for found in at_log) and all(found - {OK} for found in at_full)


def _outcomes(evidence: Measured, name: str) -> set[str]:
    """Right, wrong or failed: what the checks of a version found."""
    found = {known(evidence, name, problem).word for problem in evidence.problems(VERSIONS[name].family)}
    return found & {OK, WRONG, FAILED}


def _chosen(ids: Iterable[str]) -> list[claims.Claim]:
    known = {claim.id: claim for claim in claims.load()}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise DataError(f"there is no claim {unknown[0]!r}")
    return [known[name] for name in ids]


def tested(evidence: Measured, *ids: str, role: str = "") -> Table:
    """The tests of some claims, or those of one role: what each asks for, and what was measured, counted or computed.

    Raises: DataError for a claim that there is not.
    """
    return tests_of(evidence, _chosen(ids), role).of(DECIDED)


def work(evidence: Measured, family: str, hdim: int) -> Table:
    """What each version of a family does in one call at a head dim, counted exactly; and the time that it takes."""
    frame = read_table(COUNTS, "counts") if COUNTS.exists() else pd.DataFrame(columns=["version", "hdim"])
    by_version = dict(list(frame[frame["hdim"] == hdim].groupby("version", sort=False)))
    found: list[tuple[str, Problem, Mapping[str, float]]] = []
    for name in evidence.versions(family) or [v.id for v in VERSIONS.values() if v.family == family]:
        if name in by_version:
            mine = by_version[name]
            counted = [problem_of(row) for row in mine.to_dict("records")]
            problem = evidence.shapes(name, refused=True).get(hdim) or published.main_problems(counted)[0]
            mine = mine[[each == problem for each in counted]]
            found.append((name, problem, mine.groupby("counter")["value"].sum().to_dict()))
    shown = [entry for entry in WORK if any(totals.get(entry[0]) for _, _, totals in found)]
    return Table.from_frame(
        [
            {
                "version": link(name) + rotary(problem),
                **{counter: totals.get(counter, 0.0) / divisor for counter, _, divisor in shown},
                "us": timed(evidence, name, problem),
            }
            for name, problem, totals in found
            if totals
        ],
        {
            "version": ("version", str),
            **{counter: (title, _amount) for counter, title, _ in shown},
            "us": ("device, µs", str),
        },
        slice(1, None),
        f"One call at head dim {hdim}, executed by the emulator and counted; device_warm on the {evidence.card}.",
    ).of(measured_in(evidence) + COUNTED)


def _amount(value: float) -> str:
    return number(value) if value else NOTHING
