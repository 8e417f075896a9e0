"""What the chapters set beside each step of the log: what a document prints of it, its claims, and what it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, NamedTuple

import pandas as pd
from IPython.display import HTML, display

from kernels import VERSIONS, Problem

from ...measure.studies import SOURCE_TIMER
from ...models.roofline import SECTOR_BYTES
from ...records import published
from ...records.files import COUNTS, DataError, problem_of, read_table
from ...records.interval import Ratio
from ...records.known import FAILED, NOT_MEASURED, OK, UNSUPPORTED, WRONG, Known, best, known
from ...records.measured import Measured, baseline_of
from ...records.text import beside, factor, number
from ...verdicts import claims
from ...verdicts.rule import stands
from ..notebook import rightness
from ..origin import COUNTED, DECIDED, measured_in, published_for
from ..table import NOTHING, Format, Table, code, lines, link, ratio, rotary, small, status, timed
from ..tables.claims import tested as tests_of
from ..tables.claims import verdicts

WRITE_UP, SUMMARY, ROPE_LOG, HYBRID, STATUS = published.DOCUMENTS
SHOWN = ("time_ms", "speedup")
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


# ---------------------------------------------------------------- a step of the log


def step(evidence: Measured, *names: str) -> None:
    """Say of some versions what each changes, how fast it is beside its baseline and its parent, and where it is right.

    Raises: DataError for a version that there is not.
    """
    for name in names:
        if name not in VERSIONS:
            raise DataError(f"there is no version {name!r}")
        version = VERSIONS[name]
        others = [other for other in dict.fromkeys((version.baseline, version.parent)) if other]
        speeds = [said for other in others if (said := _beside(evidence, name, other))]
        first = f"{link(name)} ({escape(version.title)})"
        first += f" changes {code(version.parent)}: {escape(version.change)}." if version.parent else "."
        first = first if version.parent or not version.change else f"{first[:-1]}: {escape(version.change)}."
        how = f" On the device it {' and '.join(speeds)}." if speeds else ""
        display(HTML(f"<p>{first}{how} It is {escape(rightness(evidence, name))}.</p>"))


def _beside(evidence: Measured, name: str, other: str) -> str:
    """How fast a version is beside another, at the shapes of the documents or, where they share none, at any."""
    for problems in (evidence.shapes(name).values(), evidence.problems(VERSIONS[name].family)):
        ratios = [found.value for problem in problems if (found := evidence.ratio(other, name, problem))]
        if ratios:
            return f"{beside(ratios)} {code(other)}"
    return ""


# ---------------------------------------------------------------- a table of a document, measured


def printed(evidence: Measured, document: str, *places: str, over: str = "") -> Table:
    """A table or list of a document with what was measured of each of its times and speedups.

    `places` are how its places begin in published.csv. A speedup that is not printed itself follows from two times
    that are printed there: over the version `over`, or over what its source compares a version with.

    Raises: DataError when the document prints no time or speedup there.
    """
    frame = published.load()
    frame = frame[(frame["source_document"] == document) & frame["locator"].str.startswith(tuple(places))]
    frame = frame[frame["version"].isin(VERSIONS) & frame["hdim"].notna() & frame["quantity"].isin(SHOWN)]
    if frame.empty:
        raise DataError(f"published.csv has no time and no speedup of {document!r} at {', '.join(places)}")
    found = []
    for _, at in frame.groupby("hdim", sort=False):
        times = _first(at[at["quantity"] == "time_ms"])
        speeds = _first(at[at["quantity"] == "speedup"])
        found += [_line(evidence, name, times, speeds.get(name), over) for name in dict.fromkeys(at["version"])]
    bases = list(dict.fromkeys(line.base for line in found if line.base))
    card = published.card(VERSIONS[found[0].name].family)
    over = f" over {whole(bases[0])}," if len(bases) == 1 else ""
    spread = f"Speedups{over} with the 95 % interval {evidence.covers()}, times"
    compared: dict[str, tuple[str, Format]] = {
        "stated": ("published", factor),
        "device": ("device", str),
        "launched": ("launched", str),
    }
    return Table.from_frame(
        [_row(evidence, line, len(bases) > 1) for line in found],
        {
            "hdim": ("hdim", str),
            "version": ("version", str),
            **(compared if bases else {}),
            "stated_ms": ("published, ms", "{:.3f}"),
            "device_us": ("device, µs", str),
            "launched_us": ("launched, µs", str),
        },
        slice(2, None),
        f"{escape(document)}: {escape('; '.join(_named(frame)))}. Published on the {card}, measured on the "
        f"{evidence.card}; times of different cards are not compared. {spread if bases else 'Times'} ± half the "
        "range of the processes.",
        measured_in(evidence) + published_for(card),
    )


class Line(NamedTuple):
    """A version at one head dim: what is printed of it, and what was measured on the device and as launched."""

    hdim: int
    name: str
    base: str  # what its printed speedup compares with; none where no speedup is printed
    measured_over: str
    stated: float | None
    stated_ms: float | None
    device: Ratio | None
    launched: Ratio | None
    problem: Problem | None


def _row(evidence: Measured, line: Line, bases: bool) -> dict[str, Any]:
    """A row of the table, with what a speedup is over if that differs within it."""
    about = [f"over {whole(line.base)}"] if bases and line.base else []
    about += [f"measured over {whole(line.measured_over)}"] if line.base and line.measured_over != line.base else []
    here = known(evidence, line.name, line.problem) if line.problem else Known(NOT_MEASURED)
    about += [status(here)] if here.word != OK else []
    compared = line.stated is not None
    how = stands(line.stated, line.device)
    return {
        **line._asdict(),
        "version": lines(link(line.name, whole(line.name)), *map(small, about)),
        "device": lines(_compared(evidence, line, line.device), small(how) if how else "") if compared else NOTHING,
        "launched": _compared(evidence, line, line.launched) if compared else NOTHING,
        **{
            f"{name}_us": timed(evidence, line.name, line.problem, timer) if line.problem else small(NOT_MEASURED)
            for name, timer in (("device", "device_warm"), ("launched", SOURCE_TIMER))
        },
    }


def _compared(evidence: Measured, line: Line, found: Ratio | None) -> str:
    """A speedup, or why there is none."""
    if found or not line.problem or line.measured_over not in VERSIONS:
        return ratio(found)
    here = known(evidence, line.name, line.problem)
    if here.ran:  # of the other, the problem may be one of its own
        here = best(evidence, line.measured_over, evidence.problems(VERSIONS[line.measured_over].family))
    return small(NOT_MEASURED if here.ran else here.word)


def whole(name: str) -> str:
    """An id that does not break; words that are none stay as they are."""
    return f"<code>{name}</code>" if name in VERSIONS else escape(name)


def _first(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Of each version the first row."""
    return {row["version"]: row for row in reversed(frame.to_dict("records"))}


