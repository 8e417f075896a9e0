"""V8 against its targets: what it is held to, what was measured, and the floor below which no kernel goes.

Everything here is computed from the studies `beyond`, `peers` and `embeddings`, from shapes.csv and from counters.csv;
what of these has not been measured on a GPU is said in the page instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import pandas as pd
from IPython.display import Markdown, display

from kernels import Problem
from kernels.reference import ERROR_FACTOR, table_error

from ..measure import tune
from ..measure.studies import STUDIES, studies
from ..models import profiles
from ..records.current import complete_runs, outdated
from ..records.files import DataError, gpu_folder, problem_of, read_json, read_table
from ..records.interval import TIE, Ratio, geometric_mean
from ..records.measured import Check, Measured, Time
from ..records.schema import SCHEMAS
from . import figures, tables
from .notebook import SOURCES, show
from .tables import Table

V8 = tune.VERSION
FAMILY = ("rope_hybrid_v8", "rope_separate_v8", "rope_v8_mma", "rope_v8_portable")
V7 = "rope_v7"
COUNTED = (V8, "rope_hybrid_v8", "rope_v8_portable", V7)  # whose hardware counters are shown
COMPILED = "torch_rope_compiled_sdpa"
MEASURED_IN = ("beyond", "peers")  # studies with peers of RoPE
NEEDED = (*MEASURED_IN, "embeddings")
SHAPES, COUNTERS = "shapes", "counters"

REACHED, MISSED, UNTOLD, UNMEASURED = "reached", "missed", "cannot be told", "not measured"
STYLE = {REACHED: "ok", MISSED: "wrong", UNTOLD: "stale", UNMEASURED: "unsupported"}


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
    def run(self) -> dict[str, Any]:
        """The run that figures name: that of `beyond`, or another; of the shapes where there is none."""
        for name in NEEDED:
            if name in self.studies:
                return self.studies[name].run
        return {"commit": self.shapes["commit"].iloc[-1] if len(self.shapes) else "unknown"}

    def lacks(self, *needs: str) -> list[str]:
        """Which of these studies, shapes or counters are not measured."""
        lacking = {SHAPES: self.shapes.empty, COUNTERS: V8 not in set(self.profiled["version"])}
        return [name for name in needs if lacking.get(name, name not in self.studies)]


def read(slug: str) -> Evidence:
    """What is recorded of a GPU. Raises: DataError for an unknown GPU or a damaged file."""
    folder = gpu_folder(slug)
    runs = read_table(folder / "runs.csv", "runs") if (folder / "runs.csv").exists() else None
    complete = {} if runs is None else complete_runs(runs)
    path = folder / "shapes.csv"
    shapes = pd.DataFrame(columns=[column.name for column in SCHEMAS[SHAPES]])
    if path.exists():
        shapes = read_table(path, SHAPES)
    shapes = shapes.assign(
        problem=[problem_of(row) for row in shapes.to_dict("records")],
        cut=shapes["cut"].fillna(""),
        median_us=shapes["median_us"].astype(float),
        chosen=shapes["chosen"].astype(bool),
    )
    found = {name: Measured.load(slug, name) for name in NEEDED if name in complete}
    profiled = profiles.attention(profiles.launches(folder))
    return Evidence(slug, read_json(folder / "gpu.json"), found, shapes, profiled[profiled["version"].isin(COUNTED)])


def load(gpu: str, source: str = "recorded") -> Evidence:
    """The evidence of a GPU, as recorded or measured now. Raises: DataError; RuntimeError without a GPU to measure."""
    if source not in SOURCES:
        raise DataError(f"source is {source!r}; allowed: {', '.join(SOURCES)}")
    if source == "live":
        from ..measure.run import measure_studies

        gpu = measure_studies(studies(",".join(NEEDED)))
        tune.tune()
    return read(gpu)


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
    rate = ceilings["l2_read_gb_s"] if moved <= gpu["l2_bytes"] else ceilings["read_gb_s"]
    seen = problem.seq_q * problem.seq_k
    if problem.causal:
        seen = sum(min(max(problem.q_offset + i + 1, 0), problem.seq_k) for i in range(problem.seq_q))
    flops = problem.flops * seen / (problem.seq_q * problem.seq_k)
    return Floor(
        launch=ceilings["empty_kernel_us"],
        bytes=moved / rate / 1e3,
        fp32=flops / ceilings["fp32_tflops"] / 1e6,
        tensor=3 * flops / (ceilings["tensor_tflops"] / 2) / 1e6,
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
FEW_HEADS = tuple(p for p in BEYOND if p.batch == 1 and p.seq_q <= 64)
FILLED_2048 = tuple(p for p in BEYOND if p.batch > 1 and p.hdim == 2048)
PREFILL_2048 = tuple(p for p in BEYOND if p.seq_q == 2048)
COUNTED_AT = (tune.MAIN, FILLED_2048[0], PREFILL_2048[0])
TARGETS = (
    Target("the main shape, time", "us", "at most", 8.0, (tune.MAIN,)),
    Target("the main shape, over the fastest peer", "peer", "at least", 8.0, (tune.MAIN,)),
    Target("the main shape, over `rope_v7`", "v7", "at least", 12.0, (tune.MAIN,)),
    Target(
        "the documents' shapes and around, head dim 512 and above, over the fastest peer",
        "peer",
        "at least",
        3.0,
        tuple(p for p in FEW_HEADS if p.hdim >= 512),
    ),
    Target(
        f"every shape, not slower than any peer or version; {100 * (TIE - 1):.0f} % are a tie",
        "other",
        "at least",
        1 / TIE,
        BEYOND,
    ),
    Target("a full card at head dim 2048, over SDPA with compiled RoPE", "compiled", "at least", 1.3, FILLED_2048),
    Target("prefill of 2048, over SDPA with compiled RoPE", "compiled", "at least", 1.3, PREFILL_2048),
    Target("every shape, error over that of fp32 math SDPA", "error", "at most", 2.0, BEYOND),
)


@dataclass(frozen=True)
class Rival:
    """Another version or peer, and how many times as long as V8 it takes in the same run."""

    version: str
    taken: Time
    ratio: Ratio


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
    found = []
    for measured in (evidence.studies[name] for name in MEASURED_IN if name in evidence.studies):
        mine = measured.check(V8, problem)
        names = (measured.versions("rope", peers=True) if peers else []) + (
            measured.versions("rope") if versions else []
        )
        for name in names if mine and mine.status == "ok" else ():
            check, taken = measured.check(name, problem), measured.time(name, problem)
            ratio = measured.ratio(name, V8, problem)
            if name != V8 and check and check.status == "ok" and taken and ratio:
                found.append(Rival(name, taken, ratio))
    return sorted(found, key=lambda rival: rival.ratio.value)


def _of(evidence: Evidence, problem: Problem) -> Measured | None:
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
    return ERROR_FACTOR * check.max_abs_err / check.allowed_abs_err


def result(evidence: Evidence, target: Target, problem: Problem) -> Result:
    """What was found of one target at one problem."""
    if target.quantity in ("us", "error"):
        measured = _of(evidence, problem)
        if measured is None:
            return Result(target, problem, None)
        if target.quantity == "us":
            return Result(target, problem, geometric_mean(measured.medians(V8, problem, "device_warm").to_numpy()))
        error = relative_error(measured.check(V8, problem))
        return Result(target, problem, None if error is None else Ratio(error, math.nan, math.nan))
    found = rivals(evidence, problem, peers=target.quantity != "v7", versions=target.quantity in ("other", "v7"))
    wanted = {"compiled": lambda name: name.startswith(COMPILED), "v7": lambda name: name == V7}
    found = [rival for rival in found if wanted.get(target.quantity, lambda name: True)(rival.version)]
    return Result(target, problem, found[0].ratio, found[0].version) if found else Result(target, problem, None)


def results(evidence: Evidence) -> list[Result]:
    """What was found of every target at every problem of it."""
    return [result(evidence, target, problem) for target in TARGETS for problem in target.problems]


def worst(found: Sequence[Result]) -> Result | None:
    """Of what was measured of one target, the furthest on the wrong side."""
    return min((each for each in found if each.found), key=_reach, default=None)


def _reach(result: Result) -> float:
    """How far a result goes towards its target, larger being further."""
    assert result.found is not None
    return result.found.value if result.target.rule == "at least" else -result.found.value


# ---------------------------------------------------------------- tables


def _badge(word: str) -> str:
    return f"<span class='status {STYLE[word]}'>{word}</span>"


def _shape(problem: Problem) -> str:
    return str(problem).removeprefix("rope ")


def target_table(evidence: Evidence) -> Table:
    """Every target: where it is reached, and the problem that is furthest from it."""
    rows = []
    found = results(evidence)
    for target in TARGETS:
        mine = [each for each in found if each.target == target]
        last = worst(mine)
        words: dict[str, int] = {}
        for each in mine:
            words[each.verdict] = words.get(each.verdict, 0) + 1
        said = "<br>".join(_badge(w) + (f" at {n} of {len(mine)}" if len(mine) > 1 else "") for w, n in words.items())
        where = measured = tables.NOTHING
        if last and last.found:
            against = f"<br>{tables.small(tables.code(last.rival))}" if last.rival else ""
            least = floor(last.problem, evidence.gpu).us
            below = f"<br>{tables.small(f'floor {least:.1f} µs')}" if last.verdict == MISSED else ""
            where = f"{_shape(last.problem)}{against}{below}"
            measured = tables.ratio(last.found).replace("×", target.unit, 1)
        about = escape(target.about).replace("`rope_v7`", "<code>rope_v7</code>")
        rows.append((about, f"{target.rule} {target.value:.3g}{target.unit}", said, measured, where))
    header = ("target", "asked", "verdict", "at worst", "where")
    return Table(
        header,
        rows,
        numbers=("asked", "at worst"),
        caption="With the 95 % interval over the processes: reached or missed where all of it lies on one side. Peers "
        "and versions whose result is wrong do not count. device_warm.",
    )


def problem_table(evidence: Evidence) -> Table:
    """Every problem: V8, its floor, the fastest peer, the log's V7, and its error."""
    rows = []
    missed = {each.problem: 0 for each in results(evidence)}
    for each in results(evidence):
        missed[each.problem] += each.verdict == MISSED
    for problem in BEYOND:
        measured = _of(evidence, problem)
        taken = measured.time(V8, problem) if measured else None
        peer = next(iter(rivals(evidence, problem, peers=True)), None)
        seventh = measured.ratio(V7, V8, problem) if measured else None
        error = relative_error(measured.check(V8, problem)) if measured else None
        rows.append(
            (
                _shape(problem) + (f"<br>{_badge(MISSED)}" if missed[problem] else ""),
                tables.microseconds(taken),
                f"{floor(problem, evidence.gpu).us:.1f}",
                f"{peer.taken.us:.1f}<br>{tables.small(tables.code(peer.version))}" if peer else tables.NOTHING,
                tables.ratio(peer.ratio if peer else None),
                tables.ratio(seventh),
                f"{error:.2f}×" if error is not None else tables.NOTHING,
            )
        )
    header = ("problem", "V8, µs", "floor, µs", "fastest peer, µs", "peer over V8", "V7 over V8", "error")
    return Table(
        header,
        rows,
        numbers=header[1:],
        caption=f"device_warm on the {evidence.gpu['name']}. The fastest peer whose result is right. Error: the "
        "largest over that of fp32 math SDPA, on the worse of two inputs. Missed: some target at this problem.",
    )


