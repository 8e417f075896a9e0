"""What V8 is held to, and what was measured of it: its targets, and the floor below which no kernel goes.

Everything here is computed from the studies that are named below, from shapes.csv and from counters.csv.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from kernels import VERSIONS, Problem
from kernels.checking.reference import ERROR_FACTOR, table_error

from ..measure import tune
from ..measure.studies import AUTOTUNED, FUSIONS, MAIN, ONE_GRAPH, STUDIES
from ..records.current import complete_runs
from ..records.files import card_name, gpu_folder, is_reference, parsed, read_json, target_of, with_problems
from ..records.interval import TIE, Ratio, covers
from ..records.known import NOT_MEASURED, WORDS, Known, best
from ..records.measured import Check, Measured, Time
from . import profiles

V8 = tune.VERSION
PORTABLE = "rope_v8_portable"
V7 = "rope_v7"
COUNTED = (V8, "rope_hybrid_v8", PORTABLE, V7)  # whose hardware counters are shown
MEASURED_IN = ("beyond", "peers", "autotuned")  # studies with peers of RoPE
NEEDED = ("beyond", "peers", "embeddings")  # and the last takes PyTorch half a minute a problem
SHAPES, COUNTERS = "shapes", "counters"

REACHED, MISSED, UNTOLD, UNMEASURED = "reached", "missed", "cannot be told", "not measured"


# ---------------------------------------------------------------- evidence


@dataclass
class Evidence:
    """What was measured of V8 on one GPU: the studies that are complete, shapes.csv, and what was counted of V8 itself.

    The last two have no rows where they are missing.
    """

    slug: str
    gpu: dict[str, Any]
    studies: dict[str, Measured]
    shapes: pd.DataFrame
    profiled: pd.DataFrame

    @property
    def card(self) -> str:
        """The card's name, as the book shows it."""
        return card_name(self.slug, self.gpu)

    @property
    def target(self) -> str:
        """What its kernels are compiled for, such as "sm_90"."""
        return target_of(self.gpu)

    @property
    def covers(self) -> str:
        """What the intervals of its studies cover, for captions: of studies that differ in it, the least."""
        return covers(min((measured.runs_covered() for measured in self.studies.values()), default=1))

    def lacks(self, *needs: str) -> list[str]:
        """Which of these studies, shapes or counters are not measured."""
        lacking = {SHAPES: self.shapes.empty, COUNTERS: V8 not in set(self.profiled["version"])}
        return [name for name in needs if lacking.get(name, name not in self.studies)]


def read(gpu: str | Path) -> Evidence:
    """What is recorded of a GPU, by the name of its folder or its path. Raises: DataError, also for an unknown GPU."""
    folder = gpu if isinstance(gpu, Path) else gpu_folder(gpu)
    complete = complete_runs(parsed(folder / "runs.csv", "runs"))
    shapes = parsed(folder / "shapes.csv", SHAPES)
    shapes = with_problems(shapes).assign(
        cut=shapes["cut"].fillna(""),
        median_us=shapes["median_us"].astype(float),
        chosen=shapes["chosen"].astype(bool),
    )
    studies = dict.fromkeys((*NEEDED, *MEASURED_IN))
    found = {name: Measured.read(folder, name) for name in studies if name in complete}
    profiled = profiles.attention(profiles.launches(folder))
    own = profiled[profiled["version"].isin(COUNTED)]
    return Evidence(folder.name, read_json(folder / "gpu.json"), found, shapes, own)


# ---------------------------------------------------------------- the floor


@dataclass(frozen=True)
class Floor:
    """The least microseconds that a call can take: an empty launch, and the larger of its bytes and its operations.

    Bytes are those of Q, K, V and the output, once each, at the rate of L2 where all fit it, of DRAM otherwise.
    """

    launch: float
    bytes: float
    fp32: float  # both products on the fp32 units
    tensor: float  # the same as three TF32 products each, whose rate is half of bfloat16's
    memory: str  # where its bytes come from

    @property
    def us(self) -> float:
        return self.launch + max(self.bytes, self.tensor)

    @property
    def fp32_us(self) -> float:
        return self.launch + max(self.bytes, self.fp32)


