"""Tables of a version's page: its times beside others, how fast it is in short, and why results are not right."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from kernels import VERSIONS, Problem, Version

from ..claims.rule import compare, told
from ..evidence import Estimate, Estimates, Evidence, Study
from ..evidence.known import OK, WRONG
from ..models.rivals import Rival, label, library, rivals
from ..record import published
from ..record.files import known_gpus
from ..record.text import NOTHING, number
from ..record.timers import timer_of
from ..studies import FUSIONS, MATCHED, SLICES, STUDIES, TIMERS, unrotated
from .environment import what_changed
from .table import Table, code, lines, link, ratio, small, stated, status, time_cell

Column = Callable[[Problem, str], str]  # a cell by problem and timer
WARM = TIMERS[0]
BESIDE = {  # what a page compares a version with beside its baseline, if not with the version that it changes
    "rope_v8": FUSIONS[1:],
    "rope_hybrid_v8": FUSIONS[:1],
    "sinusoidal_v5": ("sinusoidal_separate_float4", "sinusoidal_v4"),
    "sinusoidal_v5_fast_math": ("sinusoidal_separate_float4",),
    "fp16_phase6_iter1": ("fp16_phase4_causal",),  # Phase 4 itself has no mask
    "fp16_phase6_iter2": ("fp16_phase4_causal", "fp16_phase6_iter1"),
}
CLOCKS = dict(zip(TIMERS, ("GPU alone", "from DRAM", "their clock")))  # the timers in words
INPUTS = dict(zip(TIMERS[:2], ("in L2 if it fits", CLOCKS[TIMERS[1]])))  # of the GPU alone
LEGEND = (
    "Over: how many times as fast, the GPU alone, inputs in L2 if they fit, with the 95 % interval {covers}. µs: the "
    "median of the processes ± half their range. A dash: not measured. Words: <a href='../glossary.html'>glossary</a>."
)
ASSEMBLER = "timed by another assembler, of the same code"


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
    """A problem in words with its dtype, and the dtype of its table where it has one."""
    return f"{label(problem)} {problem.dtype}{_of_table(problem)}"


def _of_table(problem: Problem) -> str:
    return f", {problem.table} table" * (problem.table != "computed")


def rest_of(problem: Problem) -> str:
    """A problem in words without its family and its head dim."""
    return label(problem).replace(f" D{problem.hdim}", "")


def by_dtype(problems: Iterable[Problem]) -> dict[str, list[Problem]]:
    found: dict[str, list[Problem]] = {}
    for problem in problems:
        found.setdefault(problem.dtype, []).append(problem)
    return found


def times(e: Evidence, version: Version) -> list[tuple[str, Table]]:
    """A title and a table of times and ratios for each study and dtype: on their SMs first, then the documents' shapes
    on the whole card, and what is not of today's code and assembler last."""

    def place(study: Study) -> tuple[bool, bool, bool]:
        return bool(what_changed(study, version.id)), not _decides(study), study.name not in ("log", "fp16")

    return [
        (_title(study, version, dtype), _times(e, study, version, problems))
        for study in sorted(complete(e), key=place)
        for dtype, problems in by_dtype(taken(study, version)).items()
    ]


def _title(study: Study, version: Version, dtype: str) -> str:
    """The title of a study in words: what it is, on how much of the card, the dtype, and what has changed since."""
    known = STUDIES[study.name]
    where = ", whole card" * (len(_timers(study)) == 1 and not known.sms)
    old = {"code": ", stale", "assembler": f", {ASSEMBLER}"}.get(what_changed(study, version.id), "")
    return f"{known.about}{where}, {dtype} (study {study.name}{old})"


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
    """A row for each problem; of a study that cuts the card in several ways, one for each of these."""
    sliced = len(_timers(study)) > 1
    timers = _timers(study) if sliced else [WARM]
    us = {timer: e.time(version.id, study.name, timer, problem=problems) for timer in (*timers, *TIMERS[1:])}
    right = sliced or all(study.known(version.id, problem).word == OK for problem in problems)
    columns: dict[str, Column] = {}
    if sliced:
        columns["runs on"] = lambda _, timer: _cut(timer)
    elif not right:
        columns["check"] = lambda problem, _: _checked(study, version.id, problem)
    columns[f"{CLOCKS[WARM]}, µs"] = functools.partial(_us, us)
    others = compared(e, study, version, problems)
    for other in others:
        columns[f"over {other}"] = functools.partial(_over, e, study, version, other)
    found = {} if sliced else beside(e, version, [study.name], problems)
    if not sliced:
        columns |= _beside_columns(e, study, version, problems, found)
        clocks = [timer for timer in reversed(TIMERS[1:]) if us[timer]]
        columns |= {f"{CLOCKS[timer]}, µs": functools.partial(_us, {WARM: us[timer]}) for timer in clocks}
    header = ["shape", *(title.replace("_", "_<wbr>") for title in columns)]
    rows = [
        (label(problem) + _of_table(problem), *(cell(problem, timer) for cell in columns.values()))
        for timer in timers
        for problem in problems
    ]
    error = f" {_errors(study, version, problems)}" if right and not sliced else ""
    caption = _about(e, study, version, others, "published" in columns) + error + _libraries(found)
    return Table(header, rows, header[1 + (sliced or not right) :], caption)