def floor_table(evidence: Evidence, problem: Problem = tune.MAIN) -> Table:
    """What a call at the main shape cannot do without, and what it takes."""
    least = floor(problem, evidence.gpu)
    rows = [
        ("an empty launch in a graph", f"{least.launch:.2f}"),
        ("Q, K, V and the output, once each", f"{least.bytes:.2f}"),
        ("both products, fp32 units", f"{least.fp32:.2f}"),
        ("both products, three TF32 products each", f"{least.tensor:.2f}"),
        ("<b>floor, fp32 units</b>", f"<b>{least.fp32_us:.2f}</b>"),
        ("<b>floor, tensor cores</b>", f"<b>{least.us:.2f}</b>"),
    ]
    measured = _of(evidence, problem)
    if measured and (taken := measured.time(V8, problem)):
        rows.append((f"{tables.link(V8)}, measured", tables.microseconds(taken)))
    alone = _row(evidence.shapes, problem, "copies_alone")
    if alone:
        rows.append(("its copies and exchanges alone, measured", f"{alone:.2f}"))
    return Table(
        ("what", "µs"),
        rows,
        numbers=("µs",),
        caption=f"{_shape(problem)} on the {evidence.gpu['name']}, from its measured ceilings. A floor is the launch "
        "and the larger of bytes and operations.",
    )


