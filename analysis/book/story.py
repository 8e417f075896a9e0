"""What the chapters set beside each step of the log: what a document prints of it, its claims, and what it does."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import pandas as pd
from IPython.display import HTML, display

from kernels import VERSIONS, Problem

from ..models.roofline import SECTOR_BYTES
from ..records import published
from ..records.files import COUNTS, DataError, gpu_folder, problem_of, read_table
from ..records.interval import Ratio, geometric_mean
from ..records.measured import Check, Measured, Time, baseline_of
from ..records.text import beside, number
from ..verdicts import claims
from ..verdicts.rule import stands
from . import tables
from .notebook import rightness
from .tables import NOTHING, SOURCE_TIMER, VERDICT_STYLE, Table, small

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
        first = f"{tables.link(name)} ({escape(version.title)})"
        first += f" changes {tables.code(version.parent)}: {escape(version.change)}." if version.parent else "."
        first = first if version.parent or not version.change else f"{first[:-1]}: {escape(version.change)}."
        how = f" On the device it {' and '.join(speeds)}." if speeds else ""
        display(HTML(f"<p>{first}{how} It is {escape(rightness(evidence, name))}.</p>"))


def _beside(evidence: Measured, name: str, other: str) -> str:
    """How fast a version is beside another, at the shapes of the documents or, where they share none, at any."""
    for problems in (evidence.shapes(name).values(), evidence.problems(VERSIONS[name].family)):
        ratios = [found.value for problem in problems if (found := evidence.ratio(other, name, problem))]
        if ratios:
            return f"{beside(ratios)} {tables.code(other)}"
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
    lines = []
    for _, at in frame.groupby("hdim", sort=False):
        times = _first(at[at["quantity"] == "time_ms"])
        speeds = _first(at[at["quantity"] == "speedup"])
        lines += [_line(evidence, name, times, speeds.get(name), over) for name in dict.fromkeys(at["version"])]
    bases = list(dict.fromkeys(line.base for line in lines if line.base))
    speed = ("published", "device", "launched") if bases else ()
    header = ("hdim", "version", *speed, "published, ms", "device, µs", "launched, µs")
    card = published.card(VERSIONS[lines[0].name].family)
    spread = f"Speedups{f' over {whole(bases[0])},' if len(bases) == 1 else ''} with the 95 % interval, times"
    caption = (
        f"{escape(document)}: {escape('; '.join(_named(frame)))}. Published on the {card}, measured on the "
        f"{evidence.gpu['name']}; times of different cards are not compared. {spread if bases else 'Times'} ± half the "
        "range of the processes."
    )
    return Table(header, [_cells(line, bool(bases), len(bases) > 1) for line in lines], header[2:], caption)


class Line(NamedTuple):
    """A version at one head dim: what is printed of it, and what was measured on the device and as launched."""

    hdim: int
    name: str
    base: str  # what its printed speedup compares with; none where no speedup is printed
    measured_over: str
    stated: float | None
    ratios: Sequence[Ratio | None]
    stated_ms: float | None
    taken: Sequence[Time | None]
    check: Check | None


def _cells(line: Line, speeds: bool, bases: bool) -> tuple[str, ...]:
    """A row: with speedups, if the table has any, and with what they are over, if that differs within it."""
    about = [f"over {whole(line.base)}"] if bases and line.base else []
    about += [f"measured over {whole(line.measured_over)}"] if line.base and line.measured_over != line.base else []
    about += [tables.badge(line.check)] if line.check and line.check.status != "ok" else []
    name = "<br>".join([tables.link(line.name, whole(line.name)), *map(small, about)])
    compared: list[str] = []
    if speeds and line.stated is None:
        compared = [NOTHING] * 3
    elif speeds:
        how = stands(line.stated, line.ratios[0])
        device = tables.ratio(line.ratios[0]) + (f"<br>{small(how)}" if how else "")
        compared = [f"{line.stated:.2f}×", device, tables.ratio(line.ratios[1])]
    stated_ms = NOTHING if line.stated_ms is None else f"{line.stated_ms:.3f}"
    return (str(line.hdim), name, *compared, stated_ms, *map(tables.microseconds, line.taken))


def whole(name: str) -> str:
    """An id that does not break; words that are none stay as they are."""
    return f"<code>{name}</code>" if name in VERSIONS else escape(name)


def _first(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Of each version the first row."""
    return {row["version"]: row for row in reversed(frame.to_dict("records"))}


def _named(frame: pd.DataFrame) -> list[str]:
    """The places, without what is behind the line."""
    lines = [place.rsplit("; ", 1) for place in dict.fromkeys(frame["locator"])]
    found: dict[str, list[str]] = {}
    for place, line in lines:
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
    timers = ("device_warm", SOURCE_TIMER)
    return Line(
        int(row["hdim"]),
        name,
        base if stated is not None else "",
        measured_over,
        stated,
        [_ratio(evidence, measured_over, theirs, name, mine, timer) for timer in timers],
        time["value"] if time else None,
        [evidence.time(name, mine, timer) if mine else None for timer in timers],
        evidence.check(name, mine) if mine else None,
    )


