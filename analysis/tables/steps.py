"""The table of a step of a ladder: its speeds, published and measured, and where its result is right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import Any, NamedTuple

from kernels import VERSIONS, Problem

from ..evidence import Estimate, Evidence, Study
from ..evidence.known import NOT_MEASURED, OK, UNSUPPORTED, WRONG
from ..evidence.origin import measured
from ..measure.studies import SOURCE_TIMER
from ..record import published
from ..record.files import DataError
from ..record.text import NOTHING, factor
from .speed import home
from .table import Table, lines, link, mark, rotary, short, small, status, why_none

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
    found: dict[tuple[float | None, float | None], list[str]] = {}
    for document in dict.fromkeys([*times["source_document"], *speeds["source_document"]]):
        ours, ratios, base = (frame[frame["source_document"] == document] for frame in (times, speeds, theirs))
        given = [1 / row.value if row.unit == "x_slower" else row.value for row in ratios.itertuples()]
        taken = [float(value) for value in dict.fromkeys(ours["value"])]
        if not given and taken and len(base):
            places = dict(zip(base["locator"].str.partition(";")[0], base["value"]))
            given = [places.get(ours["locator"].str.partition(";")[0].iloc[0], base["value"].iloc[0]) / taken[0]]
        given = list(dict.fromkeys(round(float(value), 2) for value in given))
        for place in range(max(len(given), len(taken))):
            speed, ms = (each[min(place, len(each) - 1)] if each else None for each in (given, taken))
            found.setdefault((speed, ms), []).append(DOCUMENTS.get(document, RUN))
    named = {pair: [each for each in dict.fromkeys(sources) if each != RUN] for pair, sources in found.items()}
    if not any(named.values()):
        return [Stated(*pair, RUN) for pair in found]
    return [Stated(*pair, ", ".join(sources)) for pair, sources in named.items() if sources]


def speeds(e: Evidence, *names: str, over: str | Sequence[str] = ()) -> Table:
    """Published and measured speeds of a step: a row a head dim, version and baseline, and whether the result is right.

    `over` names the baselines, by default what the version's source compares it with; one without a baseline has
    times alone. Where documents print different numbers, each stands with its source.

    Raises: DataError for a version that there is not.
    """
    for name in names:
        if name not in VERSIONS:
            raise DataError(f"there is no version {name!r}")
    family = VERSIONS[names[0]].family
    study, matched = e.study(home(e, family)), e.study("matched")
    given = (over,) if isinstance(over, str) else tuple(over)
    pairs = [(name, base) for name in names for base in given or (VERSIONS[name].baseline or "",)]
    bases = list(dict.fromkeys(base for _, base in pairs))
    rows = []
    for name, base in pairs:
        problems = list(_problems(study, name))
        told = [p for p in problems if study.known(name, p).word != UNSUPPORTED or stated(name, base, p)]
        rows += [_row(e, study, matched, name, base, problem) for problem in told or problems]
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
    caption = _caption(e, study, matched, names, bases)
    return Table.from_frame(rows, columns, slice(first, None), caption, measured(e, study.name, "matched"))


def _problems(study: Study, name: str) -> Iterable[Problem]:
    """One a head dim; of a version without a baseline each that it takes, or all that it refuses."""
    if VERSIONS[name].baseline:
        return study.shapes(name, refused=True).values()
    problems = study.problems(VERSIONS[name].family)
    return [problem for problem in problems if study.known(name, problem).word != UNSUPPORTED] or problems


def _shape(problem: Problem) -> tuple[Any, ...]:
    """What problems of the published and of the matched load share."""
    return problem.hdim, problem.rotary_dim, problem.seq_q, problem.causal


def _row(e: Evidence, study: Study, matched: Study, name: str, base: str, problem: Problem) -> dict[str, str]:
    alike = next((p for p in matched.problems(problem.family) if _shape(p) == _shape(problem)), None)
    return {
        "version": link(name, short(name)),
        "over": link(base),
        "hdim": f"{problem.hdim}{rotary(problem) if problem.rotary_dim < problem.hdim else ''}",
        "published": _published(stated(name, base, problem)),
        **{timer: _measured(e, study, base, name, problem, timer) for timer in (SOURCE_TIMER, "device_warm")},
        "matched": _measured(e, matched, base, name, alike, "device_warm") if alike else small(NOT_MEASURED),
    }


def _published(said: Sequence[Stated]) -> str:
    """Each printed speedup with its times; with their sources where documents differ, or none prints it."""
    sourced = len(said) > 1 or any(each.source == RUN for each in said)
    under: dict[str, list[str]] = {}
    for each in said:
        text = " ".join(filter(None, (f"{each.ms:.3f} ms" if each.ms else "", each.source if sourced else "")))
        under.setdefault(factor(each.speedup) if each.speedup else "", []).append(text)
    return lines(*(_cell(first, *rest) for first, rest in under.items())) or NOTHING


def _cell(first: str, *rest: str) -> str:
    """A number, and smaller what belongs to it."""
    after = "; ".join(filter(None, rest))
    return " ".join(filter(None, (first, small(after) if after else "")))


def speedup_over(e: Evidence, study: Study, base: str, name: str, problem: Problem, timer: str) -> Estimate:
    """The speedup of a version over another on a problem; over one that was published for another mask, with that."""
    found = e.speedup(name, base, study.name, timer, problem=problem)[problem]
    theirs = next((p for p in study.problems(problem.family) if replace(p, causal=problem.causal) == problem), problem)
    if found or theirs == problem:
        return found
    slow = e.time(base, study.name, timer, problem=theirs)[theirs]
    return slow / e.time(name, study.name, timer, problem=problem)[problem]


def _measured(e: Evidence, study: Study, base: str, name: str, problem: Problem, timer: str) -> str:
    """A speedup with its interval and the time, or why there is none."""
    us = e.time(name, study.name, timer, problem=problem)[problem]
    if not us:
        return status(why_none(us))
    time = f"{us.value:,.1f} µs"
    if not base:
        return time
    found = speedup_over(e, study, base, name, problem, timer)
    if not found:
        why = why_none(e.time(base, study.name, timer, problem=problem)[problem]).word
        return _cell("", time, f"{base} {why}")
    half = (found.high - found.low) / 2
    apart = "" if math.isnan(half) else f"±{half:.2f}" if half >= 0.1 else f"±{half:.1g}"
    return lines(_cell(factor(found.value), apart), small(time))


def _caption(e: Evidence, study: Study, matched: Study, names: Sequence[str], bases: Sequence[str]) -> str:
    over = ", ".join(link(base) for base in bases if base)
    what = f"Speedup over {over}, ± half its 95 % interval; above 1 is faster. Small: time of a call."
    family = VERSIONS[names[0]].family
    told = (
        what if over else "Time of a call.",
        " R: rotated dims, where not all." if family == "rope" else "",
        f" Published: {published.card(family)}; measured: {e.card}.",
        "" if matched else " Matched load: not measured.",
    )
    results = {name: right_where(study, name) + _wrong_there(study, matched, name) for name in names}
    right = "; ".join(
        f"{link(name, short(name))}: {text}" if len(names) > 1 else text for name, text in results.items()
    )
    page = f" Code, counters and all numbers: {link(names[0])}." if len(names) == 1 else ""
    changed = [each for each in dict.fromkeys((*names, *filter(None, bases))) if each in study.stale_versions()]
    stale = f"{mark('stale')} Measured before the code of {', '.join(map(link, changed))} changed." if changed else ""
    return lines("".join(told), f"<b>Result</b> {right}.{page}", stale)


def right_where(study: Study, name: str) -> str:
    """At which head dims the result of a version is right, and where it is not, why: `"right at 128, 512"`."""
    told: dict[str, dict[str, str]] = {}
    for problem in _problems(study, name):
        here = study.known(name, problem)
        told.setdefault(here.word, {}).setdefault(str(problem.hdim), here.reason)
    parts = []
    for word, reasons in told.items():
        given = {hdim: reason for hdim, reason in reasons.items() if reason and word != OK}
        hdim, why = next(iter(given.items()), ("", ""))
        place = f"at {hdim}: " if len(set(given.values())) > 1 and hdim not in why else ""
        why = f" ({place}{escape(why)})" if why else ""
        parts.append(f"{'right' if word == OK else word} at {', '.join(reasons)}{why}")
    return "; ".join(parts) or NOT_MEASURED


def _wrong_there(study: Study, matched: Study, name: str) -> str:
    """At which head dims a result that is right at the published shape is wrong with the matched load."""
    right = {problem.hdim for problem in _problems(study, name) if study.known(name, problem).word == OK}
    there = [p.hdim for p in matched.problems(VERSIONS[name].family) if matched.known(name, p).word == WRONG]
    wrong = [str(hdim) for hdim in dict.fromkeys(there) if hdim in right]
    return f"; with the matched load {WRONG} at {', '.join(wrong)} too" if wrong else ""
