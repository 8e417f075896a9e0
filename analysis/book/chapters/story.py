"""What a ladder's chapter sets below its steps: what every version does, races, full cards, and tests of claims."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kernels import VERSIONS, Problem
from kernels.checking.reference import ROUNDING

from ...claims import judge
from ...claims.claim import Claim
from ...measure.studies import AUTHORS_SMS
from ...models.roofline import SECTOR_BYTES
from ...records import published
from ...records.files import COUNTS, RESOURCES, DataError, parsed, with_problems
from ...records.interval import Ratio
from ...records.known import OK, WRONG
from ...records.measured import Measured, baseline_of
from ...records.text import number
from ...tables.claims import tested as tests_of
from ...tables.table import NOTHING, Table, link, rotary, timed
from ..findings import Shares, Speedups, why_none
from ..origin import COUNTED, DECIDED, measured_in

AUTHORS_TARGET, LOG_BLOCKS = "sm_89", 256  # of the RTX 4000 Ada; of attention, 4 heads of 64 queries
MEGABYTES = 1e6 / SECTOR_BYTES
# What a version does in one call: words, the counters that make it up, by what it is divided.
WORK: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("rotations, M", ("event.rotation",), 1e6),
    ("calls of sine, cosine or both, M", ("event.sin", "event.cos", "event.sincos"), 1e6),
    ("powers, M", ("event.pow",), 1e6),
    ("multiply-adds, M", ("inst.fma",), 1e6),
    ("instructions of warps, M", ("warp_inst",), 1e6),
    ("MB asked for", ("global.read.sectors",), MEGABYTES),
    ("MB written", ("global.write.sectors",), MEGABYTES),
    ("wavefronts of shared memory, M", ("shared.wavefronts",), 1e6),
    ("barriers, thousands", ("barriers",), 1e3),
)


def needs_second_round(evidence: Measured, version: str, other: str, *dims: int) -> bool | None:
    """Whether the blocks of a call fit the card at once of another version and not of this one, at each head dim; None
    where the compiler says nothing for this card."""
    mine, theirs = (occupied(evidence, name).by_hdim for name in (version, other))
    if any(hdim not in mine or hdim not in theirs for hdim in dims):
        return None
    return all(theirs[hdim].value <= 1 < mine[hdim].value for hdim in dims)


@dataclass(frozen=True)
class Raced:
    """The checks of versions with a declared race that should else be right: how many, and those found wrong."""

    checks: int
    wrong: Sequence[Mapping[str, Any]]

    @property
    def hidden(self) -> bool | None:
        """Whether all are right; None where nothing was checked."""
        return not self.wrong if self.checks else None

    @property
    def shown(self) -> bool | None:
        """Whether some are wrong, each by more than rounding could be; None where nothing was checked."""
        return bool(self.wrong) and min(map(_excess, self.wrong)) > ROUNDING if self.checks else None

    @property
    def where(self) -> str:
        found = Counter(f"`{row['version']}` at head dim {row['problem'].hdim}" for row in self.wrong)
        return ", ".join(f"{each} ({count} checks)" if count > 1 else each for each, count in found.items()) or NOTHING

    @property
    def excess(self) -> str:
        """How many times what is allowed the least error of a wrong one is."""
        return f"{min(map(_excess, self.wrong)):,.0f}" if self.wrong else NOTHING


def _excess(check: Mapping[str, Any]) -> float:
    times = check["max_abs_err"] / check["allowed_abs_err"]
    return times if times == times else math.inf


def raced(evidence: Measured, family: str) -> Raced:
    """What the checks found of a family's versions that have a race and are right without it."""
    rows = evidence.checks[evidence.checks["status"].isin((OK, WRONG))]
    judged = [
        row
        for row in rows.to_dict("records")
        if row["problem"].family == family and _races(row["version"], row["problem"], evidence.target)
    ]
    return Raced(len(judged), [row for row in judged if row["status"] == WRONG])


