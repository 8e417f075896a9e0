"""Tables of a version's page: times, checks, launches, counts, and what the documents state."""

import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from html import escape

import pandas as pd

from kernels import VERSIONS, Problem, Version
from kernels.checking.check import supports

from ..claims.rule import compare, told
from ..evidence import Estimate, Estimates, Evidence, Study
from ..evidence.known import OK, WRONG, word
from ..models.moves import example
from ..models.rivals import Rival, label, rivals
from ..record import published
from ..record.files import DATA, known_gpus, read_records
from ..record.published import main_problems
from ..record.text import NOTHING, factor, number, span
from ..record.timers import timer_of
from ..studies import FUSIONS, MAIN, MATCHED, SLICES, STUDIES, THEIR_SMS, TIMERS, unrotated
from .table import Table, code, lines, link, mark, ratio, small, stated, status, time_cell

Reason = tuple[str, str, str]
Column = Callable[[Problem], str]
WARM = TIMERS[0]
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?!\w)")  # a whole one in a reason
BESIDE = {  # what a page compares a version with beside its baseline, if not with the version that it changes
    "rope_v8": FUSIONS[1:],
    "rope_hybrid_v8": FUSIONS[:1],
    "sinusoidal_v5": ("sinusoidal_separate_float4", "sinusoidal_v4"),
    "sinusoidal_v5_fast_math": ("sinusoidal_separate_float4",),
    "fp16_phase6_iter1": ("fp16_phase4_causal",),  # Phase 4 itself has no mask
    "fp16_phase6_iter2": ("fp16_phase4_causal", "fp16_phase6_iter1"),
}
CLOCKS = dict(zip(TIMERS, ("GPU alone", "from DRAM", "their clock")))  # the timers in words
LEGEND = (
    "Over: how many times as fast, on the GPU alone, with the 95 % interval {covers}. µs: the median of the processes "
    "± half their range. From DRAM: as the GPU alone, but no input is in the cache. Their clock: the authors' loop, "
    "with launches and host waits. Error: the largest, as a share of what is allowed. Wrong as declared: the result is "
    "the wrong one that the version is known to have. A dash: not measured, or one of the two does not run."
)


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
    """The studies with a complete run, but that of counters alone."""
    return [study for study in map(e.study, STUDIES) if study and study.name != MATCHED]


def elsewhere(e: Evidence, version: Version) -> Evidence | None:
    """Another recorded card that measured a version, where this one did not."""
    others = (Evidence.load(slug) for slug in known_gpus() if slug != e.slug)
    return next((other for other in others if any(taken(study, version) for study in complete(other))), None)


def taken(study: Study, version: Version) -> list[Problem]:
    """The measured problems of a version but those that it does not take."""
    mine = study.taken.get(version.id, ())
    return [problem for problem in study.problems(version.family) if problem in mine]


def shape(problem: Problem) -> str:
    """Head dim, and the rest of the shape small, with its dtype."""
    rest = rest_of(problem) + f" {problem.dtype}" + f" {problem.table} table" * (problem.table != "computed")
    return f"{problem.hdim} {small(rest)}"


def rest_of(problem: Problem) -> str:
    """A problem in words without its family and its head dim."""
    return label(problem).replace(f" D{problem.hdim}", "")


def times(e: Evidence, version: Version) -> list[tuple[str, Table]]:
    """Words and a table of times and ratios for each study: on their SMs first, then the documents' shapes on the whole
    card, and what is stale last."""

    def place(study: Study) -> tuple[bool, bool, bool]:
        return version.id in study.stale_versions(), not _decides(study), study.name not in ("log", "fp16")

    tables = []
    for study in sorted(complete(e), key=place):
        if problems := taken(study, version):
            make = _by_slice if len(_timers(study)) > 1 else _times
            words = f"{STUDIES[study.name].about} (study {study.name})"
            words += ", stale" * (version.id in study.stale_versions())
            tables.append((words, make(e, study, version, problems)))
    return tables


def _decides(study: Study) -> bool:
    """Whether it is one on as many SMs as the authors' card has, by which a claim of times is judged."""
    return study.name in (SLICES, f"{SLICES}_fp16")