# ---------------------------------------------------------------- steps


@dataclass(frozen=True)
class Step:
    """An idea, what it was expected to do, and how today's code tells: the times without it over those with it."""

    idea: str
    expected: str
    compare: Callable[[pd.DataFrame], dict[Problem, float]]


def _timed(shapes: pd.DataFrame, problem: Problem, **columns: Any) -> pd.DataFrame:
    """Rows of right results at a problem, with no change to the kernel unless `cut` names one."""
    mine = shapes[(shapes["problem"] == problem) & shapes["median_us"].notna()]
    for name, value in {"cut": "", **columns}.items():
        mine = mine[mine[name] == value]
    return mine


def _row(shapes: pd.DataFrame, problem: Problem, cut: str) -> float | None:
    mine = _timed(shapes, problem, cut=cut)
    return float(mine["median_us"].iloc[0]) if len(mine) else None


def _best(shapes: pd.DataFrame, problem: Problem, **columns: Any) -> float | None:
    mine = _timed(shapes, problem, **columns)
    return float(mine["median_us"].min()) if len(mine) else None


def _between(problems: Iterable[Problem], without: Mapping[str, Any], having: Mapping[str, Any]) -> Callable:
    """The best time of shapes `without` something over the best of those `having` it."""

    def compare(shapes: pd.DataFrame) -> dict[Problem, float]:
        found = {}
        for problem in problems:
            slow, fast = _best(shapes, problem, **without), _best(shapes, problem, **having)
            if slow and fast:
                found[problem] = slow / fast
        return found

    return compare