@functools.cache
def _races(version: str, problem: Problem, target: str) -> bool:
    if version not in VERSIONS or VERSIONS[version].is_peer:
        return False
    plan = VERSIONS[version](problem, target)
    return plan.expected == OK and any(hazard.kind == "race" for hazard in plan.hazards)


def held(evidence: Measured, version: str, problem: Problem) -> int | None:
    """How many blocks of a version's last launch the card holds at a time; None where the compiler says nothing."""
    rows = parsed(RESOURCES, "resources")
    rows = rows[(rows["target"] == evidence.target) & (rows["version"] == version)]
    rows = rows[(rows["hdim"] == problem.hdim) & (rows["rotary_dim"] == problem.rotary_dim)].sort_values("launch")
    return int(rows["blocks_per_sm"].iloc[-1] * evidence.gpu["sms"]) if len(rows) else None


def occupied(evidence: Measured | None, version: str) -> Shares:
    """By head dim, the blocks of a version's last launch as a share of those that the card holds at a time."""
    found = {}
    for hdim, problem in evidence.shapes(version).items() if evidence else ():
        if evidence and (at_once := held(evidence, version, problem)):
            blocks = math.prod(VERSIONS[version](problem, evidence.target).launches[-1].grid)
            found[hdim] = Ratio(*3 * (blocks / at_once,))
    return Shares(found) if found else Shares(why=why_none(evidence, version))


def right(evidence: Measured, family: str) -> list[str]:
    """The log's versions of a family whose results are right at every shape that they take."""
    checks = {
        name: [evidence.check(name, p) for p in evidence.shapes(name).values()] for name in evidence.versions(family)
    }
    return [name for name, found in checks.items() if found and all(each and each.status == OK for each in found)]


def wave_counts(waves: Measured, version: str, problem: Problem) -> int | None:
    """How many waves a version's attention blocks take on the card; None where the compiler says nothing."""
    at_once = held(waves, version, problem)
    return math.ceil(problem.heads * problem.seq_q / at_once) if at_once else None


def by_waves(waves: Measured, more: bool) -> tuple[list[int], Speedups]:
    """V7 over separate kernels where these need `more` waves of blocks than V7, or no more: heads, and speedups."""
    names, heads, found = ("rope_v7", "rope_separate"), set(), []
    for problem in waves.problems("rope"):
        own, separate = (wave_counts(waves, name, problem) for name in names)
        ratio = waves.ratio("rope_separate", "rope_v7", problem)
        if own and separate and ratio and (separate > own) == more:
            heads.add(problem.heads)
            found.append(ratio)
    return sorted(heads), Speedups(dict(enumerate(found))) if found else Speedups(why=why_none(waves, "rope_v7"))


def windows(waves: Measured | None) -> tuple[str, Speedups, Speedups]:
    """The heads at which separate kernels need a wave more than V7, V7's speedups there, and those with as many."""
    if waves is None:
        return NOTHING, Speedups(), Speedups()
    heads, won = by_waves(waves, more=True)
    return runs_of(heads, {problem.heads for problem in waves.problems("rope")}), won, by_waves(waves, more=False)[1]


def as_many_there() -> bool:
    """Whether V7 and separate kernels need as many waves on the authors' card, in our build for it."""
    return all(waves_there("rope_v7", hdim) == waves_there("rope_separate", hdim) for hdim in (128, 512, 2048))


def runs_of(heads: Iterable[int], all_heads: Iterable[int]) -> str:
    """Numbers of heads as ranges of those that were measured: `"11 to 12 and 21 to 24"`."""
    chosen, order = set(heads), sorted(all_heads)
    runs = [[*each] for inside, each in itertools.groupby(order, key=chosen.__contains__) if inside]
    return " and ".join(f"{each[0]} to {each[-1]}" if len(each) > 1 else f"{each[0]}" for each in runs) or NOTHING