def _timers(study: Study) -> list[str]:
    """The timers of the GPU alone, one for each slice; not those with as many blocks as an SM of another target holds.
    """
    found = (timer for timer in STUDIES[study.name].timers if timer.startswith(WARM))
    return [timer for timer in found if not timer_of(timer).cap.startswith("sm_")]


def compared(e: Evidence, study: Study, version: Version, problems: Sequence[Problem]) -> list[str]:
    """The versions over which its speed was measured in a study."""
    names = (version.baseline, *BESIDE.get(version.id, (version.parent,)))
    others = [each for each in dict.fromkeys(names) if each]

    def measured(other: str) -> bool:
        found = (e.speedup(version.id, other, study.name, timer, problem=problems) for timer in _timers(study))
        return any(each.known for each in found)

    return [each for each in others if measured(each)]


def _times(e: Evidence, study: Study, version: Version, problems: Sequence[Problem]) -> Table:
    columns: dict[str, Column] = {}
    for other in compared(e, study, version, problems):
        columns[f"over {other}"] = functools.partial(_over, e, study, version, other)
    for timer in TIMERS[:2]:
        if alone := _alone(e, study, version, problems, timer):
            words = f", {CLOCKS[timer]}" * (timer != WARM)
            columns[f"over {_bare(version)}, without RoPE{words}"] = functools.partial(_ratio_of, alone)
    if libraries := fastest(e, version, [study]):
        columns["over the fastest library of this study"] = lambda problem: _named(libraries.get(problem))
    claims = {problem: _published(e, study, version, problem) for problem in problems}
    if any(claims.values()):
        columns["published"] = lambda problem: claims[problem] or NOTHING
    us = {timer: e.time(version.id, study.name, timer, problem=problems) for timer in TIMERS}
    columns |= {f"{CLOCKS[timer]}, µs": functools.partial(_us, found) for timer, found in us.items() if found}
    header = ["shape", "check", *(title.replace("_", "_<wbr>") for title in columns)]
    rows = [
        (shape(problem), _checked(study, version.id, problem), *(cell(problem) for cell in columns.values()))
        for problem in problems
    ]
    return Table(header, rows, header[2:], _about(e, study, version, "published" in columns))


def _ratio_of(found: Mapping[Problem, Estimate], problem: Problem) -> str:
    return ratio(found[problem]) if problem in found else NOTHING


def _us(times: Estimates, problem: Problem) -> str:
    return time_cell(times[problem]) if times[problem] else NOTHING


def _by_slice(e: Evidence, study: Study, version: Version, problems: Sequence[Problem]) -> Table:
    """The same of a study that cuts the card in several ways: a row for each."""
    others = compared(e, study, version, problems)
    rows = []
    for timer in _timers(study):
        _, sms, cap = timer_of(timer)
        cut = (f"{sms} SMs" if sms else "the whole card") + f", at most {cap} blocks an SM" * bool(cap)
        for problem in problems:
            over = (e.speedup(version.id, each, study.name, timer, problem=problem)[problem] for each in others)
            us = e.time(version.id, study.name, timer, problem=problem)[problem]
            cells = (*(ratio(each) if each else NOTHING for each in over), time_cell(us) if us else NOTHING)
            rows.append((shape(problem), cut, *cells))
    header = ["shape", "runs on", *(f"over {each}".replace("_", "_<wbr>") for each in others), "GPU alone, µs"]
    return Table(header, rows, header[2:], _about(e, study, version))


def _about(e: Evidence, study: Study, version: Version, states: bool = False) -> str:
    """The caption of a table of times: what differs from table to table."""
    text = f"Run {study.run['run']} on the {e.card}, {study.processes} processes."
    if states:
        text += f" Published on the {published.card(version.family)}; times of different cards are not compared."
        text += " The whole card decides no verdict." * (version.baseline is not None and not _decides(study))
    if version.id in study.stale_versions():
        text += " <b>Stale</b>: the code has changed since."
    return text


def _over(e: Evidence, study: Study, version: Version, other: str, problem: Problem) -> str:
    """The speed over another version, and whether the other's result is wrong where its own is right."""
    found = e.speedup(version.id, other, study.name, WARM, problem=problem)[problem]
    wrong = study.known(other, problem).word == WRONG and study.known(version.id, problem).word == OK
    return lines(ratio(found), small("wrong result") if wrong else "") if found else NOTHING