def _changed(name: str, back: bool) -> Callable[[pd.DataFrame], dict[Problem, float]]:
    """What a change to the kernel gains or, where it takes a step back, what the step gained."""

    def compare(shapes: pd.DataFrame) -> dict[Problem, float]:
        found = {}
        for problem in tune.CHANGES[name].problems:
            as_it_is, changed = _base(shapes, problem), _row(shapes, problem, name)
            if as_it_is and changed:
                found[problem] = changed / as_it_is if back else as_it_is / changed
        return found

    return compare


def _base(shapes: pd.DataFrame, problem: Problem) -> float | None:
    """The time of the shape that changes are made to: what the rule of the warpgroup core chooses."""
    changed = shapes[(shapes["problem"] == problem) & (shapes["cut"] != "")]
    if changed.empty:
        return None
    first = changed.iloc[0]
    same = {name: first[name] for name in ("core", "cluster", "queries", "width", "warps", "blocks_per_sm", "once")}
    return _best(shapes, problem, **same)


FILLED_512 = next(p for p in tune.PROBLEMS if p.batch > 1 and p.hdim == 512)
STEPS = (
    Step(
        "the head dim split over a cluster of 8, not 4",
        "faster: more SMs work on few heads",
        _between((tune.SMALL, tune.PROBLEMS[3]), {"core": "wgmma", "cluster": 4}, {"core": "wgmma", "cluster": 8}),
    ),
    Step(
        "a cluster of 16, not 8",
        "faster: fewer bytes are copied to each block",
        _between((tune.MAIN,), {"core": "wgmma", "cluster": 8}, {"core": "wgmma", "cluster": 16}),
    ),
    Step(
        "products of warpgroups, not of warps",
        "faster: nearly twice the rate of the tensor cores",
        _between((tune.MAIN, FILLED_512, tune.PREFILL), {"core": "mma"}, {"core": "wgmma"}),
    ),
    Step(
        "four warpgroups a block, not two",
        "faster: more warps hide latencies",
        _between((tune.MAIN, tune.PREFILL), {"core": "wgmma", "warps": 8}, {"core": "wgmma", "warps": 16}),
    ),
    Step(
        "two blocks an SM, V where K was",
        "faster on a full card: one computes while the other waits",
        _between((FILLED_512,), {"core": "wgmma", "blocks_per_sm": 1}, {"core": "wgmma", "blocks_per_sm": 2}),
    ),
    Step(
        "copies of V begin before the products of Q and K",
        "faster: V is there when it is needed",
        _changed("values_early", back=False),
    ),
    Step(
        "the rows of a warp reduced side by side",
        "faster: latencies of shuffles overlap",
        _changed("rows_in_turn", back=True),
    ),
    Step(
        "dims that are not rotated on a path of their own",
        "faster: no branch between a load and its product",
        _changed("two_paths", back=False),
    ),
    Step(
        "the wait for K waits for K alone",
        "faster: not for what was stored of Q since",
        _changed("wait_for_stores", back=True),
    ),
    Step(
        "the next fragments of V loaded while products run",
        "faster: the tensor cores do not wait for them",
        _changed("values_in_turn", back=True),
    ),
    Step(
        "the mbarriers made when Q and K are on their way",
        "faster: one thread makes them, and all others wait",
        _changed("barriers_first", back=True),
    ),
    Step(
        "Q loaded before the copies of K begin, by a barrier",
        "faster: Q is placed while K arrives",
        _changed("queries_unordered", back=True),
    ),
    Step(
        "keys of many tiles embedded by all blocks together, once",
        "faster for long sequences: no key is embedded again, for one wait",
        _between(tune.LONG, {"core": "wgmma", "once": False}, {"core": "wgmma", "once": True}),
    ),
    Step(
        "under a mask the last queries first",
        "faster: the longest blocks do not begin last",
        _changed("first_queries_first", back=True),
    ),
)