def floor(problem: Problem, gpu: Mapping[str, Any]) -> Floor:
    """The floor of a problem on a GPU of gpu.json; of a mask only the pairs that it leaves are counted."""
    ceilings = gpu["ceilings"]
    moved = 8 * (math.prod(problem.q_shape) + math.prod(problem.kv_shape))
    memory, rate = ("L2", "l2_read_gb_s") if moved <= gpu["l2_bytes"] else ("DRAM", "read_gb_s")
    seen = problem.seq_q * problem.seq_k
    if problem.causal:
        seen = sum(min(max(problem.q_offset + i + 1, 0), problem.seq_k) for i in range(problem.seq_q))
    flops = problem.flops * seen / (problem.seq_q * problem.seq_k)
    return Floor(
        launch=ceilings["empty_kernel_us"],
        bytes=moved / ceilings[rate] / 1e3,
        fp32=flops / ceilings["fp32_tflops"] / 1e6,
        tensor=3 * flops / (ceilings["tensor_tflops"] / 2) / 1e6,
        memory=memory,
    )


# ---------------------------------------------------------------- targets


@dataclass(frozen=True)
class Target:
    """What V8 is held to at some problems: a number that a quantity must reach or must not exceed.

    us: microseconds of a call. peer, compiled, other, v7: how many times as long the fastest right peer takes, or the
    fastest SDPA with compiled RoPE, or of all peers and versions the fastest, or rope_v7. error: its largest error over
    that of fp32 math SDPA.
    """

    about: str
    quantity: Literal["us", "peer", "compiled", "other", "v7", "error"]
    rule: Literal["at most", "at least"]
    value: float
    problems: tuple[Problem, ...]

    def judge(self, found: Ratio | None) -> str:
        """Whether the interval lies on the right side; without an interval, whether the value does."""
        if found is None:
            return UNMEASURED
        low, high = (found.low, found.high) if found.low == found.low else (found.value, found.value)
        if self.rule == "at most":
            low, high = -high, -low
        value = self.value if self.rule == "at least" else -self.value
        return REACHED if low >= value else MISSED if high < value else UNTOLD

    @property
    def unit(self) -> str:
        return " µs" if self.quantity == "us" else "×"


BEYOND = STUDIES["beyond"].problems
COMPARED = tuple(dict.fromkeys((*BEYOND, *STUDIES["peers"].problems)))
FEW_HEADS = tuple(p for p in BEYOND if p.batch == 1 and p.seq_q <= 64)
FILLED_2048 = tuple(p for p in BEYOND if p.batch > 1 and p.hdim == 2048)
PREFILL_2048 = tuple(p for p in BEYOND if p.seq_q == 2048)
COUNTED_AT = (MAIN, FILLED_2048[0], PREFILL_2048[0])
TARGETS = (
    Target("the main shape, time", "us", "at most", 8.0, (MAIN,)),
    Target("the main shape, over the fastest peer", "peer", "at least", 8.0, (MAIN,)),
    Target("the main shape, over `rope_v7`", "v7", "at least", 12.0, (MAIN,)),
    Target(
        "the documents' shapes and around, head dim 512 and above, over the fastest peer",
        "peer",
        "at least",
        3.0,
        tuple(p for p in FEW_HEADS if p.hdim >= 512),
    ),
    Target(
        f"all {len(BEYOND)} problems, not slower than any peer or version; {100 * (TIE - 1):.0f} % are a tie",
        "other",
        "at least",
        1 / TIE,
        BEYOND,
    ),
    Target("a full card at head dim 2048, over SDPA with compiled RoPE", "compiled", "at least", 1.3, FILLED_2048),
    Target("prefill of 2048, over SDPA with compiled RoPE", "compiled", "at least", 1.3, PREFILL_2048),
    Target(f"all {len(BEYOND)} problems, error over that of fp32 math SDPA", "error", "at most", 2.0, BEYOND),
)


