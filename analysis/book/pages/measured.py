"""Tables of a version's page: times, checks, and what the documents state of it; and the overview of all versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from kernels import Problem, Unsupported, Version

from ...measure.studies import STUDIES, TIMERS
from ...records import published
from ...records.known import REFUSED, WRONG, best, known, word
from ...records.measured import Measured
from ...records.text import NOTHING, ratios
from ...tables.table import (
    Table,
    badge,
    code,
    compared,
    error,
    lines,
    link,
    mark,
    name,
    share,
    small,
    stale,
    stated,
    status,
    timed,
)
from ...verdicts.rule import stands
from ..origin import Source, measured_in, published_on
from .records import Records, families, in_order, planned

FAMILIES = {"rope": "RoPE", "fp16": "Half precision", "alibi": "ALiBi"}  # the others are capitalised
UNITS = {"x_faster": "× as fast", "x_slower": "× as long"}


def family_title(family: str) -> str:
    return FAMILIES.get(family, family.capitalize())


def shape(problem: Problem) -> str:
    """Head dim, and the rest of the shape small."""
    parts = [f"B {problem.batch} H {problem.heads} S {problem.seq_q}"]
    parts += [f"/{problem.seq_k}"] if problem.seq_k != problem.seq_q else []
    parts += [f" R {problem.rotary_dim}"] if problem.rotary_dim else []
    parts += [" causal"] if problem.causal else []
    parts += [f" {problem.table} table"] if problem.table != "computed" else []
    return f"{problem.hdim} {small(''.join(parts))}"


def times(records: Records, version: Version) -> list[tuple[str, Table]]:
    """Words and a table of times and ratios by shape for each study, the documents' shapes first."""
    tables = []
    for study, problems in records.taken(version.id).items():
        main = published.main_problems(problems)
        rest = [problem for problem in problems if problem not in main]
        about = f"Study {study}: {STUDIES[study].about[0].lower()}{STUDIES[study].about[1:]}"
        for chosen, words in ((main, about), (rest, f"{about}; all dims rotated")):
            if chosen:
                tables.append((words, _times(records.studies[study], version, chosen)))
    return tables


def _times(measured: Measured, version: Version, problems: Sequence[Problem]) -> Table:
    others = list(dict.fromkeys(name for name in (version.baseline, version.parent) if name))
    timers = [timer for timer in TIMERS if any(measured.time(version.id, p, timer) for p in problems)]
    claims = {problem: _published(measured, version, problem) for problem in problems}
    card = published.card(version.family)
    caption = (
        f"Run {measured.run['run']} on the {measured.card}. Over: how many times as fast, on the device "
        f"(device_warm), with the 95 % interval {measured.covers()}. µs: median of "
        f"{measured.processes} processes ± half their range."
    )
    if any(claims.values()):
        caption += f" Published on the {card}; times of different cards are not compared."
    if stale(measured, version.id, problems):
        caption += " <b>Stale</b>: the code has changed since."
    return Table.from_frame(
        [
            {
                "shape": shape(problem),
                "check": status(known(measured, version.id, problem)),
                **{other: compared(measured, other, version.id, problem) for other in others},
                "published": claims[problem] or NOTHING,
                **{timer: timed(measured, version.id, problem, timer) for timer in timers},
            }
            for problem in problems
        ],
        {
            "shape": ("shape", str),
            "check": ("check", str),
            **{other: (f"over {other}".replace("_", "_<wbr>"), str) for other in others},
            **({"published": ("published", str)} if any(claims.values()) else {}),
            **{timer: (f"{timer}, µs".replace("_", "_<wbr>"), str) for timer in timers},
        },
        slice(2, None),
        caption,
    )


def _published(measured: Measured, version: Version, problem: Problem) -> str:
    """The published speedup over the baseline, how the measured one stands to it, and the published time."""
    parts = []
    if version.baseline and (claim := published.speedup(version.id, version.baseline, problem)):
        how = stands(claim.value, measured.ratio(version.baseline, version.id, problem))
        parts += [stated(claim, "×"), small(how) if how else ""]
    if taken := published.published(version.id, problem):
        ends = dict.fromkeys(f"{end:.3f}" for end in (taken.low, taken.high))
        parts.append(small(f"{'–'.join(ends)} ms"))
    return lines(*parts)


def unmeasured(records: Records, version: Version) -> str:
    """What to say of a version without a time: that it is not measured, or that the card does not take it."""
    home = records.home(version.family)
    found = [known(home, version.id, problem) for problem in home.problems(version.family)] if home else []
    if found and all(each.word in REFUSED for each in found):
        return f"It does not run on the {records.gpu}: {found[0].reason}."
    return f"Not measured on the {records.gpu} yet."


def expected(version: Version) -> Table:
    """What its plans say that it does, where nothing was measured."""
    rows = [(shape(problem), plan.expected, escape(plan.defect)) for problem, plan in planned(version.id).items()]
    return Table(("shape", "declared", "reason"), rows)


def cores(records: Records, version: Version) -> str:
    """Which V8 cores ran, and on how many of the measured problems; empty of other versions."""
    ran = {
        problem: measured.core(version.id, problem)
        for measured in records.studies.values()
        for problem in measured.problems(version.family)
    }
    counted = Counter(core for core in ran.values() if core)
    return ", ".join(f"`{core}` on {number} problems" for core, number in counted.most_common())


