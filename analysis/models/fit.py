"""A model of what a call costs, fitted to the study `map` of a card and judged on problems that it has not seen.

A call takes as long as its launches, one after the other; a launch takes

    a constant + its start, once a wave + |rounds, products, copies| + rotations

where a round is one tile of keys after the other, and |...| is a norm between a sum (nothing overlaps) and a maximum
(all does). Its few constants are fitted to two thirds of the problems; what the model is worth is said of the rest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from kernels import VERSIONS, Problem

from ..measure.studies import FUSIONS, NAIVE
from ..records.files import DataError
from ..records.interval import TIE
from ..records.known import best
from ..records.measured import Measured
from .cost import GROUPS, NAMES, TERMS, Card, work

STUDY = "map"
FULL, HYBRID, SEPARATE = FUSIONS
WORDS = {FULL: "full fusion", HYBRID: "hybrid", SEPARATE: "separate"}
FEWEST = 12  # problems that a fit needs
HELD_OUT = 3  # every third problem of a regime
COVERED = 0.9  # of held-out points that an error bar covers


@dataclass(frozen=True)
class Model:
    """Microseconds of one of each term, and how much groups overlap: 1 not at all, infinity entirely."""

    card: Card
    costs: tuple[float, ...]
    overlap: float

    def us(self, version: str, problem: Problem) -> float:
        """Microseconds of a call. Raises: Unsupported."""
        amounts = work(VERSIONS[version](problem, self.card.target), self.card)
        return float(_launch_times(amounts, self.costs, self.overlap).sum())

    def cost(self, term: str) -> float:
        return self.costs[NAMES.index(term)]


def _launch_times(amounts: np.ndarray, costs: Sequence[float] | np.ndarray, overlap: float) -> np.ndarray:
    """float64[launches]: microseconds of launches that do `amounts`."""
    parts = amounts * np.asarray(costs)
    groups = np.array([[TERMS[name].group == group for group in GROUPS] for name in NAMES])
    alone = np.array([not TERMS[name].group for name in NAMES])
    together = parts @ groups
    longest = np.maximum(together.max(axis=1), 1e-9)
    norm = longest * ((together / longest[:, None]) ** overlap).sum(axis=1) ** (1.0 / overlap)
    return parts[:, alone].sum(axis=1) + norm


class Point(NamedTuple):
    """A measured time in microseconds."""

    version: str
    problem: Problem
    us: float


ALIKE = 3.0  # weight of a ratio of versions: they share the core, and with it most of what the model misses
TRUST = 0.1  # in the first guesses, against the points
# Of a fitted constant, so that predictions are the same on every machine. Optimisers that stop at 1e-8, the usual, end
# 1e-4 apart; at 1e-15 they end 1e-7 apart. A step of the third digit is 1e-3 to 1e-2: fewer than one constant in a
# thousand lies so near the middle of a step that two machines round it differently.
DIGITS = 3


class TooFew(DataError):
    """Too little of the study was measured to fit a model to it, or to judge one."""


@functools.lru_cache(maxsize=32)
def fit(points: tuple[Point, ...], card: Card) -> Model:
    """The model whose logarithms of times, and of ratios of times of one problem, are nearest to what was measured.

    Raises: TooFew.
    """
    problems = len({point.problem for point in points})
    if problems < FEWEST:
        raise TooFew(f"{problems} problems of study {STUDY!r} were timed; the model needs {FEWEST} to fit")
    amounts = [work(VERSIONS[point.version](point.problem, card.target), card) for point in points]
    call = np.repeat(np.arange(len(points)), [len(rows) for rows in amounts])
    launches, measured = np.concatenate(amounts), np.log([point.us for point in points])
    ceilings = dict(card.ceilings)
    first = np.log([term.prior(ceilings) for term in TERMS.values()])
    core = np.array([point.version in FUSIONS for point in points])
    number = {problem: i for i, problem in enumerate(dict.fromkeys(point.problem for point in points))}
    place = np.array([number[point.problem] for point in points])
    counted = np.maximum(np.bincount(place[core], minlength=len(number)), 1)

    def residuals(x: np.ndarray) -> np.ndarray:
        times = np.bincount(call, _launch_times(launches, np.exp(first + x[:-1]), 1 + np.exp(x[-1])))
        missed = np.log(times) - measured
        shared = np.bincount(place[core], missed[core], minlength=len(number)) / counted
        apart = np.where(core, missed - shared[place], 0.0)
        return np.concatenate([missed, ALIKE * apart, TRUST * x])

    start, exact = np.zeros(len(NAMES) + 1), 1e-15
    found = least_squares(
        residuals, start, jac="3-point", loss="soft_l1", f_scale=0.2, ftol=exact, xtol=exact, gtol=exact, max_nfev=200
    ).x
    costs, overlap = np.exp(first + found[:-1]), 1 + np.exp(found[-1])
    return Model(card, tuple(_rounded(cost) for cost in costs), _rounded(overlap))


def _rounded(constant: float) -> float:
    """To `DIGITS` significant digits."""
    return float(f"{constant:.{DIGITS}g}")


# ---------------------------------------------------------------- judged on what was held out


def regime(problem: Problem) -> str:
    """What kind of problem it is, for judging and drawing."""
    if problem.seq_q <= 16:
        return "few queries"
    if problem.seq_q >= 256:
        return "many queries"
    return "short, many heads" if problem.batch * problem.heads >= 32 else "short, few heads"


REGIMES = ("few queries", "short, few heads", "short, many heads", "many queries")


def held_out(problems: Iterable[Problem]) -> set[Problem]:
    """Every third problem of a regime, in the order of their work."""
    every = set(problems)
    found: set[Problem] = set()
    for name in REGIMES:
        mine = sorted((p for p in every if regime(p) == name), key=lambda p: (p.flops, p.rotary_dim, p))
        found |= set(mine[1::HELD_OUT])
    return found


def winners(evidence: Measured, problem: Problem) -> set[str]:
    """Of the family the fastest, and what ties with it: within 3 %, or with an interval of the ratio that reaches 1.

    Nothing where not all of it was timed in one process.
    """
    times = {version: evidence.time(version, problem) for version in FUSIONS}
    timed = {version: each.us for version, each in times.items() if each}
    if len(timed) < len(FUSIONS):
        return set()
    best = min(timed, key=lambda version: timed[version])
    ratios = {version: evidence.ratio(version, best, problem) for version in FUSIONS}
    if not all(ratios.values()):
        return set()
    return {version for version, ratio in ratios.items() if ratio and (ratio.value < TIE or ratio.low <= 1)}


ALONE, TIES, LOSES = "full fusion is fastest", "full fusion ties", "hybrid or separate is faster"


def outcome(fastest: set[str]) -> str:
    """How full fusion does where these versions are the fastest, ties among them."""
    return LOSES if FULL not in fastest else ALONE if fastest == {FULL} else TIES


@dataclass
class Judged:
    """A model with what it was fitted to and what it is judged on.

    `points` has a row a problem and version: problem, regime, held_out, version, measured_us, predicted_us.
    """

    evidence: Measured
    model: Model
    points: pd.DataFrame

    @functools.cached_property
    def problems(self) -> list[Problem]:
        """Problems on which the whole family was timed."""
        counted = self.points[self.points["version"].isin(FUSIONS)].groupby("problem", sort=False)["version"].nunique()
        return [problem for problem, versions in counted.items() if versions == len(FUSIONS)]

    @functools.cached_property
    def _times(self) -> dict[tuple[Problem, str], tuple[float, float]]:
        rows = self.points[["problem", "version", "measured_us", "predicted_us"]].itertuples(index=False)
        return {(row[0], row[1]): (row[2], row[3]) for row in rows}

    def measured(self, problem: Problem, version: str) -> float:
        return self._times[problem, version][0]

    def predicted(self, problem: Problem, version: str) -> float:
        return self._times[problem, version][1]

    def fastest(self, problem: Problem) -> str:
        """The version of the family that was fastest."""
        return min(FUSIONS, key=lambda version: self.measured(problem, version))

    def chosen(self, problem: Problem) -> str:
        """The version that the model predicts to be fastest."""
        return min(FUSIONS, key=lambda version: self.predicted(problem, version))

    def winners(self, problem: Problem) -> set[str]:
        """The fastest, and what ties with it."""
        return winners(self.evidence, problem) or {self.fastest(problem)}

    def held(self) -> list[Problem]:
        chosen = set(self.points[self.points["held_out"]]["problem"])
        return [problem for problem in self.problems if problem in chosen]

    @functools.cached_property
    def _missed(self) -> np.ndarray:
        """Logarithms of measured over predicted times of the family, held out."""
        rows = self.points[self.points["held_out"] & self.points["version"].isin(FUSIONS)]
        return np.log(rows["measured_us"] / rows["predicted_us"]).to_numpy()

    @functools.cached_property
    def bars(self) -> tuple[float, float]:
        """Factors from a predicted time to the ends of its error bar."""
        low, high = np.quantile(self._missed, ((1 - COVERED) / 2, (1 + COVERED) / 2))
        return float(np.exp(low)), float(np.exp(high))

    @functools.cached_property
    def bar_of_ratios(self) -> float:
        """The factor by which a predicted ratio of two of the family may be off, either way."""
        missed = [
            abs(math.log(self.measured(p, a) / self.measured(p, b) / (self.predicted(p, a) / self.predicted(p, b))))
            for p in self.held()
            for a, b in ((FULL, HYBRID), (FULL, SEPARATE), (HYBRID, SEPARATE))
        ]
        return math.exp(float(np.quantile(missed, COVERED)))


def points_of(evidence: Measured) -> tuple[Point, ...]:
    """What was timed, with a right result, of the versions of the map."""
    found = []
    for version in (*FUSIONS, NAIVE):
        for problem in evidence.problems("rope"):
            check, taken = evidence.check(version, problem), evidence.time(version, problem)
            if check and check.status == "ok" and taken:
                found.append(Point(version, problem, taken.us))
    return tuple(found)


def judge(evidence: Measured) -> Judged:
    """Fit the model to two thirds of the map's problems; all versions of a problem are on one side.

    Raises: TooFew when too little was measured; it says what is not, or why a version does not run.
    """
    if not evidence:
        raise TooFew(f"study {STUDY!r} is not measured on the {evidence.card}: `make measure STUDY={STUDY}` does")
    for version in FUSIONS:
        found = best(evidence, version, evidence.problems("rope"))
        if not found.ran:
            raise TooFew(f"{version} is {found.word} on the {evidence.card}" + f": {found.reason}" * bool(found.reason))
    points, card = points_of(evidence), Card.of(evidence.gpu)
    held = held_out({point.problem for point in points})
    model = fit(tuple(point for point in points if point.problem not in held), card)
    rows = [
        (p.problem, regime(p.problem), p.problem in held, p.version, p.us, model.us(p.version, p.problem))
        for p in points
    ]
    names = ["problem", "regime", "held_out", "version", "measured_us", "predicted_us"]
    judged = Judged(evidence, model, pd.DataFrame(rows, columns=names))
    if not judged.held():
        raise TooFew(f"no problem of study {STUDY!r} on which the whole V8 family was timed is held out")
    return judged


def try_judge(evidence: Measured) -> tuple[Judged | None, str]:
    """`judge`, or None and why it cannot be had."""
    try:
        return judge(evidence), ""
    except TooFew as why:
        return None, str(why)


def errors(points: pd.DataFrame) -> pd.Series:
    """By how much predictions are off, in per cent of the measured time."""
    return 100 * (points["predicted_us"] / points["measured_us"] - 1).abs()


def answers(judged: Judged, problems: Sequence[Problem] | None = None) -> pd.DataFrame:
    """How good answers are on problems, by default those held out; a row an answer: the model's, and three constants.

    right: per cent of problems where it chooses a winner, or what ties with it; strictly: the fastest alone;
    lost, worst: per cent that its choices take longer than the fastest, on average and at worst.
    """
    problems = judged.held() if problems is None else problems
    chosen = {"the model": [judged.chosen(problem) for problem in problems]}
    chosen |= {f"always {WORDS[version]}": [version] * len(problems) for version in FUSIONS}
    rows = []
    for name, choices in chosen.items():
        pairs = list(zip(problems, choices))
        right = [choice in judged.winners(problem) for problem, choice in pairs]
        strict = [choice == judged.fastest(problem) for problem, choice in pairs]
        lost = [judged.measured(p, choice) / judged.measured(p, judged.fastest(p)) - 1 for p, choice in pairs]
        rows.append((name, *(100 * float(f) for f in (np.mean(right), np.mean(strict), np.mean(lost), max(lost)))))
    return pd.DataFrame(rows, columns=["answer", "right", "strictly", "lost", "worst"])


def extrapolated(judged: Judged) -> pd.DataFrame:
    """A row a regime: how good a model is there that was fitted to all other regimes. Error in per cent, as right."""
    rows = []
    evidence, card = judged.evidence, judged.model.card
    every = points_of(evidence)
    for name in REGIMES:
        others = tuple(point for point in every if regime(point.problem) != name)
        mine = [problem for problem in judged.problems if regime(problem) == name]
        if not mine or len({point.problem for point in others}) < FEWEST:
            continue
        model = fit(others, card)
        points = judged.points[judged.points["problem"].isin(mine) & judged.points["version"].isin(FUSIONS)].copy()
        points["predicted_us"] = [model.us(row.version, row.problem) for row in points.itertuples()]
        there = Judged(evidence, model, points)
        right = answers(there, mine).set_index("answer")["right"]["the model"]
        rows.append((name, len(mine), float(errors(points).median()), float(right)))
    return pd.DataFrame(rows, columns=["regime", "problems", "error", "right"])