@dataclass(frozen=True)
class Rival:
    """Another version or peer, and how many times as long as V8 it takes in the same run."""

    version: str
    taken: Time
    ratio: Ratio
    measured: Measured

    @property
    def faster(self) -> bool:
        """Whether it is faster than V8, interval included."""
        return self.ratio.high < 1 / TIE


@dataclass(frozen=True)
class Result:
    """What was found of a target at a problem."""

    target: Target
    problem: Problem
    found: Ratio | None
    rival: str = ""

    @property
    def verdict(self) -> str:
        return self.target.judge(self.found)


def rivals(evidence: Evidence, problem: Problem, peers: bool, versions: bool = False) -> list[Rival]:
    """What is right and was timed beside a right V8 in any of the studies, the fastest first."""
    studies = [evidence.studies[name] for name in MEASURED_IN if name in evidence.studies]
    found = []
    for measured in studies:
        found += _beside(measured, problem, measured.versions("rope", peers=True)) if peers else []
        found += _beside(measured, problem, measured.versions("rope")) if versions else []
    return sorted(found, key=lambda rival: rival.ratio.value)


def beside_one_graph(evidence: Evidence) -> dict[Problem, Rival]:
    """The fastest peer wherever PyTorch, which then is nearly always it, compiled RoPE and attention as one graph."""
    found = {problem: rivals(evidence, problem, peers=True) for problem in COMPARED}
    whole = (*ONE_GRAPH, *AUTOTUNED)
    return {problem: peers[0] for problem, peers in found.items() if any(each.version in whole for each in peers)}


def _beside(measured: Measured, problem: Problem, names: Iterable[str]) -> list[Rival]:
    """Which of the versions `names` are right and were timed beside a right V8 in one study."""
    mine = measured.check(V8, problem)
    found = []
    for name in names if mine and mine.status == "ok" else ():
        check, taken = measured.check(name, problem), measured.time(name, problem)
        ratio = measured.ratio(name, V8, problem)
        if name != V8 and check and check.status == "ok" and taken and ratio:
            found.append(Rival(name, taken, ratio, measured))
    return found


def measured_at(evidence: Evidence, problem: Problem) -> Measured | None:
    """The first study in which a right V8 was timed on a problem."""
    for name in MEASURED_IN:
        measured = evidence.studies.get(name)
        check = measured.check(V8, problem) if measured else None
        if measured and check and check.status == "ok" and measured.time(V8, problem):
            return measured
    return None


def relative_error(check: Check | None) -> float | None:
    """An error in units of that of fp32 math SDPA on the same inputs, of which the allowance is four."""
    if check is None or check.status != "ok" or not check.allowed_abs_err > 0:
        return None
    return ERROR_FACTOR * check.excess


def _of_one(measured: Measured, problem: Problem) -> Ratio | None:
    """V8's time, with its interval."""
    times = measured.medians(V8, problem, "device_warm")
    return measured.mean(times, "device_warm", times)


def result(evidence: Evidence, target: Target, problem: Problem) -> Result:
    """What was found of one target at one problem."""
    if target.quantity in ("us", "error"):
        measured = measured_at(evidence, problem)
        if measured is None:
            return Result(target, problem, None)
        if target.quantity == "us":
            return Result(target, problem, _of_one(measured, problem))
        error = relative_error(measured.check(V8, problem))
        return Result(target, problem, None if error is None else Ratio(error, math.nan, math.nan))
    found = rivals(evidence, problem, peers=target.quantity != "v7", versions=target.quantity in ("other", "v7"))
    wanted = {"compiled": lambda name: VERSIONS[name].compiled_embedding, "v7": lambda name: name == V7}
    found = [rival for rival in found if wanted.get(target.quantity, lambda name: True)(rival.version)]
    return Result(target, problem, found[0].ratio, found[0].version) if found else Result(target, problem, None)


