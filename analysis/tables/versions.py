"""Tables of a version's page: times, checks, launches, counts, what the documents state; and of all versions."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

import pandas as pd

from kernels import VERSIONS, Problem, Version
from kernels.checking.check import supports

from ..claims.rule import compare
from ..evidence import Evidence, Source, Study, measured, published_on
from ..evidence.known import WRONG, word
from ..models.moves import example
from ..models.rivals import label
from ..record import published
from ..record.files import DATA, read_records
from ..record.published import main_problems
from ..record.text import NOTHING, number, span
from ..studies import STUDIES, TIMERS
from .table import Table, code, lines, link, mark, short, small, speedup_cell, stated, status, time_cell

Reason = tuple[str, str, str]
LIBRARIES = ("cudnn", "flashinfer", "fa3")  # beside what goes beyond the log, in names of peers


def of_table(table: str) -> list[tuple[str, str, float]]:
    """Counters that the pages show of counts.csv or counters.csv: counter, words, and by what it is divided."""
    rows = (row for row in read_records(DATA / "shown.csv", "shown") if row["table"] == table)
    return [(row["name"], row["words"], row["per"]) for row in rows]


COUNTERS, METRICS = of_table("counts"), of_table("counters")


def in_order(family: str) -> list[Version]:
    """The versions of a family as the pages follow: the log's, each before its fast-math build; ablations; controls;
    peers."""
    order = list(VERSIONS)
    mine = [version for version in VERSIONS.values() if version.family == family]
    return sorted(mine, key=lambda v: (v.is_peer, bool(v.control_of), v.ablation, order.index(v.built_from), v.id))


def complete(e: Evidence) -> list[Study]:
    """The studies with a complete run."""
    return [study for study in map(e.study, STUDIES) if study]


def taken(study: Study, version: Version) -> list[Problem]:
    """The measured problems of a version but those that it does not take."""
    mine = study.taken.get(version.id, ())
    return [problem for problem in study.problems(version.family) if problem in mine]


def shape(problem: Problem) -> str:
    """Head dim, and the rest of the shape small, with its dtype."""
    rest = label(problem).replace(f" D{problem.hdim}", "")
    rest += f" {problem.dtype}" * (problem.dtype not in rest)
    return f"{problem.hdim} {small(rest + f' {problem.table} table' * (problem.table != 'computed'))}"


def times(e: Evidence, version: Version) -> list[tuple[str, Table]]:
    """Words and a table of times and ratios by shape for each study."""
    tables = []
    for study in complete(e):
        if problems := taken(study, version):
            about = STUDIES[study.name].about
            tables.append((f"Study {study.name}: {about[0].lower()}{about[1:]}", _times(e, study, version, problems)))
    return tables


def _times(e: Evidence, study: Study, version: Version, problems: Sequence[Problem]) -> Table:
    others = list(dict.fromkeys(name for name in (version.baseline, version.parent) if name))
    peers = (name for name in study.taken if name in VERSIONS and any(word in name for word in LIBRARIES))
    others += peers if version.beyond else ()
    others = [each for each in others if e.speedup(version.id, each, study.name, "device_warm", problem=problems).known]
    us = {timer: e.time(version.id, study.name, timer, problem=problems) for timer in TIMERS}
    us = {timer: found for timer, found in us.items() if found}
    claims = {problem: _published(e, study, version, problem) for problem in problems}
    caption = (
        f"Run {study.run['run']} on the {e.card}. Over: how many times as fast, on the device "
        f"(device_warm), with the 95 % interval {e.covers()}. µs: median of "
        f"{study.processes} processes ± half their range. Error: the largest, as a share of what "
        "is allowed; a declared wrong result is compared with itself, in float64."
    )
    if any(claims.values()):
        caption += f" Published on the {published.card(version.family)}; times of different cards are not compared."
    if version.id in study.stale_versions():
        caption += " <b>Stale</b>: the code has changed since."
    stated = ["published"] if any(claims.values()) else []
    measured = [*(f"over {other}" for other in others), *stated, *(f"{timer}, µs" for timer in us)]
    header = ["shape", "check", *(title.replace("_", "_<wbr>") for title in measured)]
    rows = [
        (
            shape(problem),
            _checked(study, version.id, problem),
            *(speedup_cell(e, version.id, other, problem, study.name) for other in others),
            *(claims[problem] or NOTHING for _ in stated),
            *(time_cell(found[problem]) for found in us.values()),
        )
        for problem in problems
    ]
    return Table(header, rows, header[2:], caption)


def _checked(study: Study, version: str, problem: Problem) -> str:
    """The outcome of the check, and the largest error as a share of what is allowed."""
    check = study.check(version, problem)
    excess = check.excess if check else math.nan
    return lines(status(study.known(version, problem)), small(f"error {excess:.0%}") if math.isfinite(excess) else "")


def _published(e: Evidence, study: Study, version: Version, problem: Problem) -> str:
    """The published speedup over the baseline, how the measured one compares with it, and the published time."""
    parts = []
    if version.baseline and (claim := published.speedup(version.id, version.baseline, problem)):
        found = e.speedup(version.id, version.baseline, study.name, "device_warm", problem=problem)[problem]
        how = compare(claim.value, claim.value, found) if found else ""
        parts += [stated(claim), small(how) if how else ""]
    if took := published.published(version.id, problem):
        ends = dict.fromkeys(f"{end:.3f}" for end in (took.low, took.high))
        parts.append(small(f"{'–'.join(ends)} ms"))
    return lines(*parts)


def reasons(e: Evidence, version: Version) -> tuple[list[Reason], list[Reason]]:
    """Why results are not right, and why problems are not taken: a badge, a text and the head dims of each."""
    checks = pd.concat([pd.DataFrame(columns=["version", "reason"]), *(study.checks for study in complete(e))])
    mine = checks[(checks["version"] == version.id) & checks["reason"].notna()]
    mine = mine.assign(hdim=mine["hdim"].astype(int)).sort_values("hdim", kind="stable")
    wrong: list[Reason] = []
    refused: list[Reason] = []
    for (how, why), dims in mine.groupby(["status", "reason"], sort=False)["hdim"]:
        told = mark(word(how)), why, ", ".join(map(str, dims.unique()))
        (refused if how == "unsupported" else wrong).append(told)
    return wrong, refused


def hazards(e: Evidence, version: Version) -> Table:
    """Declared defects of memory, and which tool saw them on the GPU."""
    studied = ([p for p in study.problems if supports(version, p)] for study in STUDIES.values())
    plans = map(version, next(filter(None, studied), [example(version).problem]))
    declared = [(h.kind, h.kernel, h.place, h.why, plan.problem.hdim) for plan in plans for h in plan.hazards]
    frame = pd.DataFrame(declared, columns=["kind", "kernel", "place", "why", "hdim"])
    seen = e.record.frame("sanitizers")
    seen = seen[seen["version"] == version.id]
    rows = []
    for (kind, kernel, place, why), dims in frame.groupby(["kind", "kernel", "place", "why"], sort=False)["hdim"]:
        tools = set(seen.loc[seen["finding"] == kind, "tool"])
        told = kind.replace("_", " "), code(kernel), code(place), escape(why), ", ".join(map(str, dims.unique()))
        rows.append((*told, ", ".join(sorted(tools)) or NOTHING))
    undeclared = seen[~seen["expected"].astype(bool) & (seen["finding"] != "not_checked")]
    for kind, tool in undeclared[["finding", "tool"]].drop_duplicates().itertuples(index=False):
        rows.append((kind.replace("_", " "), NOTHING, NOTHING, "not declared: the emulator finds none", NOTHING, tool))
    return Table(
        ("hazard", "kernel", "place", "why", "head dim", "seen on the GPU by"),
        rows,
        caption="The emulator sees exactly what is declared: a check that sees more or less fails.",
    )


def resources(e: Evidence, version: Version) -> Table | str:
    """Reports of the compiler for every target; shapes with equal reports share a row."""
    groups = e.record.resources.get(version.id)
    if not groups:
        return ""
    found = pd.concat(groups.values())
    targets = list(dict.fromkeys(found["target"]))
    found["cell"] = [
        lines(
            f"{row.registers} {small(f'× {row.blocks_per_sm}')}",
            *(small(f"{what} {n:,}") for what, n in (("spills", row.spill_bytes), ("stack", row.stack_bytes)) if n),
        )
        for row in found.itertuples()
    ]
    wide = found.set_index(["launch", "kernel", "hdim", "problem", "shared_bytes", "target"])["cell"].unstack()
    wide = wide.reindex(columns=targets).fillna(NOTHING).reset_index()
    rows = [
        (
            f"{launch + 1}. {code(kernel)}",
            ", ".join(map(str, mine["hdim"].unique())),
            span(mine["shared_bytes"]),
            *cells,
        )
        for (launch, kernel, *cells), mine in wide.groupby(["launch", "kernel", *targets], sort=False)
    ]
    header = ("launch", "head dim", "shared, B", *targets)
    caption = (
        "Registers a thread × blocks that an SM holds, by target; where there are any, bytes that a thread "
        "spills and bytes of its stack. Assembled without a GPU."
    )
    return Table(header, rows, numbers=header[2:], caption=caption)


def totals(groups: Mapping[Problem, pd.DataFrame], name: str) -> dict[Problem, dict[str, float]]:
    """By problem, the sum of each counter over the launches; of what is no sum, that of the last launch."""
    found = {}
    for problem in main_problems(groups):
        values = groups[problem].sort_values("launch", kind="stable").groupby(name)["value"]
        sums = values.sum()
        found[problem] = sums.where([".sum" in key or "__" not in key for key in sums.index], values.last()).to_dict()
    return found


def counts(e: Evidence, version: Version) -> Table:
    """Exact counts from the emulator, beside those of the parent."""
    parent = version.parent or version.baseline or ""
    own, others = (totals(e.record.counts.get(each, {}), "counter") for each in (version.id, parent))
    caption = "One call, all launches and blocks, executed by the emulator. The assembler may fuse more than PTX does."
    if set(own) & set(others):
        caption += f" Small: times those of {code(parent)} on the same problem."
    header = ("counted", *map(shape, own))
    return Table(header, list(_grid(own, others, COUNTERS)), header[1:], caption)


def counters(e: Evidence, version: Version) -> Table:
    groups = e.record.counters.get(version.id, {})
    groups = {problem: rows[rows["study"] != "matched"] for problem, rows in groups.items()}
    own = totals({problem: rows for problem, rows in groups.items() if len(rows)}, "metric")
    rows, header = list(_grid(own, {}, METRICS)), ("counter", *map(shape, own))
    return Table(header, rows, header[1:], f"One call on the {e.card}, read by Nsight Compute.")


def _grid(
    own: Mapping[Problem, Mapping[str, float]],
    others: Mapping[Problem, Mapping[str, float]],
    shown: Iterable[tuple[str, str, float]],
) -> Iterator[tuple[str, ...]]:
    """A row a counter and a cell a problem, with the ratio to another version where that counts it too."""
    for counter, words, divisor in shown:
        if not any(values.get(counter) for values in own.values()):
            continue
        cells = []
        for problem, values in own.items():
            value, other = values.get(counter, 0.0), others.get(problem, {}).get(counter, 0.0)
            cells.append(lines(number(value / divisor), small(f"{value / other:.3g}×") if other else ""))
        yield (words, *cells)


def overview(e: Evidence, family: str) -> Table:
    """A line a version of a family: what it changes, how its checks went, and its speed over its baseline.

    Of each version the first of the studies that it was measured in.
    """
    studies, rows, used = complete(e), [], []
    for version in in_order(family):
        study = next((each for each in studies if version.id in each.taken), None)
        parent = f"{code(version.parent)}: " if version.parent else ""
        wrong = _what_is_wrong(study, version) if study else []
        used += [study.name] if study else []
        change = lines(parent + escape(version.change) or NOTHING, *map(small, wrong))
        told = _in_short(e, study, version) if study else (small("not measured"), NOTHING, NOTHING)
        name = f"{link(version.id)}<small class='title'><br>{escape(version.title)}</small>"
        rows.append((name, change, *told))
    header = ("version", "what it changes", "check", "speed, GPU alone", "published")
    caption = (
        "Small in the checks: head dims. Speed over the version that its source names as its baseline, from the least "
        "to the largest over the head dims; above 1 the version is faster."
    )
    source = measured(e, *dict.fromkeys(used)) + published_on(family) if used else Source()
    return Table(header, rows, header[3:], caption, source=source)


def _what_is_wrong(study: Study, version: Version) -> list[str]:
    """Why results of a version are wrong, a sentence a reason; of a reason that another contains, the longer."""
    found = study.checks.loc[(study.checks["version"] == version.id) & (study.checks["status"] == WRONG), "reason"]
    reasons = found.unique()
    return [f"Wrong: {escape(each)}." for each in reasons if not any(each in other != each for other in reasons)]


def _in_short(e: Evidence, study: Study, version: Version) -> tuple[str, str, str]:
    """Checks by outcome, and the speedups over the baseline, as measured and as published."""
    problems = taken(study, version)
    outcomes = study.outcomes(version.id, problems)
    where = {how: ", ".join(dims) if len(outcomes) > 1 else "everywhere" for how, dims in outcomes.items()}
    shown = lines(*(f"{mark(how)} {small(dims)}" for how, dims in where.items()))
    speeds = NOTHING, NOTHING
    if version.baseline and problems:
        found = e.speedup(version.id, version.baseline, study.name, "device_warm", problem=problems)
        claims = [published.speedup(version.id, version.baseline, problem) for problem in problems]
        over = small(f"over {short(version.baseline)}")
        said = span((claim.value for claim in claims if claim), "×", 2)
        speeds = lines(f"{found:.2}", over) if found else NOTHING, said
    best = study.best(version.id, study.problems(version.family))
    return shown or status(best), *speeds