def checks(records: Records, version: Version) -> dict[str, Any]:
    """Every check of every study as a table, and why a result is not right, or a problem not taken.

    Such a reason is a badge, a text and the head dims, which are not named of a single one that the text names.
    """
    rows = []
    reasons: dict[tuple[str, str], list[Problem]] = {}
    for study, measured in records.studies.items():
        for problem in measured.problems(version.family):
            check = measured.check(version.id, problem)
            if check and check.reason:
                reasons.setdefault((check.status, check.reason), []).append(problem)
            if check and check.status != "unsupported":
                rows.append({"study": study, "problem": problem, "check": check, **check._asdict()})
    given: dict[bool, list[tuple[str, str, str]]] = {False: [], True: []}
    for (how, reason), problems in sorted(reasons.items(), key=lambda entry: entry[1][0].hdim):
        where = list(dict.fromkeys(str(problem.hdim) for problem in problems))
        named = len(where) == 1 and _refuses_the_hdim(version, problems[0])
        given[how == "unsupported"].append((mark(word(how)), reason, "" if named else ", ".join(where)))
    table = Table.from_frame(
        rows,
        {
            "study": ("study", code),
            "problem": ("shape", shape),
            "check": ("check", badge),
            "max_abs_err": ("largest error", error),
            "allowed_abs_err": ("allowed", error),
            "nan_share": ("NaN", share),
        },
        slice(3, None),
        "Against float64 on two inputs; the worse decides. The largest error is over outputs that are finite.",
    )
    return {"checks": table, "reasons": given[False], "not_taken": given[True]}


def _refuses_the_hdim(version: Version, problem: Problem) -> bool:
    """Whether a version refuses a problem for its head dim, alone or by the memory that it needs, and so names it."""
    try:
        version(problem)
    except Unsupported as refusal:
        return refusal.kind in ("hdim", "shared_memory")
    return False


def documents(version: Version) -> Table:
    """Every number that is printed or logged of a version."""
    frame = published.load()
    frame = frame[frame["version"] == version.id].astype(object)
    return Table.from_frame(
        [
            {
                **row,
                "place": f"{escape(row['locator'])} {small(row['id'])}",
                "what": escape(row["quantity"].replace("_", " "))
                + (f", over {code(row['baseline'])}" if row["baseline"] else ""),
                "value": f"{row['value']:,.6g} "
                + escape(UNITS.get(row["unit"] or "", (row["unit"] or "").replace("_", " "))),
            }
            for row in frame.where(frame.notna(), None).to_dict("records")
        ],
        {
            "source_document": ("document", escape),
            "place": ("place", str),
            "hdim": ("head dim", "{:.0f}"),
            "what": ("what", str),
            "value": ("value", str),
        },
        slice(2, None, 2),
    )


# ---------------------------------------------------------------- all versions


def overview(studies: Iterable[Measured], family: str = "") -> Table:
    """A line a version: how its checks went and its speed over its baseline, measured and published.

    Of each version the first of the studies that it was measured in. For one family also what each version changes.
    """
    studies = list(studies)
    rows, source = [], Source()
    for version in (version for each in ([family] if family else families()) for version in in_order(each)):
        measured = next((each for each in studies if version.id in set(each.checks["version"])), None)
        source += measured_in(measured) if measured else Source()
        source += published_on(version.family)
        parent = f"{code(version.parent)}: " if version.parent else ""
        wrong = _what_is_wrong(measured, version) if measured else []
        rows.append(
            {
                "family": family_title(version.family),
                "page": link(version.id, f"<code>{version.id}</code>"),
                "version": name(version.id),
                "change": lines(parent + escape(version.change) or NOTHING, *map(small, wrong)),
                **(_in_short(measured, version) if measured else {"check": small("not measured")}),
            }
        )
    about = {"version": ("version", str), "change": ("what it changes", str)}
    listed = {"family": ("family", str), "page": ("version", str)}
    return Table.from_frame(
        [{"measured": (), "published": (), **row} for row in rows],
        {
            **(about if family else listed),
            "check": ("check", str),
            "measured": ("on the device", ratios),
            "published": ("published", ratios),
        },
        slice(3, None),
        "Small: head dims. Speed over the baseline that the source names, least to largest over the head dims; above 1 "
        "the version is faster.",
        source,
    )


def _what_is_wrong(measured: Measured, version: Version) -> list[str]:
    """Why results of a version are wrong, a sentence a reason; of a reason that another contains, the longer."""
    checks = [measured.check(version.id, problem) for problem in measured.problems(version.family)]
    reasons = dict.fromkeys(check.reason for check in checks if check and check.status == WRONG)
    return [f"Wrong: {escape(each)}." for each in reasons if not any(each in other != each for other in reasons)]


def _in_short(measured: Measured, version: Version) -> dict[str, Any]:
    """Checks by outcome, and the speedups over the baseline."""
    outcomes: dict[str, dict[int, None]] = {}
    speeds, claims = [], []
    for problem in measured.problems(version.family):
        check = measured.check(version.id, problem)
        if check and check.status != "unsupported":
            outcomes.setdefault(word(check.status), {})[problem.hdim] = None
            if version.baseline:
                speeds.append(measured.ratio(version.baseline, version.id, problem))
                claims.append(published.speedup(version.id, version.baseline, problem))
    where = {how: ", ".join(map(str, dims)) if len(outcomes) > 1 else "at all" for how, dims in outcomes.items()}
    return {
        "check": lines(*(f"{mark(how)} {small(dims)}" for how, dims in where.items()))
        or status(best(measured, version.id, measured.problems(version.family))),
        "measured": [speed.value for speed in speeds if speed],
        "published": [claim.value for claim in claims if claim],
    }