def held(ratios: Iterable[float]) -> str:
    """Whether a step that was expected to be faster is: all within 3 % of 1 make no difference."""
    ratios = list(ratios)
    if not ratios:
        return UNMEASURED
    if all(ratio > TIE for ratio in ratios):
        return "held"
    if all(1 / TIE <= ratio <= TIE for ratio in ratios):
        return "no difference"
    return "refuted" if max(ratios) <= TIE else "held in part"


STEP_STYLE = {"held": "ok", "refuted": "wrong", "held in part": "stale", "no difference": "unsupported"}


def step_table(evidence: Evidence) -> Table:
    """Every step that today's code can take back: what was expected, and how much faster it is with it."""
    rows = []
    for step in STEPS:
        found = step.compare(evidence.shapes)
        word = held(found.values())
        gains = "<br>".join(f"{ratio:.2f}× {tables.small(_shape(problem))}" for problem, ratio in found.items())
        badge = f"<span class='status {STEP_STYLE.get(word, 'unsupported')}'>{word}</span>"
        rows.append((step.idea, step.expected, gains or tables.NOTHING, badge))
    header = ("step", "expected", "times as fast with it", "verdict")
    return Table(
        header,
        rows,
        caption="device_warm, the middle one of three repetitions; the best shape with it over the best without it, or "
        "the kernel as it is over one with the step taken back. Within 3 % there is no difference.",
    )


# ---------------------------------------------------------------- counters


def counter_table(evidence: Evidence) -> Table:
    """What the hardware counted of V8 and its relatives: how often each byte is read, what is busy, what waits."""
    rows = []
    for problem in COUNTED_AT:
        for version in COUNTED:
            mine = evidence.profiled
            mine = mine[(mine["problem"] == problem) & (mine["version"] == version)]
            for row in mine.to_dict("records"):
                waits = profiles.waits(row)
                least = sorted((name for name in waits if name != profiles.ISSUES), key=lambda name: -waits[name])[:2]
                rows.append(
                    (
                        _shape(problem),
                        tables.name(version, row["stale"]),
                        f"{row['duration_ns'] / 1e3:.1f}",
                        f"{times_read(row):.1f}×",
                        f"{row['warps_percent']:.0f}",
                        f"{row['issue_percent']:.0f}",
                        f"{row['l2_percent']:.0f}",
                        f"{row['l1_percent']:.0f}",
                        "<br>".join(f"{escape(name)} {tables.small(f'{100 * waits[name]:.0f} %')}" for name in least),
                    )
                )
    header = ("problem", "version", "µs", "read", "warps %", "issue %", "L2 %", "L1 %", "waits most for")
    return Table(
        header,
        rows,
        numbers=header[2:-1],
        caption="The attention launch, by Nsight Compute, whose µs are longer than those timed without it. Read: bytes "
        "that SMs got from L2, and from each other in a cluster, over those of Q, K and V. Per cent of peak: issue, of "
        "the schedulers, L2, and the path to L1 and shared memory; warps, of all that an SM holds. Waits: of the time "
        "of a warp.",
    )


