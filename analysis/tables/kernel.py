"""The beginning of a version's page: how fast it is in short, and of a kernel beyond the log what it needs of an SM and
its times at a few shapes."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kernels import Problem, Version

from ..claims.rule import compare, told
from ..evidence import Estimate, Evidence, Study
from ..models.rivals import Rival, bounds, floor, label, served
from ..record import published
from ..record.text import NOTHING, factor, number, span
from ..studies import MAIN, THEIR_SMS, TIMERS
from .counts import chosen
from .environment import what_changed
from .table import Table, lines, link, small
from .versions import (
    ASSEMBLER,
    BESIDE,
    INPUTS,
    by_dtype,
    compared,
    complete,
    elsewhere,
    fair,
    fastest,
    named,
    shape,
    taken,
    timed_in,
)  # fmt: skip

SHOWN, LEAST = 6, 4
OPS = ("rope", "attention")  # families with a call of the op
WARM, COLD = TIMERS[:2]
PEAKS = {"DRAM": "read_gb_s", "L2": "l2_read_gb_s"}  # of gpu.json, in GB/s


class Timed(NamedTuple):
    """A time of a shape by a timer, and the fastest library of all studies that was timed beside it."""

    problem: Problem
    timer: str
    us: Estimate
    rival: Rival | None


def card_of(e: Evidence, version: Version) -> Evidence | None:
    """The card whose times the page of a version shows: its own, or another that has some."""
    return e if any(taken(study, version) for study in complete(e)) else elsewhere(e, version)


def needs(e: Evidence, version: Version) -> str:
    """Registers and shared memory of the largest kernel of a version, for the card's target, at shapes of models."""
    texts = []
    for problem, rows in chosen(e.record.resources.get(version.id, {}), version).items():
        for row in rows[rows["target"] == e.target].nlargest(1, "registers").itertuples():
            text = f"{row.registers} registers a thread, {row.shared_bytes:,} B of shared memory a block"
            texts.append(f"{text}, {row.blocks_per_sm} block{'s' * (row.blocks_per_sm != 1)} an SM ({shape(problem)})")
    return f"Its largest kernel, compiled for {e.target}: {'; '.join(texts)}." if texts else ""


def _timed(e: Evidence, version: Version, timer: str) -> dict[Problem, Timed]:
    """Its times by problem, beside the fastest library where there is one; where most have none, of all problems."""
    found = {problem: Timed(problem, timer, it.ours, it) for problem, it in fastest(e, version, timer).items()}
    if len(found) >= LEAST:
        return found
    for name in timed_in(e, version, timer):
        known = e.time(version.id, name, timer, problem=taken(e.study(name), version)).known
        found |= {problem: Timed(problem, timer, us, None) for problem, us in known.items() if problem not in found}
    return found


def spread(problems: Sequence[Problem], most: int) -> list[Problem]:
    """Some of many, at even steps from the first to the last."""
    last = len(problems) - 1
    return [problems[place] for place in dict.fromkeys(round(i * last / max(most - 1, 1)) for i in range(most))]


def glance(e: Evidence, version: Version) -> Table:
    """A few shapes of a kernel, from the least work to the most and the worst by each timer: its time, the share of the
    least time that the card allows, and the ratio to the fastest library."""
    by_timer = {timer: of for timer in INPUTS if (of := _timed(e, version, timer))}
    rows = []
    for problem in _glanced(e, version, by_timer):
        for timer, found in by_timer.items():
            if each := found.get(problem):
                cold = timer == COLD
                cells = number(each.us.value, digits=1), _share(e, problem, each.us.value, cold), named(each.rival)
                rows.append((_called(e, version, problem), INPUTS[timer], *cells))
    header = ("shape", "timer", "µs", "of the ceiling", "over the fastest library")
    kept = [i for i in range(len(header)) if i != 1 or len(by_timer) > 1]
    if all(row[-1] == NOTHING for row in rows):
        kept.pop()
    shown = [header[i] for i in kept]
    where = "" if len(by_timer) > 1 else f", {INPUTS[next(iter(by_timer), WARM)]}"
    caption = (
        f"Some shapes on the {e.card}, among them the worst by each timer: the whole card, the GPU alone{where}. "
        "Ceiling: the least time that the card allows, an empty launch and the larger of the bytes of Q, K, V and the "
        "output and of the products, at rates measured on the card. Small: which of these it is. The library is the "
        "fastest with a right result of all studies."
    )
    return Table(shown, [[row[i] for i in kept] for row in rows], shown[1 + (len(by_timer) > 1) :], caption)