def _bare(version: Version) -> str:
    """The version that does the same without RoPE, if there is one."""
    return version.id.replace("rope_", "attention_")


def _alone(
    e: Evidence, study: Study, version: Version, problems: Sequence[Problem], timer: str
) -> dict[Problem, Estimate]:
    """How fast a kernel beyond the log is with RoPE over the same attention without it."""
    name = _bare(version)
    if not (version.beyond and version.family == "rope" and name in study.taken):
        return {}
    found = {}
    for problem in problems:
        bare = unrotated(problem)
        own = e.time(version.id, study.name, timer, problem=problem)[problem]
        found[problem] = e.time(name, study.name, timer, problem=bare)[bare] / own
    return {problem: each for problem, each in found.items() if each}


def fastest(e: Evidence, version: Version, studies: Iterable[Study]) -> dict[Problem, Rival]:
    """The fastest library with a right result beside a version beyond the log, by problem."""
    if not version.beyond or version.is_peer:
        return {}
    names = [study.name for study in studies if taken(study, version)]
    problems = dict.fromkeys(problem for name in names for problem in taken(e.study(name), version))
    found = {problem: rivals(e, problem, version.id, names) for problem in problems}
    return {problem: peers[0] for problem, peers in found.items() if peers}


def _named(rival: Rival | None) -> str:
    """How fast a version is over a library, and which of the ways to call it that is."""
    if rival is None:
        return NOTHING
    way = rival.version.removeprefix("torch_").replace("rope_", "").replace("_", " ")
    return lines(ratio(rival.over), small(link(rival.version, way)))


def _checked(study: Study, version: str, problem: Problem) -> str:
    """The outcome of the check, and the largest error as a share of what is allowed where the result is right."""
    check, known = study.check(version, problem), study.known(version, problem)
    if known.word == WRONG:
        return lines(status(known), small("as declared"))
    excess = check.excess if check and known.word == OK else math.nan
    error = "<1%" if 0 < excess < 0.005 else f"{excess:.0%}"
    return lines(status(known), small(f"error {escape(error)}") if math.isfinite(excess) else "")


def _published(e: Evidence, study: Study, version: Version, problem: Problem) -> str:
    """The published speedup over the baseline and the published time, beside times of the documents' shapes; on their
    SMs how the measured one compares with it."""
    if not (_decides(study) or study.name in ("log", "fp16")):
        return ""
    parts = []
    if version.baseline and (claim := published.speedup(version.id, version.baseline, problem)):
        found = e.speedup(version.id, version.baseline, study.name, WARM, problem=problem)[problem]
        parts.append(stated(claim))
        if found and _decides(study):
            parts.append(small(told(compare(claim.value, claim.value, found))))
    if took := published.published(version.id, problem):
        ends = dict.fromkeys(f"{end:.3f}" for end in (took.low, took.high))
        parts.append(small(f"{'–'.join(ends)} ms"))
    return lines(*parts)


def main_of(problems: Collection[Problem]) -> Problem:
    """The main shape of some, with the fewest rotated dims; if it is not among them, the first that has no mask."""
    like = (MAIN.hdim, MAIN.batch, MAIN.heads)
    main = [each for each in problems if (each.hdim, each.batch, each.heads) == like]
    return min(main or problems, key=lambda each: (each.rotary_dim, each.causal))


def _speed(e: Evidence, study: Study, version: Version, other: str) -> tuple[str, str]:
    """The main shape, or the first of a study that has both; and how fast a version is there over another."""
    known = e.speedup(version.id, other, study.name, WARM, problem=taken(study, version)).known
    problem = main_of([*known])
    theirs = e.under(THEIR_SMS).speedup(version.id, other, problem=problem)[problem]
    pairs = (theirs, "<i>their SMs</i>"), (known[problem], "the whole card")
    text = ", ".join(f"<b>{factor(each.value)}</b> on {where}" for each, where in pairs if each)
    if claim := published.speedup(version.id, other, problem):
        text += f". Published: {factor(claim.value)}"
        text += f", on <i>their SMs</i> {told(compare(claim.value, claim.value, theirs))}" if theirs else ""
    return label(problem), text