def waves_there(version: str, hdim: int) -> int:
    """How many waves the 256 blocks of the log take on the authors' card, as our build for it has registers."""
    rows = parsed(RESOURCES, "resources")
    rows = rows[(rows["target"] == AUTHORS_TARGET) & (rows["version"] == version) & (rows["hdim"] == hdim)]
    blocks_per_sm = rows[rows["heads"] * rows["seq_q"] == LOG_BLOCKS].sort_values("launch")["blocks_per_sm"]
    return math.ceil(LOG_BLOCKS / (AUTHORS_SMS * int(blocks_per_sm.iloc[-1])))


def step_up(waves: Measured, version: str, beyond: str) -> Speedups:
    """By head dim, how many times as long a version takes with the first number of heads at which the blocks of
    `beyond` no longer fit the card at once, as with the last at which they do."""
    found = {}
    problems = sorted(waves.problems("rope"), key=lambda problem: (problem.hdim, problem.heads))
    for last, first in itertools.pairwise(problems):
        at_once = held(waves, beyond, last)
        if last.hdim == first.hdim and at_once and last.heads * last.seq_q <= at_once < first.heads * first.seq_q:
            after, before = (waves.medians(version, each, "device_warm") for each in (first, last))
            if ratio := waves.mean((after / before).dropna(), "device_warm", after, before):
                found[last.hdim] = ratio
    return Speedups(found) if found else Speedups(why=why_none(waves, version))


def printed(evidence: Measured, version: str) -> Speedups:
    """The speedups over its baseline that the documents and their logs print of a version."""
    stated = {h: published.speedup(version, baseline_of(version), p) for h, p in evidence.shapes(version).items()}
    return Speedups({hdim: Ratio(*3 * (each.value,)) for hdim, each in stated.items() if each})


def _chosen(ids: Iterable[str]) -> list[Claim]:
    known = {claim.id: claim for claim in judge.claims()}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise DataError(f"there is no claim {unknown[0]!r}")
    return [known[name] for name in ids]


def tested(evidence: Measured, *ids: str, role: str = "") -> Table:
    """The tests of some claims, or those of one role: what each asks for, and what was measured, counted or computed.

    Raises: DataError for a claim that there is not.
    """
    return tests_of(evidence, _chosen(ids), role).of(DECIDED)


def work(evidence: Measured, family: str, hdim: int) -> Table:
    """What each version of a family does in one call at a head dim, counted exactly; and the time that it takes."""
    frame = parsed(COUNTS, "counts") if COUNTS.exists() else pd.DataFrame(columns=["version", "hdim"])
    by_version = dict(list(frame[frame["hdim"] == hdim].groupby("version", sort=False)))
    found: list[tuple[str, Problem, Mapping[str, float]]] = []
    for name in evidence.versions(family) or [v.id for v in VERSIONS.values() if v.family == family]:
        if name in by_version:
            mine = with_problems(by_version[name])
            problem = evidence.shapes(name, refused=True).get(hdim) or published.main_problems(mine["problem"])[0]
            mine = mine[mine["problem"] == problem]
            found.append((name, problem, mine.groupby("counter")["value"].sum().to_dict()))
    done = {
        what: [sum(totals.get(each, 0.0) for each in parts) / divisor for _, _, totals in found]
        for what, parts, divisor in WORK
    }
    shown = [what for what, amounts in done.items() if any(amounts)]
    return Table.from_frame(
        [
            {
                "version": link(name) + rotary(problem),
                **{what: done[what][place] for what in shown},
                "us": timed(evidence, name, problem),
            }
            for place, (name, problem, totals) in enumerate(found)
            if totals
        ],
        {
            "version": ("version", str),
            **{what: (what, _amount) for what in shown},
            "us": ("device, µs", str),
        },
        slice(1, None),
        f"Counts: one call at head dim {hdim}, in an emulator that runs the compiled kernel. MB asked for and written: "
        "sectors of 32 bytes, each as often as it is read or written. Times: device_warm on "
        f"the {evidence.card}.",
    ).of(measured_in(evidence) + COUNTED)


def _amount(value: float) -> str:
    return number(value) if value else NOTHING