def _glanced(e: Evidence, version: Version, by_timer: Mapping[str, Mapping[Problem, Timed]]) -> list[Problem]:
    """Some problems of each dtype by their least time, if there are several those for which the op runs the version;
    and by each timer that of the least lead over a library."""
    problems = dict.fromkeys(problem for found in by_timer.values() for problem in found)
    rivals = [each for found in by_timer.values() for each in _worst(found)]
    shown: list[Problem] = []
    for several in (kinds := by_dtype(problems)).values():
        ordered = sorted(several, key=lambda problem: floor(problem, e.gpu, COLD in by_timer))
        run = [problem for problem in ordered if _runs(e, version, problem) == version.id]
        some = {*spread(run if len(run) >= LEAST else ordered, SHOWN // len(kinds)), *rivals}
        shown += [problem for problem in ordered if problem in some]
    return shown


def _worst(found: Mapping[Problem, Timed]) -> list[Problem]:
    """The problem where the lead over the fastest library is least, if there is a library."""
    over = {problem: each.rival.over.value for problem, each in found.items() if each.rival}
    return [min(over, key=lambda problem: over[problem])] if over else []


def _called(e: Evidence, version: Version, problem: Problem) -> str:
    """A shape, and the version that the op runs for it, where that is another."""
    other = _runs(e, version, problem)
    return lines(shape(problem), small(f"the op runs {link(other)}") if other != version.id else "")


def _runs(e: Evidence, version: Version, problem: Problem) -> str:
    """The version that the op runs for a problem, of a family that has a call of its own; else the version itself."""
    return served(e, problem) if problem.family in OPS else version.id


def _share(e: Evidence, problem: Problem, us: float, cold: bool) -> str:
    """The least time over the measured one, what sets it, and of bytes the rate that was reached."""
    least = bounds(problem, e.gpu, cold)
    what = max(least, key=lambda name: least[name])
    if (share := floor(problem, e.gpu, cold) / us) != share:
        return NOTHING
    reached = f", {least[what] / us * e.gpu['ceilings'][PEAKS[what]]:.0f}&nbsp;GB/s" if what in PEAKS else ""
    return lines(number(100 * share, "%", 0), small(what + reached))


def main_of(problems: Collection[Problem]) -> Problem:
    """The main shape of some, with the fewest rotated dims; if it is not among them, the first that has no mask."""
    like = (MAIN.hdim, MAIN.batch, MAIN.heads)
    main = [each for each in problems if (each.hdim, each.batch, each.heads) == like]
    return min(main or problems, key=lambda each: (each.rotary_dim, each.causal))


def _speed(e: Evidence, study: Study, version: Version, other: str) -> tuple[str, str]:
    """The main shape, or the first of a study that has both; and how fast a version is there over another."""
    known = fair(e, study, version, other)
    problem = main_of([*known])
    theirs = e.under(THEIR_SMS).speedup(version.id, other, problem=problem)[problem]
    pairs = (theirs, "<i>their SMs</i>"), (known[problem], "the whole card")
    text = ", ".join(f"<b>{factor(each.value)}</b> on {where}" for each, where in pairs if each)
    old = {what_changed(study, name) for name in (version.id, other)}
    if old != {""}:
        text += f" (one of the two {'is stale' if 'code' in old else f'was {ASSEMBLER}'})"
    if claim := published.speedup(version.id, other, problem):
        how = f", on <i>their SMs</i> {told(compare(claim.value, claim.value, theirs))}" if theirs else ""
        text += f" (published: {factor(claim.value)}{how})"
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
        if study and fair(e, study, version, other):
            where, speeds = _speed(e, study, version, other)
            found.setdefault(where, []).append(f"over {link(other)} {speeds}")
    return [f"At {where}, the GPU alone: {'; '.join(of)}." for where, of in found.items()]


def over_libraries(e: Evidence, version: Version) -> str:
    """How fast a version is over the fastest library by each timer, in a sentence; nothing where none was timed."""
    texts = []
    for timer, where in INPUTS.items():
        if peers := fastest(e, version, timer):
            sides = [rival.over.side for rival in peers.values()]
            over = span((rival.over.value for rival in peers.values()), "×", 2)
            texts.append(
                f"{where} <b>{over}</b> (of {len(sides)} shapes faster at {sides.count(1)}, level at {sides.count(0)}, "
                f"slower at {sides.count(-1)})"
            )
    return f"Over the fastest library with a right result: {'; '.join(texts)}." if texts else ""