def _beside_columns(
    e: Evidence, study: Study, version: Version, problems: Sequence[Problem], found: Mapping[Problem, Sequence[Rival]]
) -> dict[str, Column]:
    """Columns of the ratios to the same without RoPE and to the fastest library, and of what is published."""
    columns: dict[str, Column] = {}
    for timer in TIMERS[:2]:
        if alone := _alone(e, study, version, problems, timer):
            words = f", {CLOCKS[timer]}" * (timer != WARM)
            columns[f"over {_bare(version)}, without RoPE{words}"] = functools.partial(_ratio_of, alone)
    if found:
        best = {problem: rivals[0] for problem, rivals in found.items()}
        columns["over the fastest library of this study"] = lambda problem, _: named(best.get(problem))
    claims = {problem: _published(e, study, version, problem) for problem in problems}
    if any(claims.values()):
        columns["published"] = lambda problem, _: claims[problem] or NOTHING
    return columns


def _ratio_of(found: Mapping[Problem, Estimate], problem: Problem, _: str) -> str:
    return ratio(found[problem]) if problem in found else NOTHING


def _us(times: Mapping[str, Estimates], problem: Problem, timer: str) -> str:
    return time_cell(times[timer][problem]) if times[timer][problem] else NOTHING


def _cut(timer: str) -> str:
    """The part of the card that a timer is of."""
    _, sms, cap = timer_of(timer)
    return (f"{sms} SMs" if sms else "the whole card") + f", at most {cap} blocks an SM" * bool(cap)


def _about(e: Evidence, study: Study, version: Version, others: Iterable[str], states: bool) -> str:
    """The caption of a table of times: what differs from table to table."""
    text = f"Run {study.run['run']} on the {e.card}, {study.processes} processes."
    if states:
        text += f" Published on the {published.card(version.family)}; times of different cards are not compared."
        text += " The whole card decides no verdict." * (version.baseline is not None and not _decides(study))
    for name in (version.id, *others):
        if changed := what_changed(study, name):
            why = f"was {ASSEMBLER}" if changed == "assembler" else "is stale: its code has changed since"
            text += f" <b>{code(name)} {why}.</b>"
    return text


def _libraries(found: Mapping[Problem, Sequence[Rival]]) -> str:
    """The libraries among which the fastest of a table is."""
    names = sorted({library(rival.version) for several in found.values() for rival in several})
    return f" Libraries of this study with a right result: {'; '.join(names)}." * bool(names)


def _errors(study: Study, version: Version, problems: Iterable[Problem]) -> str:
    """The largest error of results that are all right."""
    found = [check.excess for problem in problems if (check := study.check(version.id, problem))]
    most = max((excess for excess in found if math.isfinite(excess)), default=math.nan)
    return f"All results are right, errors up to {number(100 * most, '%', 0)} of what is allowed."


def _over(e: Evidence, study: Study, version: Version, other: str, problem: Problem, timer: str) -> str:
    """The speed over another version, and whether the other's result is wrong where its own is right; of a version
    beyond the log that alone."""
    wrong = study.known(other, problem).word == WRONG and study.known(version.id, problem).word == OK
    if not (found := e.speedup(version.id, other, study.name, timer, problem=problem)[problem]):
        return NOTHING
    return lines("" if wrong and version.beyond else ratio(found), small("wrong result") if wrong else "")


def fair(e: Evidence, study: Study, version: Version, other: str) -> dict[Problem, Estimate]:
    """The measured speeds of a version over another in a study, by problem; beyond the log not over a wrong result."""
    known = e.speedup(version.id, other, study.name, WARM, problem=taken(study, version)).known
    return {
        problem: each for problem, each in known.items()
        if not (version.beyond and study.known(other, problem).word == WRONG)
    }  # fmt: skip


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


def beside(
    e: Evidence, version: Version, studies: Sequence[str], problems: Iterable[Problem] = (), timer: str = WARM
) -> dict[Problem, list[Rival]]:
    """The libraries with a right result beside a version beyond the log, by problem, the fastest first."""
    if not version.beyond or version.is_peer:
        return {}
    problems = problems or dict.fromkeys(each for name in studies for each in taken(e.study(name), version))
    found = {problem: rivals(e, problem, version.id, studies, timer) for problem in problems}
    return {problem: several for problem, several in found.items() if several}


def timed_in(e: Evidence, version: Version, timer: str = WARM) -> list[str]:
    """The studies that time a version by a timer: those of today's code and assembler, or if there are none, all."""
    mine = [study for study in complete(e) if taken(study, version) and timer in STUDIES[study.name].timers]
    return [study.name for study in mine if not what_changed(study, version.id)] or [study.name for study in mine]


@functools.lru_cache(maxsize=256)
def fastest(e: Evidence, version: Version, timer: str = WARM) -> dict[Problem, Rival]:
    """The fastest library of all studies beside a version beyond the log, by problem."""
    several = beside(e, version, timed_in(e, version, timer), timer=timer)
    return {problem: found[0] for problem, found in several.items()}


def named(rival: Rival | None) -> str:
    """How fast a version is over a library, and which; of one with a kernel for RoPE in front, its attention."""
    if rival is None:
        return NOTHING
    return lines(ratio(rival.over), small(link(rival.version, library(rival.version).split(", then ")[-1])))


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