def headline(e: Evidence, version: Version) -> list[str]:
    """How fast a version is, in a sentence or two: at the documents' main shape over its baseline, on their SMs and on
    the whole card, and over the fastest library."""
    found: dict[str, list[str]] = {}
    studies = [e.study(name) for name in ("log", "fp16", "beyond")] + complete(e)
    names = [version.baseline, *BESIDE.get(version.id, ())]
    if version.beyond:
        names.append(names.pop(0))  # what shares its core comes first
    for other in filter(None, dict.fromkeys(names)):
        study = next((each for each in studies if other in compared(e, each, version, taken(each, version))), None)
        if study:
            where, speeds = _speed(e, study, version, other)
            at = "There, over" if where in found else f"At {where}, the GPU alone, over"
            found.setdefault(where, []).append(f"{at} {link(other)}: {speeds}.")
    texts = [text for of in found.values() for text in of]
    if peers := fastest(e, version, complete(e)):
        sides = [rival.over.side for rival in peers.values()]
        over = span((rival.over.value for rival in peers.values()), "×", 2)
        texts.append(
            f"Over the fastest library with a right result: <b>{over}</b>; of {len(sides)} shapes faster at "
            f"{sides.count(1)}, level at {sides.count(0)}, slower at {sides.count(-1)}. Where several studies time a "
            "shape, the fastest library of all counts."
        )
    return texts


def reasons(e: Evidence, version: Version) -> tuple[list[Reason], list[Reason]]:
    """Why results are not right, and why problems are not taken: a badge, a text and the head dims of each."""
    checks = pd.concat([pd.DataFrame(columns=["version", "reason"]), *(study.checks for study in complete(e))])
    mine = checks[(checks["version"] == version.id) & checks["reason"].notna()]
    mine = mine.assign(hdim=mine["hdim"].astype(int)).sort_values("hdim", kind="stable")
    found: dict[str, list[Reason]] = {}
    for (how, why), dims in mine.groupby(["status", "reason"], sort=False)["hdim"]:
        found.setdefault(how, []).append((mark(word(how)), why, ", ".join(map(str, dims.unique()))))
    refused = _alike(found.pop("unsupported", []))
    return [each for how, of in found.items() for each in (_alike(of) if how == WRONG else of)], refused


def _alike(reasons: Iterable[Reason]) -> list[Reason]:
    """Reasons that differ in numbers alone as one."""
    groups: dict[str, list[Reason]] = {}
    for reason in reasons:
        groups.setdefault(NUMBER.sub("#", reason[1]), []).append(reason)
    found = []
    for group in groups.values():
        dims = dict.fromkeys(int(hdim) for _, _, dims in group for hdim in dims.split(", "))
        found.append((group[0][0], merged([why for _, why, _ in group]), _listed(dims)))
    return found


def merged(texts: Sequence[str]) -> str:
    """Texts that differ in numbers alone as one: where they differ, all the numbers."""
    columns = zip(*(NUMBER.findall(text) for text in texts))
    told_of = (_listed(dict.fromkeys(int(each.replace(",", "")) for each in column)) for column in columns)
    return NUMBER.sub(lambda match: next(told_of), texts[0])


def _listed(numbers: Iterable[int]) -> str:
    """Some numbers in order: a few by name, of many the first and the last."""
    found = sorted(numbers)
    return ", ".join(map(str, found)) if len(found) <= 4 else f"{found[0]} to {found[-1]}"


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
        cells = kind.replace("_", " "), code(kernel), code(place), escape(why), ", ".join(map(str, dims.unique()))
        rows.append((*cells, ", ".join(sorted(tools)) or NOTHING))
    undeclared = seen[~seen["expected"].astype(bool) & (seen["finding"] != "not_checked")]
    for kind, tool in undeclared[["finding", "tool"]].drop_duplicates().itertuples(index=False):
        rows.append((kind.replace("_", " "), NOTHING, NOTHING, "not declared: the emulator finds none", NOTHING, tool))
    return Table(
        ("hazard", "kernel", "place", "why", "head dim", "reported by"),
        rows,
        caption="The emulator sees exactly what is declared: a check that sees more or less fails. Reported by: a tool "
        "of compute-sanitizer, on the GPU. Racecheck reports that a race is possible, whatever the result.",
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
    caption = (
        f"One call on the {e.card}, read by Nsight Compute. Issue slots are those of an SM's schedulers. Several warps "
        "share one, so a single warp issues in a smaller share of its time."
    )
    return Table(header, rows, header[1:], caption)


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
