"""The table of a step of a ladder: its speeds, published and measured, and where its result is right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import Any, NamedTuple

from kernels import VERSIONS, Problem

from ..book.origin import measured_in
from ..measure.studies import SOURCE_TIMER
from ..records import published
from ..records.files import DataError
from ..records.interval import Ratio, geometric_mean
from ..records.known import NOT_MEASURED, OK, UNSUPPORTED, WRONG, Known, known
from ..records.measured import Measured, baseline_of
from ..records.text import NOTHING, factor
from .table import Table, lines, link, mark, rotary, short, small, status

DOCUMENTS = dict(zip(published.DOCUMENTS, ("write-up", "summary", "log", "analysis", "status report")))
RUN = "a run's log"  # of which no document prints the number
ESTIMATE = "estimate, not profiled"  # the note on a time that is of a part of a call


class Stated(NamedTuple):
    """What one document prints of a version on a problem: a speedup over a baseline, milliseconds, or both."""

    speedup: float | None
    ms: float | None
    source: str


def stated(name: str, baseline: str, problem: Problem) -> list[Stated]:
    """Every speedup over a baseline and every time that is printed of a version on a problem, the documents first.

    Where a document prints a time and no speedup, it is that of its two times.
    """
    times, speeds = (published.rows(name, problem, each) for each in ("time_ms", "speedup"))
    times = times[times["note"] != ESTIMATE]
    speeds = speeds[speeds["baseline"] == baseline] if baseline else speeds.head(0)
    theirs = published.rows(baseline, problem, "time_ms") if baseline else times.head(0)
    found: dict[tuple[float | None, float | None], dict[str, None]] = {}
    for document in dict.fromkeys([*times["source_document"], *speeds["source_document"]]):
        ours, ratios, base = (frame[frame["source_document"] == document] for frame in (times, speeds, theirs))
        given = [1 / row.value if row.unit == "x_slower" else row.value for row in ratios.itertuples()]
        taken = [float(value) for value in dict.fromkeys(ours["value"])]
        if not given and taken and len(base):
            places = dict(zip(base["locator"].str.partition(";")[0], base["value"]))
            own = ours["locator"].str.partition(";")[0].iloc[0]
            given = [places.get(own, base["value"].iloc[0]) / taken[0]]
        given = list(dict.fromkeys(round(float(value), 2) for value in given))
        for place in range(max(len(given), len(taken))):
            speed, ms = (each[min(place, len(each) - 1)] if each else None for each in (given, taken))
            found.setdefault((speed, ms), {})[DOCUMENTS.get(document, RUN)] = None
    printed = {pair: [*sources] for pair, sources in found.items() if {*sources} & {*DOCUMENTS.values()}}
    named = {pair: [each for each in sources if each != RUN] for pair, sources in printed.items()}
    return [Stated(*pair, ", ".join(sources)) for pair, sources in (named or found).items()]


def speeds(evidence: Measured, *names: str, over: str | Sequence[str] = ()) -> Table:
    """Published and measured speeds of a step: a row a head dim, version and baseline, and whether the result is right.

    `over` names the baselines, by default what the version's source compares it with; one without a baseline has
    times alone. Where documents print different numbers, each stands with its source.

    Raises: DataError for a version that there is not.
    """
    for name in names:
        if name not in VERSIONS:
            raise DataError(f"there is no version {name!r}")
    given = (over,) if isinstance(over, str) else tuple(over)
    rows = []
    matched = _matched(evidence)
    for name in names:
        for base in given or (baseline_of(name),):
            problems = list(_problems(evidence, name))
            told = [problem for problem in problems if not _only_refused(evidence, name, base, problem)]
            rows += [_row(evidence, matched, name, base, problem) for problem in told or problems]
    bases = list(dict.fromkeys(base for name in names for base in given or (baseline_of(name),)))
    by_host = any(row[SOURCE_TIMER] != small(NOT_MEASURED) for row in rows)
    columns: dict[str, tuple[str, Any]] = {
        **({"version": ("step", str)} if len(names) > 1 else {}),
        **({"over": ("over", str)} if len(bases) > 1 else {}),
        "hdim": ("head dim", str),
        "published": ("published", str),
        **({SOURCE_TIMER: ("as timed", str)} if by_host else {}),
        "device_warm": ("device", str),
        **({"matched": ("matched load", str)} if matched else {}),
    }
    first = list(columns).index("published") + 1
    table = Table.from_frame(rows, columns, slice(first, None), _caption(evidence, matched, names, bases))
    timed = [each for each in (evidence, matched) if each and each.run.get("run")]
    return table.of(measured_in(*timed)) if timed else table


def _only_refused(evidence: Measured, name: str, base: str, problem: Problem) -> bool:
    """Whether nothing is known but that a version does not take a problem: no document prints a number there."""
    return known(evidence, name, problem).word == UNSUPPORTED and not stated(name, base, problem)


def _matched(evidence: Measured) -> Measured | None:
    """The study in which an SM has the load that it had on the authors' card; None where it is not measured."""
    from ..book.notebook import try_load

    return try_load(evidence.slug, "matched")


def _problems(evidence: Measured, name: str) -> Iterable[Problem]:
    """One a head dim; of a version without a baseline each that it takes, or all that it refuses."""
    if baseline_of(name):
        return evidence.shapes(name, refused=True).values()
    problems = evidence.problems(VERSIONS[name].family)
    return [problem for problem in problems if known(evidence, name, problem).word != UNSUPPORTED] or problems