def times_read(launch: Mapping[str, Any]) -> float:
    """Bytes that SMs got from L2, and from each other in a cluster, over those of Q, K and V once each."""
    problem = launch["problem"]
    return float(launch["l2_to_l1_bytes"] / (4 * (math.prod(problem.q_shape) + 2 * math.prod(problem.kv_shape))))


# ---------------------------------------------------------------- what figures draw


def regret(shapes: pd.DataFrame) -> pd.DataFrame:
    """Every shape that is right, with its time over the best of its problem."""
    mine = shapes[(shapes["cut"] == "") & (shapes["status"] == "ok") & shapes["median_us"].notna()]
    best = mine.groupby("problem")["median_us"].transform("min")
    columns = ["core", "cluster", "queries", "width", "warps", "blocks_per_sm", "once", "chosen", "median_us"]
    frame = mine[["problem", *columns]].assign(over_best=mine["median_us"] / best)
    order = {problem: place for place, problem in enumerate(tune.PROBLEMS)}
    frame = frame[frame["problem"].isin(order)].sort_values("problem", key=lambda p: p.map(order), kind="stable")
    return frame.assign(problem=frame["problem"].map(_shape))


def cuts(shapes: pd.DataFrame) -> pd.DataFrame:
    """The kernel as it is and with each part left out, at every problem of the cuts."""
    rows = []
    for problem in tune.CUT_AT:
        whole = _base(shapes, problem)
        parts = {"the kernel": whole, **{cut.about: _row(shapes, problem, cut.name) for cut in tune.CUTS}}
        for part, us in parts.items():
            if us and whole:
                rows.append((_shape(problem), part, us, us / whole))
    return pd.DataFrame(rows, columns=["problem", "part", "median_us", "share"])


def family(evidence: Evidence) -> pd.DataFrame:
    """The family, the fastest peer and the log's V7 at every problem: times, and those over V8's."""
    rows = []
    for problem in BEYOND:
        measured = _of(evidence, problem)
        taken = measured.time(V8, problem) if measured else None
        if measured is None or taken is None:
            continue
        shape = (_kind(problem), _shape(problem))
        rows.append((*shape, V8, V8, taken.us, 1.0))
        others = {rival.version: rival for rival in rivals(evidence, problem, peers=False, versions=True)}
        for name in (*FAMILY, V7):
            if name in others:
                rows.append((*shape, name, name, others[name].taken.us, others[name].ratio.value))
        peer = next(iter(rivals(evidence, problem, peers=True)), None)
        if peer:
            rows.append((*shape, "peer", peer.version, peer.taken.us, peer.ratio.value))
    return pd.DataFrame(rows, columns=["kind", "problem", "series", "version", "median_us", "over_v8"])


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
                if ratios.empty or taken is None:
                    continue
                stored = problem.table != "computed"
                found = geometric_mean(ratios.to_numpy())
                name = {"attention": "none", "rope": "RoPE", "alibi": "ALiBi"}.get(problem.family, problem.family)
                label = f"{name}, {problem.table}" if problem.family in ("sinusoidal", "learned") else name
                error = table_error(problem) if stored else 0.0
                where = str(plain).removeprefix("attention ")
                rows.append((where, label, version, problem.table, taken.us, *found, error))
    columns = ["problem", "embedding", "version", "table", "median_us", "over_none", "low", "high", "table_error"]
    return pd.DataFrame(rows, columns=columns)


# ---------------------------------------------------------------- what the notebook calls


@dataclass(frozen=True)
class Part:
    """A figure or table of the chapter, and what it needs to have been measured."""

    needs: tuple[str, ...]
    make: Callable[[Evidence], Any]


