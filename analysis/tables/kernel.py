"""What a page of a version begins with: how fast it is in short, and of a kernel beyond the log what it needs of an SM
and its times at a few shapes."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kernels import Problem, Version

from ..claims.rule import compare, told
from ..evidence import Estimate, Evidence, Study
from ..models.rivals import Rival, bounds, floor, label, served
from ..record import published
from ..record.text import NOTHING, factor, number, span
from ..studies import MAIN, STUDIES, THEIR_SMS, TIMERS
from .environment import what_changed
from .table import Table, lines, link, small
from .versions import ASSEMBLER, BESIDE, beside, by_dtype, compared, complete, elsewhere, fastest, named, shape, taken

SHOWN, LEAST = 6, 4
OPS = ("rope", "attention")  # families with a call of the op
WARM, COLD = TIMERS[:2]
PEAKS = {"DRAM": "read_gb_s", "L2": "l2_read_gb_s"}  # of gpu.json, in GB/s


class Timed(NamedTuple):
    """A time of a study by its timer, and the libraries that were timed beside it, the fastest first."""

    us: Estimate
    timer: str
    rivals: Sequence[Rival]


def card_of(e: Evidence, version: Version) -> Evidence | None:
    """The card whose times the page of a version shows: its own, or another that has some."""
    return e if any(taken(study, version) for study in complete(e)) else elsewhere(e, version)


def needs(e: Evidence, version: Version) -> str:
    """Registers and shared memory of the kernel that attends, at the recorded problems, for the card's target."""
    texts = []
    for problem, rows in e.record.resources.get(version.id, {}).items():
        for row in rows[rows["target"] == e.target].nlargest(1, "registers").itertuples():
            text = f"{row.registers} registers a thread, {row.shared_bytes:,} B of shared memory a block"
            texts.append(f"{text}, {row.blocks_per_sm} block{'s' * (row.blocks_per_sm != 1)} an SM ({shape(problem)})")
    return f"Its largest kernel, compiled for {e.target}: {'; '.join(texts)}." if texts else ""


def _timed(e: Evidence, version: Version) -> dict[Problem, Timed]:
    """Its times by problem, each of one study: where these are several, those alone beside a library, and those alone
    for which the op runs the version."""
    found: dict[Problem, Timed] = {}
    for study in complete(e):
        if what_changed(study, version.id):
            continue
        timer = COLD if COLD in STUDIES[study.name].timers else WARM
        problems = taken(study, version)
        others = beside(e, version, [study.name], problems, timer)
        for problem, us in e.time(version.id, study.name, timer, problem=problems).known.items():
            if problem not in found or len(others.get(problem, ())) > len(found[problem].rivals):
                found[problem] = Timed(us, timer, others.get(problem, ()))
    beside_one = [problem for problem in found if found[problem].rivals]
    chosen = beside_one if len(beside_one) >= LEAST else [*found]
    run = [problem for problem in chosen if problem.family in OPS and served(e, problem) == version.id]
    return {problem: found[problem] for problem in (run if len(run) >= LEAST else chosen)}


def spread(problems: Sequence[Problem], most: int) -> list[Problem]:
    """Some of many, at even steps from the first to the last."""
    last = len(problems) - 1
    return [problems[place] for place in dict.fromkeys(round(i * last / max(most - 1, 1)) for i in range(most))]


def glance(e: Evidence, version: Version) -> Table:
    """A few shapes of a kernel, from the least work to the most: its time, the share of the least time that the card
    allows, and the ratio to the fastest library of the same run."""
    found, rows = _timed(e, version), []
    kinds = by_dtype(found)
    for problems in kinds.values():
        ordered = sorted(problems, key=lambda problem: floor(problem, e.gpu, found[problem].timer == COLD))
        for problem in spread(ordered, SHOWN // len(kinds)):
            us, timer, others = found[problem]
            time = lines(number(us.value, digits=1), small("from&nbsp;DRAM") if timer == COLD else "")
            over = named(others[0]) if others else NOTHING
            rows.append((shape(problem), time, _share(e, problem, us.value, timer == COLD), over))
    header = ("shape", "µs", "of the ceiling", "over the fastest library")
    kept = header if any(row[-1] != NOTHING for row in rows) else header[:-1]
    caption = (
        f"Some shapes on the {e.card}, the whole card, the GPU alone. Ceiling: the least time that the card allows, an "
        "empty launch and the larger of the bytes of Q, K, V and the output and of the products, at rates measured on "
        "the card. Small: which of these it is. The library is the fastest of the same run."
    )
    return Table(kept, [row[: len(kept)] for row in rows], kept[1:], caption)


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
    known = e.speedup(version.id, other, study.name, WARM, problem=taken(study, version)).known
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
        if study:
            where, speeds = _speed(e, study, version, other)
            found.setdefault(where, []).append(f"over {link(other)} {speeds}")
    return [f"At {where}, the GPU alone: {'; '.join(of)}." for where, of in found.items()]


def over_libraries(e: Evidence, version: Version) -> str:
    """How fast a version is over the fastest library, shape by shape, in a sentence; nothing where none was timed."""
    if not (peers := fastest(e, version)):
        return ""
    sides = [rival.over.side for rival in peers.values()]
    over = span((rival.over.value for rival in peers.values()), "×", 2)
    return (
        f"Over the fastest library with a right result: <b>{over}</b>; of {len(sides)} shapes faster at "
        f"{sides.count(1)}, level at {sides.count(0)}, slower at {sides.count(-1)}."
    )