def _problem(evidence: Measured, name: str, row: Mapping[str, Any]) -> Problem | None:
    """The measured problem of the shape that a row states; of several the one that the version takes."""
    for problem in evidence.problems(VERSIONS[name].family):
        check = evidence.check(name, problem)
        rotary = row.get("rotary_dim")
        same = all(row.get(column) == getattr(problem, column) for column in published.SHAPE)
        same = same and (rotary if rotary == rotary else 0) == problem.rotary_dim
        if same and check and check.status != "unsupported":
            return problem
    return None


def _ratio(
    evidence: Measured, base: str, theirs: Problem | None, name: str, mine: Problem | None, timer: str
) -> Ratio | None:
    """The speedup of a version over another, each on the problem that it was published for: masks may differ."""
    if theirs is None or mine is None:
        return None
    medians = [evidence.medians(base, theirs, timer), evidence.medians(name, mine, timer)]
    pairs = pd.concat(medians, axis=1, join="inner").dropna()
    return None if pairs.empty else geometric_mean((pairs.iloc[:, 0] / pairs.iloc[:, 1]).to_numpy())


# ---------------------------------------------------------------- claims


@functools.cache
def _known() -> dict[str, claims.Claim]:
    return {claim.id: claim for claim in claims.load()}


def _chosen(ids: Iterable[str]) -> list[claims.Claim]:
    known = _known()
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise DataError(f"there is no claim {unknown[0]!r}")
    return [known[name] for name in ids]


@functools.cache
def _verdicts(slug: str) -> pd.DataFrame:
    return read_table(gpu_folder(slug) / "verdicts.csv", "verdicts")


def judged(evidence: Measured, *ids: str) -> Table:
    """Some claims, each with its verdict on the GPU of the evidence. Raises: DataError for one that there is not."""
    found = _verdicts(evidence.slug)
    return tables.verdicts(dict(zip(found["claim_id"], found["verdict"], strict=True)), _chosen(ids))


def tested(evidence: Measured, *ids: str, role: str = "") -> Table:
    """The tests of some claims, or those of one role: what each asks for, and what was measured, counted or computed.

    Raises: DataError for a claim that there is not.
    """
    frame = _verdicts(evidence.slug).astype(object)
    frame = frame.where(frame.notna(), None)
    rows = []
    for claim in _chosen(ids):
        place = f"<a href='../chapters/claims.html#{claim.id}'>{claim.id}</a>"
        mine = frame[frame["claim_id"] == claim.id]
        for row in (mine[mine["role"] == role] if role else mine).to_dict("records"):
            word = row["outcome"]
            badge = f"<span class='status {VERDICT_STYLE[word]}'>{word}</span>"
            why = f"<br>{small(escape(row['reason']))}" if row["reason"] else ""
            rows.append((place, escape(row["says"]), escape(row["rule"] or ""), _value(row), badge + why))
    caption = "<br>".join(f"{claim.id}: {escape(claim.claim)}" for claim in _chosen(ids))
    return Table(("claim", "what is tested", "claimed", "found", "outcome"), rows, ("found",), caption)


def _value(row: Mapping[str, Any]) -> str:
    if row["measured"] is None:
        return NOTHING
    unit = {"x": "×"}.get(row["unit"] or "", f" {row['unit'] or ''}").rstrip()
    low, high = row["low"], row["high"]
    spread = f"<br>{small(f'{low:.4g}–{high:.4g}')}" if low is not None else ""
    whole = float(row["measured"]).is_integer()
    return f"{row['measured']:,.0f}{unit}{spread}" if whole else f"{row['measured']:.4g}{unit}{spread}"


# ---------------------------------------------------------------- work


def work(evidence: Measured, family: str, hdim: int) -> Table:
    """What each version of a family does in one call at a head dim, counted exactly; and the time that it takes."""
    frame = read_table(COUNTS, "counts") if COUNTS.exists() else pd.DataFrame(columns=["version", "hdim"])
    by_version = dict(list(frame[frame["hdim"] == hdim].groupby("version", sort=False)))
    found: list[tuple[str, Problem, Mapping[str, float]]] = []
    for name in evidence.versions(family):
        problem = evidence.shapes(name).get(hdim)
        if name in by_version and problem:
            mine = by_version[name]
            mine = mine[[problem_of(row) == problem for row in mine.to_dict("records")]]
            found.append((name, problem, mine.groupby("counter")["value"].sum().to_dict()))
    shown = [entry for entry in WORK if any(totals.get(entry[0]) for _, _, totals in found)]
    rows = [
        (
            tables.link(name) + (f" {small(f'R {problem.rotary_dim}')}" if problem.rotary_dim else ""),
            *(number(total / divisor) if (total := totals.get(counter)) else NOTHING for counter, _, divisor in shown),
            tables.microseconds(evidence.time(name, problem)),
        )
        for name, problem, totals in found
        if totals
    ]
    header = ("version", *(words for _, words, _ in shown), "device, µs")
    return Table(
        header,
        rows,
        numbers=header[1:],
        caption=f"One call at head dim {hdim}, executed by the emulator and counted; device_warm on the "
        f"{evidence.gpu['name']}.",
    )