PARTS = {
    "idea": Part((), lambda e: figures.v8_idea(*tune.choice(tune.MAIN), tune.MAIN)),
    "floor": Part((), floor_table),
    "steps": Part((SHAPES,), step_table),
    "shapes": Part((SHAPES,), lambda e: figures.v8_shapes(regret(e.shapes), e.gpu["name"])),
    "cuts": Part((SHAPES,), lambda e: figures.v8_cuts(cuts(e.shapes), e.gpu["name"])),
    "counters": Part((COUNTERS,), counter_table),
    "targets": Part(("beyond",), target_table),
    "problems": Part(("beyond",), problem_table),
    "family": Part(("beyond",), lambda e: figures.v8_family(family(e), e.gpu["name"])),
    "embeddings": Part(("embeddings",), lambda e: figures.v8_embeddings(embeddings(e), e.gpu["name"])),
}
COMMANDS = {SHAPES: "make tune", COUNTERS: "make counters", **{name: f"make measure STUDY={name}" for name in NEEDED}}


def part(name: str, evidence: Evidence) -> None:
    """Show a part of the chapter, or say what has to be measured for it. Raises: DataError for an unknown part."""
    if name not in PARTS:
        raise DataError(f"the chapter has no part {name!r}; it has {', '.join(PARTS)}")
    lacking = evidence.lacks(*PARTS[name].needs)
    if lacking:
        how = " and ".join(f"`{COMMANDS[each]}`" for each in lacking)
        display(Markdown(f"*Not measured on the {evidence.gpu['name']} yet: {how} does.*"))
        return
    show(PARTS[name].make(evidence), evidence)  # type: ignore[arg-type]


def tell(text: str, evidence: Evidence, *needs: str) -> None:
    """Show Markdown with the numbers of `words` filled in; nothing where what it needs is not measured."""
    if not evidence.lacks(*needs):
        display(Markdown(text.format(**words(evidence))))


def words(evidence: Evidence) -> dict[str, str]:
    """The numbers of the chapter's prose: what is not measured has no entry."""
    least = floor(tune.MAIN, evidence.gpu)
    shape = tune.choice(tune.MAIN)[1]
    said = {
        "gpu": evidence.gpu["name"],
        "floor": f"{least.us:.1f} µs",
        "fp32_floor": f"{least.fp32_us:.1f} µs",
        "cluster": str(shape.cluster),
        "queries": str(shape.queries),
        "width": str(shape.width),
        "tiles": str(-(-tune.MAIN.seq_q // shape.queries)),
    }
    measured = _of(evidence, tune.MAIN)
    if measured:
        taken = measured.time(V8, tune.MAIN)
        found = results(evidence)
        verdicts = [worst_verdict([each for each in found if each.target == target]) for target in TARGETS]
        peer = next(iter(rivals(evidence, tune.MAIN, peers=True)), None)
        said |= {
            "main": f"{taken.us:.1f} µs" if taken else "no number",
            "over_floor": f"{taken.us / least.us:.1f}×" if taken else "no number",
            "peer": f"`{peer.version}`" if peer else "no peer",
            "over_peer": f"{peer.ratio.value:.1f}×" if peer else "no number",
            "reached": str(verdicts.count(REACHED)),
            "targets": str(len(TARGETS)),
        }
    counted = evidence.profiled
    counted = counted[(counted["problem"] == tune.MAIN) & (counted["version"] == V8)].to_dict("records")
    for row in counted:
        idle = {name: share for name, share in profiles.waits(row).items() if name != profiles.ISSUES}
        said |= {
            "times_read": f"{times_read(row):.2f}",
            "issue": f"{row['issue_percent']:.0f} %",
            "busiest": f"{max(row[column] for column in profiles.UNITS.values()):.0f} %",
            "longest_wait": f"{100 * max(idle.values()):.0f} %",
        }
    if len(evidence.shapes):
        changed = int(outdated(evidence.shapes, V8).sum())
        said["tried"] = str(len(evidence.shapes))
        said["stale"] = f" Of them, **{changed} are stale**: the code has changed since." if changed else ""
    return said


def worst_verdict(found: Sequence[Result]) -> str:
    """The verdict of a target over its problems: missed if any is, reached if all are."""
    words = {each.verdict for each in found}
    return next(word for word in (MISSED, UNMEASURED, UNTOLD, REACHED) if word in words)