def targets_of(evidence: Evidence) -> list[Target]:
    """The targets that a card is held to: a time in microseconds is of the reference alone."""
    on_reference = is_reference(evidence.slug, evidence.gpu)
    return [target for target in TARGETS if on_reference or target.quantity != "us"]


def results(evidence: Evidence) -> list[Result]:
    """What was found of every target at every problem of it."""
    return [result(evidence, target, problem) for target in targets_of(evidence) for problem in target.problems]


def known_of(evidence: Evidence, problem: Problem, version: str = V8) -> Known:
    """The most that is known of a version on a problem in any of the studies."""
    studies = [evidence.studies.get(name) for name in MEASURED_IN]
    found = [best(measured, version, [problem]) for measured in studies if measured]
    return min(found, key=lambda each: WORDS.index(each.word), default=Known(NOT_MEASURED))


def worst(found: Sequence[Result]) -> Result | None:
    """Of what was measured of one target, the furthest on the wrong side."""
    return min((each for each in found if each.found), key=_reach, default=None)


def _reach(result: Result) -> float:
    """How far a result goes towards its target, larger being further."""
    assert result.found is not None
    return result.found.value if result.target.rule == "at least" else -result.found.value


# ---------------------------------------------------------------- what figures and tables show


def label(problem: Problem) -> str:
    """A problem of RoPE in words, without its family."""
    shared = f" kv_heads {problem.kv_heads}" if problem.kv_heads < problem.heads else ""
    return str(problem).removeprefix("rope ") + shared


def family(evidence: Evidence) -> pd.DataFrame:
    """Hybrid and separate kernels on V8's core at every problem: times, and those over V8's."""
    rows = [
        (_kind(problem), label(problem), rival.version, rival.taken.us, rival.ratio.value)
        for problem in BEYOND
        if (measured := measured_at(evidence, problem))
        for rival in _beside(measured, problem, FUSIONS)
    ]
    return pd.DataFrame(rows, columns=["kind", "problem", "series", "us", "over_v8"])


def _kind(problem: Problem) -> str:
    if problem.seq_q > 64:
        return "prefill"
    return "full card" if problem.batch > 1 else "few heads"


def embeddings(evidence: Evidence) -> pd.DataFrame:
    """Every embedding on one core: its time over that of no embedding in the same process, and its table's error."""
    measured = evidence.studies["embeddings"]
    rows = []
    for plain in measured.problems("attention"):
        base = measured.medians("attention_v8", plain, "device_warm")
        for version in ("attention_v8", V8, "alibi_v1", "sinusoidal_v6", "learned_v1"):
            for problem in STUDIES["embeddings"].problems:
                same = all(
                    getattr(problem, name) == getattr(plain, name) for name in ("batch", "heads", "seq_q", "hdim")
                )
                check = measured.check(version, problem) if same else None
                if not check or check.status != "ok" or base.empty:
                    continue
                ratios = (measured.medians(version, problem, "device_warm") / base).dropna()
                taken = measured.time(version, problem)
                found = measured.mean(ratios, "device_warm", measured.medians(version, problem, "device_warm"), base)
                if found is None or taken is None:
                    continue
                stored = problem.table != "computed"
                name = {"attention": "none", "rope": "RoPE", "alibi": "ALiBi"}.get(problem.family, problem.family)
                embedding = f"{name}, {problem.table}" if problem.family in ("sinusoidal", "learned") else name
                error = table_error(problem) if stored else 0.0
                where = str(plain).removeprefix("attention ")
                rows.append((where, embedding, version, problem.table, taken.us, *found[:3], error))
    columns = ["problem", "embedding", "version", "table", "us", "over_none", "low", "high", "table_error"]
    return pd.DataFrame(rows, columns=columns)


def times_read(launch: Mapping[str, Any]) -> float:
    """Bytes that SMs got from L2, and from each other in a cluster, over those of Q, K and V once each."""
    problem = launch["problem"]
    return float(launch["l2_to_l1_bytes"] / (4 * (math.prod(problem.q_shape) + 2 * math.prod(problem.kv_shape))))