def _named(frame: pd.DataFrame) -> list[str]:
    """The places, without what is behind the line."""
    found: dict[str, list[str]] = {}
    for place, line in (place.rsplit("; ", 1) for place in dict.fromkeys(frame["locator"])):
        found.setdefault(place, []).append(line.removeprefix("line "))
    return [f"{place}, line{'s' * (len(numbers) > 1)} {', '.join(numbers)}" for place, numbers in found.items()]


def _line(
    evidence: Measured, name: str, times: Mapping[str, dict[str, Any]], speed: dict[str, Any] | None, over: str
) -> Line:
    """One version at one head dim."""
    time = times.get(name)
    row = speed or time or {}
    other = over if over and name not in (over, baseline_of(over)) else ""
    base = (speed["baseline"] if speed else other) or baseline_of(name)
    stated = None
    if speed:
        stated = 1 / speed["value"] if speed["unit"] == "x_slower" else speed["value"]
    elif time and base in times and base != name:
        stated = times[base]["value"] / time["value"]
    measured_over = base if base in VERSIONS else baseline_of(name)  # a document may name no version
    mine = _problem(evidence, name, row)
    theirs = _problem(evidence, measured_over, times.get(base, row)) if measured_over else None
    return Line(
        int(row["hdim"]),
        name,
        base if stated is not None else "",
        measured_over,
        stated,
        time["value"] if time else None,
        _ratio(evidence, measured_over, theirs, name, mine, "device_warm"),
        _ratio(evidence, measured_over, theirs, name, mine, SOURCE_TIMER),
        mine,
    )


def _problem(evidence: Measured, name: str, row: Mapping[str, Any]) -> Problem | None:
    """The measured problem of the shape that a row states; of several one that the version takes."""
    stated = [problem for problem in evidence.problems(VERSIONS[name].family) if published.states(row, problem)]
    taken = [problem for problem in stated if known(evidence, name, problem).word != UNSUPPORTED]
    return next(iter(taken or stated), None)


def _ratio(
    evidence: Measured, base: str, theirs: Problem | None, name: str, mine: Problem | None, timer: str
) -> Ratio | None:
    """The speedup of a version over another, each on the problem that it was published for: masks may differ."""
    if theirs is None or mine is None:
        return None
    medians = [evidence.medians(base, theirs, timer), evidence.medians(name, mine, timer)]
    pairs = pd.concat(medians, axis=1, join="inner").dropna()
    return evidence.mean(pairs.iloc[:, 0] / pairs.iloc[:, 1], timer)


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


# ---------------------------------------------------------------- claims


def _chosen(ids: Iterable[str]) -> list[claims.Claim]:
    known = {claim.id: claim for claim in claims.load()}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise DataError(f"there is no claim {unknown[0]!r}")
    return [known[name] for name in ids]


def judged(evidence: Measured, *ids: str) -> Table:
    """Some claims, each with its verdict on the GPU of the evidence. Raises: DataError for one that there is not."""
    return verdicts(claims.recorded(evidence.slug), _chosen(ids)).of(DECIDED)


def tested(evidence: Measured, *ids: str, role: str = "") -> Table:
    """The tests of some claims, or those of one role: what each asks for, and what was measured, counted or computed.

    Raises: DataError for a claim that there is not.
    """
    return tests_of(evidence, _chosen(ids), role).of(DECIDED)


# ---------------------------------------------------------------- work


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