def _row(evidence: Measured, matched: Measured | None, name: str, base: str, problem: Problem) -> dict[str, str]:
    alike = None
    if matched:
        alike = next((p for p in matched.problems(problem.family) if _same_shape(p, problem)), None)
    return {
        "version": link(name, short(name)),
        "over": link(base),
        "hdim": f"{problem.hdim}{rotary(problem) if problem.rotary_dim < problem.hdim else ''}",
        "published": _published(stated(name, base, problem)),
        **{timer: _measured(evidence, base, name, problem, timer) for timer in (SOURCE_TIMER, "device_warm")},
        "matched": _measured(matched, base, name, alike, "device_warm") if matched and alike else small(NOT_MEASURED),
    }


def _same_shape(one: Problem, other: Problem) -> bool:
    return (one.hdim, one.rotary_dim, one.seq_q, one.causal) == (
        other.hdim,
        other.rotary_dim,
        other.seq_q,
        other.causal,
    )


def _published(said: Sequence[Stated]) -> str:
    """Each printed speedup with its times; with their sources where documents differ, or none prints it."""
    sourced = len(said) > 1 or any(each.source == RUN for each in said)
    under: dict[str, list[str]] = {}
    for each in said:
        time = f"{each.ms:.3f} ms" if each.ms else ""
        text = " ".join(filter(None, (time, each.source if sourced else "")))
        under.setdefault(factor(each.speedup) if each.speedup else "", []).append(text)
    return lines(*(_cell(first, *rest) for first, rest in under.items())) or NOTHING


def ratio_over(evidence: Measured, base: str, name: str, problem: Problem, timer: str = "device_warm") -> Ratio | None:
    """The speedup of a version over another on a problem; over one that was published for another mask, with that."""
    if found := evidence.ratio(base, name, problem, timer):
        return found
    theirs = next((p for p in evidence.problems(problem.family) if replace(p, causal=problem.causal) == problem), None)
    if theirs is None:
        return None
    pairs = (evidence.medians(base, theirs, timer) / evidence.medians(name, problem, timer)).dropna()
    return None if pairs.empty else geometric_mean(pairs.to_numpy())


def _cell(first: str, *rest: str) -> str:
    """A number, and smaller what belongs to it."""
    after = "; ".join(filter(None, rest))
    return " ".join(filter(None, (first, small(after) if after else "")))


def _measured(evidence: Measured, base: str, name: str, problem: Problem, timer: str) -> str:
    """A speedup with its interval and the time, or why there is none."""
    taken = evidence.time(name, problem, timer)
    if not taken:
        here = known(evidence, name, problem)
        return status(Known(NOT_MEASURED) if here.ran else here)
    time = f"{taken.us:,.1f} µs"
    if not base:
        return time
    found = ratio_over(evidence, base, name, problem, timer)
    if not found:
        here = known(evidence, base, problem)
        why = NOT_MEASURED if here.ran else here.word
        return _cell("", time, f"{base} {why}")
    half = (found.high - found.low) / 2
    apart = "" if math.isnan(half) else f"±{half:.2f}" if half >= 0.1 else f"±{half:.1g}"
    return lines(_cell(factor(found.value), apart), small(time))


def _caption(evidence: Measured, matched: Measured | None, names: Sequence[str], bases: Sequence[str]) -> str:
    over = ", ".join(link(base) for base in bases if base)
    what = (
        f"Speedup over {over}, ± half its 95 % interval; above 1 is faster. Small: time of a call."
        if over
        else "Time of a call."
    )
    cards = f" Published: {published.card(VERSIONS[names[0]].family)}; measured: {evidence.card}."
    absent = "" if matched else " Matched load: not measured."
    results = {name: right_where(evidence, name) + _wrong_there(evidence, matched, name) for name in names}
    right = "; ".join(
        f"{link(name, short(name))}: {text}" if len(names) > 1 else text for name, text in results.items()
    )
    page = f" Code, counters and all numbers: {link(names[0])}." if len(names) == 1 else ""
    rotated = " R: rotated dims, where not all." if VERSIONS[names[0]].family == "rope" else ""
    changed = [each for each in dict.fromkeys((*names, *filter(None, bases))) if each in evidence.stale_versions()]
    stale = f"{mark('stale')} Measured before the code of {', '.join(map(link, changed))} changed." if changed else ""
    return lines(f"{what}{rotated}{cards}{absent}", f"<b>Result</b> {right}.{page}", *filter(None, (stale,)))


def right_where(evidence: Measured, name: str) -> str:
    """At which head dims the result of a version is right, and where it is not, why: `"right at 128, 512"`."""
    told: dict[str, dict[str, str]] = {}
    for problem in _problems(evidence, name):
        here = known(evidence, name, problem)
        told.setdefault(here.word, {}).setdefault(str(problem.hdim), here.reason)
    parts = []
    for word, reasons in told.items():
        given = {hdim: reason for hdim, reason in reasons.items() if reason and word != OK}
        hdim, why = next(iter(given.items()), ("", ""))
        place = f"at {hdim}: " if len(set(given.values())) > 1 and hdim not in why else ""
        why = f" ({place}{escape(why)})" if why else ""
        parts.append(f"{'right' if word == OK else word} at {', '.join(reasons)}{why}")
    return "; ".join(parts) or NOT_MEASURED


def _wrong_there(evidence: Measured, matched: Measured | None, name: str) -> str:
    """At which head dims a result that is right at the published shape is wrong with the matched load."""
    if not matched:
        return ""
    right = {problem.hdim for problem in _problems(evidence, name) if known(evidence, name, problem).word == OK}
    there = matched.problems(VERSIONS[name].family)
    found = dict.fromkeys(problem.hdim for problem in there if known(matched, name, problem).word == WRONG)
    wrong = [str(hdim) for hdim in found if hdim in right]
    return f"; with the matched load {WRONG} at {', '.join(wrong)} too" if wrong else ""
