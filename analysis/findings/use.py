"""Use it: how fast the op is, what a call costs, and what it promises."""

import statistics

from kernels import Problem, Unsupported
from kernels.checking.reference import ERROR_FACTOR
from kernels.runtime.classes import Call

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..evidence.current import Row, complete_runs
from ..record.files import problem_of
from ..record.runs import read
from . import Says, checks, finding, numbers, slower
from .fuse import half_prompts
from .v8 import beside_pytorch


def op_version(e: Evidence, problem: Problem) -> str:
    """Whose kernels the op runs for a call of this shape on the card; V8 where it computes it by PyTorch."""
    try:
        return Call(problem).served(e.target, e.gpu["sms"])[0]
    except Unsupported:
        return "rope_v8"


@finding(
    "use-speed",
    """In float32 nothing of PyTorch's or Triton's, autotuning aside, beats `rope_v8` by more than 3 %, except where
many keys meet too few queries to fill the card. There it loses on {starved.lost} of {starved.problems} shapes, mostly
with one query. On {split} of these `rope_attention` runs kernels that split the keys instead, and on the others it is
as slow.""",
)
def speed(e: Evidence) -> Says:
    found = beside_pytorch(e)
    lost = [p for p, one in found.starved.over.items() if slower(Estimates({p: one})).intervals]
    split = sum(op_version(e, problem) != "rope_v8" for problem in lost)
    return numbers(starved=found.starved, split=split), checks(found.split, 2 * split > found.starved.lost)


@finding(
    "use-half",
    """In half precision it beats a compiled RoPE kernel with cuDNN or FlashAttention on all {all} prompts
that we timed. In the median it is {median} times as fast.""",
)
def half(e: Evidence) -> Says:
    gain = half_prompts(e)
    middle = statistics.median(one.value for one in gain.values())
    return numbers(all=len(gain), median=f"{middle:.1f}"), checks(gain > 1)


def op_rows(e: Evidence, study: str, table: str = "op") -> list[Row]:
    """What was measured of the op: the rows of a study's latest complete run. Raises: NotMeasured."""
    run = complete_runs(e.record.frame("runs")).get(study, {}).get("run")
    found = [row for row in read(e.record.folder / run, table) if row["study"] == study] if run else []
    if not found:
        raise NotMeasured("calls of the op were not measured: `make op`")
    return found


@finding(
    "use-overhead",
    """Called eagerly with its defaults, the op takes up to {added:.0} more host time than a bare launch. For a long
prompt in float32 it takes up to {maps:.0} more, as it builds a TMA descriptor of each tensor. In a CUDA graph it
adds nothing.""",
)
def overhead(e: Evidence) -> Says:
    medians: dict[tuple[Problem, str, str], list[float]] = {}
    for row in op_rows(e, "op_time"):
        if row["mode"] == "rates" and row["layout"] == "contiguous" and row["interleaved"] and row["median_us"]:
            medians.setdefault((problem_of(row), row["what"], row["timer"]), []).append(row["median_us"])

    def taken(what: str, timer: str) -> Estimates:
        mine = {problem: us for (problem, *how), us in medians.items() if how == [what, timer]}
        return Estimates({problem: Estimate.exact(statistics.median(us)) for problem, us in mine.items()}, "µs")

    graph = taken("op", "device_warm") / taken("launch", "device_warm")
    added = taken("op", "host_loop") - taken("launch", "host_loop")
    long = [problem for problem in added if op_version(e, problem) == "rope_prompt32"]
    short, maps = added.at(*(problem for problem in added if problem not in long)), added.at(*long)
    return numbers(added=short.fastest, maps=maps.fastest), checks(graph < 1.03, short > 0, maps > short.fastest)


@finding(
    "use-problems",
    """We compared {calls:,} random calls with float64. {broken} break the rule of errors, by up to {most:.0f} times: in
those, values of Q and K span six decades, and weights hang on the last bits of scores near a million.""",
)
def problems(e: Evidence) -> Says:
    rows = op_rows(e, "op_problems", "op_problems")
    broken = [row for row in rows if row["status"] != "ok"]
    most = max((row["ratio"] for row in broken), default=0.0) / ERROR_FACTOR
    return numbers(calls=len(rows), broken=len(broken), most=most), checks(
        all(row["inputs"] == "large" for row in broken), most > 1, len(broken) < len(rows) / 100
    )
