"""What a page of a kernel beyond the log begins with: what it needs of an SM, and its times at a few shapes."""

from collections.abc import Sequence
from typing import NamedTuple

from kernels import Problem, Version

from ..evidence import Estimate, Evidence
from ..models.rivals import Rival, bounds, floor, served
from ..record.text import NOTHING, number
from ..studies import STUDIES, TIMERS
from .environment import what_changed
from .table import Table, lines, small
from .versions import beside, by_dtype, complete, elsewhere, named, shape, taken

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
    told = []
    for problem, rows in e.record.resources.get(version.id, {}).items():
        for row in rows[rows["target"] == e.target].nlargest(1, "registers").itertuples():
            text = f"{row.registers} registers a thread, {row.shared_bytes:,} B of shared memory a block"
            told.append(f"{text}, {row.blocks_per_sm} block{'s' * (row.blocks_per_sm != 1)} an SM ({shape(problem)})")
    return f"Its largest kernel, compiled for {e.target}: {'; '.join(told)}." if told else ""


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
            time = lines(number(us.value, digits=1), small("from DRAM") if timer == COLD else "")
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
    reached = f", {number(least[what] / us * e.gpu['ceilings'][PEAKS[what]], 'GB/s', 0)}" if what in PEAKS else ""
    return lines(number(100 * share, "%", 0), small(what + reached))
