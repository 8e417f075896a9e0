"""When to fuse a positional embedding: a model of what a call costs, and the advice that follows from it.

    python -m analysis advise --heads 32 --seq-q 1 --seq-k 4096 --hdim 128 --rotary-dim 64

The model sees the launches of a plan and the card's own figures. A call takes as long as its launches, one after the
other; a launch takes

    a constant + its start, once a wave + |rounds, products, copies| + rotations

where a round is one tile of keys after the other, |...| is a norm between a sum (nothing overlaps) and a maximum (all
does), and everything is that of the busiest SM. Its few constants are fitted to the study `map` of a card, two thirds
of its problems; what the model is worth is said of the other third.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from kernels import VERSIONS, Problem
from kernels.constants import MUST_BE, require
from kernels.v8 import require_problem, wgmma_shape
from kernels.version import Launch, Plan

from ..measure.studies import FUSIONS, NAIVE
from ..records.files import DataError, gpu_folder
from ..records.interval import TIE, Ratio
from ..records.measured import Measured, Time
from ..records.text import span

STUDY = "map"
FULL, HYBRID, SEPARATE = FUSIONS
WORDS = {FULL: "full fusion", HYBRID: "hybrid", SEPARATE: "separate"}
MEANS = {
    FULL: "Fuse it fully",
    HYBRID: "Rotate K in a launch of its own and fuse the rotation of Q",
    SEPARATE: "Do not fuse: rotate Q and K in launches of their own",
}
FEWEST = 12  # problems that a fit needs
HELD_OUT = 3  # every third problem of a regime
COVERED = 0.9  # of held-out points that an error bar covers
NEAR = 4.0  # a factor, within which a measured problem is near in a quantity

SM_SHARED, RESERVED = 233_472, 1_024  # bytes of shared memory an SM has, and keeps a block
SM_THREADS, SM_REGISTERS, SM_BLOCKS = 2048, 65_536, 32
REGISTERS = 168  # of a thread, where a kernel's launch bounds allow as many
CLUSTERED = 10 / 11  # of the SMs, whole clusters find room on: GPCs have SMs left over
NAIVE_KEYS = 32  # of its tile


# ---------------------------------------------------------------- what a launch does


class Term(NamedTuple):
    """Something that takes time. `unit` is what one of it is; terms of one `group` add up and overlap other groups."""

    about: str
    unit: str
    group: str
    prior: Callable[[Mapping[str, float]], float]  # of the card's ceilings: microseconds of one, to begin with


def _constant(us: float) -> Callable[[Mapping[str, float]], float]:
    return lambda ceilings: us


def _ceiling(name: str, share: float) -> Callable[[Mapping[str, float]], float]:
    """A share of a measured ceiling: TFLOP/s for MFLOP, GB/s for MB."""
    scale = 1e-3 if name.endswith("gb_s") else 1.0
    return lambda ceilings: 1.0 / (scale * share * ceilings[name])


TERMS = {
    "launch": Term("a launch, behind the one before", "launch", "", _constant(1.5)),
    "start": Term("the start and end of a block, once a wave", "wave", "", _constant(1.0)),
    "turn": Term("a round that rotates keys waits for the angles", "round", "", _constant(0.1)),
    "rotation": Term("rotations in shared memory", "M", "", _ceiling("fp32_tflops", 1 / 50)),
    "wait": Term("keys rotated by all blocks together: taking tiles, waiting", "launch", "", _constant(2.0)),
    "together": Term("their reads and writes, one tile after the other", "MB", "", _ceiling("l2_read_gb_s", 0.25)),
    "round": Term("a tile of keys: barriers, softmax, latencies", "round", "rounds", _constant(1.0)),
    "exchange": Term("the same, of scores over a cluster", "round", "rounds", _constant(1.0)),
    "mma": Term("products of mma.sync", "MFLOP", "products", _ceiling("tensor_tflops", 1 / 3)),
    "wgmma": Term("products of wgmma", "MFLOP", "products", _ceiling("tensor_tflops", 1 / 2)),
    "copy": Term("copies to shared memory", "MB", "copies", _ceiling("l2_read_gb_s", 0.5)),
    "rewrite": Term("a rotation's reads and writes", "MB", "copies", _ceiling("l2_read_gb_s", 0.5)),
    "memory": Term("what L2 does not hold", "MB", "memory", _ceiling("read_gb_s", 1.0)),
    "naive_round": Term("a tile of keys of the log's fusion", "round", "rounds", _constant(1.0)),
    "naive_dim": Term("its products, a thread a key", "dim of a tile", "products", _constant(0.01)),
    "naive_turn": Term("its rotations, again for every query", "pair of a tile", "", _constant(0.01)),
}
NAMES = tuple(TERMS)
GROUPS = tuple(dict.fromkeys(term.group for term in TERMS.values() if term.group))

CORE_KEYS = wgmma_shape.KEYS
KINDS = ("one tile of keys", "more keys, rotated where they are met", "more keys, rotated once, together")
LINE = 32  # dims that stay in one block of a cluster


@dataclass(frozen=True)
class Card:
    """What the model knows of a GPU."""

    sms: int
    l2_bytes: int
    ceilings: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, gpu: Mapping[str, Any]) -> Card:
        """From the content of a gpu.json."""
        return cls(gpu["sms"], gpu["l2_bytes"], tuple(gpu["ceilings"].items()))

    def room(self, launch: Launch) -> tuple[int, int]:
        """The SMs that a launch can use, and how many of its blocks one holds at a time."""
        threads = math.prod(map(int, launch.block))
        bounds = launch.kernel.launch_bounds or ()
        least = bounds[1] if len(bounds) > 1 else 1
        registers = min(REGISTERS, SM_REGISTERS // (threads * least))
        by_shared = SM_SHARED // (launch.shared_bytes + RESERVED)
        blocks = min(SM_BLOCKS, SM_THREADS // threads, SM_REGISTERS // (threads * registers), by_shared)
        whole = int(self.sms * CLUSTERED) // launch.cluster * launch.cluster
        return max(whole, launch.cluster) if launch.cluster > 1 else self.sms, max(blocks, 1)


def _rounds(problem: Problem, queries: int, keys: int, tiles: int) -> tuple[float, int]:
    """Tiles of keys that a tile of queries sees: the mean, and the most."""
    if not problem.causal:
        all_keys = -(-problem.seq_k // keys)
        return all_keys, all_keys
    last = [min(problem.seq_k, problem.q_offset + min((tile + 1) * queries, problem.seq_q)) for tile in range(tiles)]
    seen = [-(-max(end, 1) // keys) for end in last]
    return sum(seen) / tiles, max(seen)


def _bytes(plan: Plan, launch: Launch) -> int:
    """Of the buffers that a launch names, each once."""
    named = {arg for arg in launch.args if isinstance(arg, str)}
    return 4 * sum(plan.buffers[name].size for name in named)


def together(launch: Launch) -> bool:
    """Whether the blocks of a launch embed the keys together first, each once."""
    return getattr(launch.shape, "once", False)


def _core(problem: Problem, launch: Launch, card: Card) -> dict[str, float]:
    """An attention of the V8 family in clusters."""
    queries, keys, width = launch.shape.queries, launch.shape.keys, launch.shape.width
    blocks = math.prod(launch.grid)
    sms, held = card.room(launch)
    waves, blocks_of_busiest = -(-blocks // (sms * held)), -(-blocks // sms)
    tiles = -(-problem.seq_q // queries)
    mean, most = _rounds(problem, queries, keys, tiles)
    chain = waves * mean + (most - mean)  # the longest may come last
    rounds = blocks_of_busiest * mean + (most - mean)

    once = together(launch)
    embeds_keys, embeds_queries = launch.embedding.keys and not once, launch.embedding.query
    key_tiles = -(-problem.seq_k // keys)
    taken = once * -(-key_tiles // math.prod(launch.grid[1:]))  # tiles that a block embeds for all
    lines = -(-problem.rotary_dim // LINE)
    pairs = min(-(-lines // launch.cluster) * LINE, width) / 2  # of the block that has most
    rows = blocks_of_busiest * embeds_queries * queries + (rounds * embeds_keys + taken) * keys
    some_queries, some_keys = min(queries, problem.seq_q), min(keys, problem.seq_k)
    copied = 2 * (blocks_of_busiest * some_queries + rounds * some_keys) * problem.hdim / launch.cluster
    products = 3 * 4 * rounds * queries * keys * width
    millions = card.sms / 1e6  # of the busiest SM, as if of all
    return {
        "start": waves,
        "round": chain,
        "exchange": chain * (launch.cluster > 1),
        launch.shape.core: products * millions,
        "copy": 4 * copied * millions,
        "turn": chain * embeds_keys,
        "wait": once,
        "together": 2 * 4 * taken * keys * width * millions,
        "rotation": rows * pairs * millions,
    }


def _naive(problem: Problem, launch: Launch, card: Card) -> dict[str, float]:
    """The log's full fusion: a block a query."""
    blocks = math.prod(launch.grid)
    sms, held = card.room(launch)
    tiles = -(-problem.seq_k // NAIVE_KEYS)
    busiest = -(-blocks // sms) * tiles
    return {
        "start": -(-blocks // (sms * held)),
        "naive_round": -(-blocks // (sms * held)) * tiles,
        "naive_dim": busiest * problem.hdim,
        "naive_turn": busiest * problem.rotary_dim / 2,
    }


def work(plan: Plan, card: Card) -> np.ndarray:
    """float64[launches, terms]: how much of each term every launch of a plan does.

    Of a kernel that it does not know it counts the launch and the bytes of its buffers.
    """
    whole = _bytes(plan, Launch(plan.launches[0].kernel, (1,), (1,), tuple(plan.buffers)))
    missed = min(
        max(2 * whole / card.l2_bytes - 1, 0.0), 1.0
    )  # half the L2 is near an SM, and all is too small at last
    rows = []
    for launch in plan.launches:
        megabytes = _bytes(plan, launch) / 1e6
        if launch.shape is not None and launch.shape.core in NAMES:
            does = _core(plan.problem, launch, card)
        elif launch.kernel.name == "attention":
            does = _naive(plan.problem, launch, card)
        else:
            does = {"rewrite": megabytes}
        does |= {"launch": 1.0, "memory": missed * megabytes}
        rows.append([does.get(name, 0.0) for name in NAMES])
    return np.array(rows, dtype=float)


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class Model:
    """Microseconds of one of each term, and how much groups overlap: 1 not at all, infinity entirely."""

    card: Card
    costs: tuple[float, ...]
    overlap: float

    def us(self, version: str, problem: Problem) -> float:
        """Microseconds of a call. Raises: Unsupported."""
        return float(_launch_times(work(VERSIONS[version](problem), self.card), self.costs, self.overlap).sum())

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


@functools.lru_cache(maxsize=32)
def fit(points: tuple[Point, ...], card: Card) -> Model:
    """The model whose logarithms of times, and of ratios of times of one problem, are nearest to what was measured.

    Raises: DataError for too few problems.
    """
    problems = len({point.problem for point in points})
    if problems < FEWEST:
        raise DataError(f"{problems} problems of study {STUDY!r} were timed; the model needs {FEWEST} to fit")
    amounts = [work(VERSIONS[point.version](point.problem), card) for point in points]
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
        """The fastest, and what ties with it: within 3 %, or with an interval of the ratio that reaches 1."""
        best = self.fastest(problem)
        ratios = {version: self.evidence.ratio(version, best, problem) for version in FUSIONS if version != best}
        return {best, *(v for v, ratio in ratios.items() if ratio and (ratio.value < TIE or ratio.low <= 1))}

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

    Raises: DataError when too little was measured.
    """
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
        raise DataError(f"no problem of study {STUDY!r} on which the whole V8 family was timed is held out")
    return judged


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


# ---------------------------------------------------------------- advice


@dataclass(frozen=True)
class Advice:
    """What to do with the embedding of a problem on a GPU.

    `times` are predicted microseconds by version, with error bars that covered nine of ten held-out points; `margin`
    is how many times as long the runner-up takes, with its own. `outside` says in which ways the problem lies beyond
    what was measured; there the bars promise nothing.
    """

    problem: Problem
    gpu: str
    choice: str
    runner_up: str
    times: Mapping[str, Time]
    margin: Ratio
    outside: tuple[str, ...]

    @property
    def text(self) -> str:
        taken = self.times[self.choice]
        said = f"{MEANS[self.choice]} ({self.choice}): {_us(taken)}, and {WORDS[self.runner_up]} takes "
        said += f"{self.margin.value:.2f} times as long ({self.margin.low:.2f} to {self.margin.high:.2f})."
        if self.margin.low <= 1:
            said += " The two are too close to call."
        if self.outside:
            said += f" Beyond what was measured: {'; '.join(self.outside)}."
        return said


def _us(taken: Time) -> str:
    return f"{taken.us:,.1f} µs ({taken.low:,.1f} to {taken.high:,.1f})"


QUANTITIES: dict[str, Callable[[Problem], float]] = {
    "batch x heads": lambda p: p.batch * p.heads,
    "heads a kv_head": lambda p: p.heads // p.kv_heads,
    "seq_q": lambda p: p.seq_q,
    "seq_k": lambda p: p.seq_k,
    "hdim": lambda p: p.hdim,
    "rotary_dim": lambda p: p.rotary_dim,
    "GFLOP": lambda p: p.flops / 1e9,
    "MB": lambda p: 8e-6 * (math.prod(p.q_shape) + math.prod(p.kv_shape)),
}


def outside(problem: Problem, measured: Iterable[Problem]) -> tuple[str, ...]:
    """In which ways a problem lies beyond those measured; empty if it lies among them."""
    measured = list(measured)
    found = []
    for name, quantity in QUANTITIES.items():
        mine, known = quantity(problem), [quantity(other) for other in measured]
        if not min(known) <= mine <= max(known):
            found.append(f"{name} is {mine:,.6g}, measured from {min(known):,.6g} to {max(known):,.6g}")
    if problem.causal and not any(other.causal for other in measured):
        found.append("causal is 1, measured without a mask alone")

    def distance(other: Problem) -> float:
        return max(abs(math.log(quantity(problem) / quantity(other))) for quantity in QUANTITIES.values())

    if not found and min(map(distance, measured)) > math.log(NEAR):
        found.append(f"no measured problem is within a factor of {NEAR:g} in everything")
    return tuple(found)


@functools.lru_cache(maxsize=4)
def _judged(folder: Path, written: tuple[int, ...]) -> Judged:
    return judge(Measured.read(folder, STUDY))


def load(gpu: str = "nvidia-h200") -> Judged:
    """The model of a GPU, fitted once a process and again when its files have changed.

    Raises: DataError when the GPU is unknown or its study `map` not measured.
    """
    folder = gpu_folder(gpu)
    files = (folder / name for name in ("runs.csv", "checks.csv", "timings.csv", "gpu.json"))
    return _judged(folder, tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in files))


def advise(problem: Problem, gpu: str = "nvidia-h200") -> Advice:
    """Whether to fuse RoPE into attention: what the model predicts for the V8 family on a problem.

    Raises:
        Unsupported: the V8 family does not take the problem; what was asked and what is allowed.
        DataError: the GPU is not known, or its study `map` was not measured.
    """
    require_problem(problem, "rope")
    require(problem.rotary_dim > 0, "rotary_dim", problem.rotary_dim, "even and above 0", MUST_BE)
    return advice_of(load(gpu), problem)


def advice_of(judged: Judged, problem: Problem) -> Advice:
    """The advice of one model. Raises: Unsupported."""
    predicted = {version: judged.model.us(version, problem) for version in FUSIONS}
    choice, runner_up, _ = sorted(FUSIONS, key=lambda version: predicted[version])
    low, high = judged.bars
    times = {version: Time(us, us * low, us * high) for version, us in predicted.items()}
    ratio, off = predicted[runner_up] / predicted[choice], judged.bar_of_ratios
    margin = Ratio(ratio, ratio / off, ratio * off)
    return Advice(problem, judged.evidence.slug, choice, runner_up, times, margin, outside(problem, judged.problems))


# ---------------------------------------------------------------- words for the chapter


def kind(problem: Problem) -> str:
    """What decides: whether a tile holds all keys, and if not, how full fusion rotates them."""
    if problem.seq_k <= CORE_KEYS:
        return KINDS[0]
    return KINDS[2] if together(VERSIONS[FULL](problem).launches[-1]) else KINDS[1]


def words(judged: Judged) -> dict[str, str]:
    """The numbers of the paragraph that answers whether to fuse."""
    fastest = [judged.fastest(problem) for problem in judged.problems]
    held = judged.points["held_out"] & judged.points["version"].isin(FUSIONS)
    found = answers(judged).set_index("answer")
    constant = found.drop(index="the model").sort_values(["right", "lost"], ascending=[False, True]).iloc[0]
    naive = [
        judged.measured(problem, NAIVE) / judged.measured(problem, judged.fastest(problem))
        for problem in judged.problems
        if (problem, NAIVE) in judged._times
    ]
    over = {v: [judged.measured(p, v) / judged.measured(p, FULL) for p in judged.problems] for v in (HYBRID, SEPARATE)}

    def fused(*chosen: str) -> str:
        mine = [problem for problem in judged.problems if kind(problem) in chosen]
        return f"{sum(FULL in judged.winners(problem) for problem in mine)} of {len(mine)}"

    return {
        "problems": str(len(judged.problems)),
        **{f"{name}_wins": str(fastest.count(v)) for name, v in zip(("full", "hybrid", "separate"), FUSIONS)},
        **{f"fused_{name}": fused(chosen) for name, chosen in zip(("one_tile", "alone", "together"), KINDS)},
        "fused_more": fused(*KINDS[1:]),
        "hybrid_over_full": span(over[HYBRID], "×", 2),
        "separate_over_full": span(over[SEPARATE], "×", 2),
        "naive_over_best": span(naive, "×", 2) if naive else "no number of times",
        "naive_problems": str(len(naive)),
        "held_out": str(len(judged.held())),
        "error": f"{errors(judged.points[held]).median():.0f} %",
        "right": f"{found['right']['the model']:.0f} %",
        "lost": f"{found['lost']['the model']:.1f} %",
        "constant": str(constant.name),
        "constant_right": f"{constant['right']:.0f} %",
        "constant_lost": f"{constant['lost']:.1f} %",
    }


TYPICAL = {
    "decoding a token": Problem("rope", 1, 32, 32, 1, 2048, 128, 128),
    "the same, 4 heads a kv_head": Problem("rope", 1, 32, 8, 1, 2048, 128, 128),
    "checking 8 drafted tokens": Problem("rope", 1, 32, 32, 8, 2048, 128, 128),
    "a chunk of a prompt": Problem("rope", 1, 32, 32, 128, 1024, 128, 64),
    "a prompt": Problem("rope", 1, 8, 8, 1536, 1536, 128, 128),
    "the log's largest of 4 heads": Problem("rope", 1, 4, 4, 64, 64, 2048, 128),
}


# ---------------------------------------------------------------- the command


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis advise", description="Should RoPE be fused here?")
    parser.add_argument("--gpu", default="nvidia-h200", help="a folder of data/measured/")
    for name, usual in (("batch", 1), ("heads", 1), ("seq-q", 64), ("hdim", 128)):
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"{usual} by default")
    for name, hint in (("kv-heads", "heads"), ("seq-k", "seq-q"), ("rotary-dim", "hdim"), ("q-offset", "the last")):
        parser.add_argument(f"--{name}", type=int, help=f"{hint} by default")
    parser.add_argument("--causal", action="store_true")
    options = vars(parser.parse_args(arguments))
    gpu = options.pop("gpu")
    if options["rotary_dim"] is None:
        options["rotary_dim"] = options["hdim"]
    try:
        advice = advise(Problem("rope", **options), gpu)
    except (DataError, ValueError) as error:  # Unsupported among them
        print(f"advise: {error}", file=sys.stderr)
        return 1
    print(f"{advice.problem} on {gpu}\n{advice.text}")
    for version in sorted(advice.times, key=lambda name: advice.times[name].us):
        print(f"  {version:17s} {_us(advice.times[version])}")
    return 0
