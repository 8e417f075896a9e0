"""Use it: how fast the op is, what a call costs, and what it promises."""

import statistics

from kernels import Problem
from kernels.checking.reference import ERROR_FACTOR

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..evidence.current import Row, complete_runs
from ..models.advice import starved
from ..models.rivals import beside_op, served
from ..record.files import problem_of
from ..record.runs import read
from . import Says, checks, finding, not_slower, numbers, slower

WIDE = 512  # head dims from which a few queries on many keys are V8's, and slow


@finding("use-speed", """We timed {all} shapes in float32 beside PyTorch and Triton. On {lost} of them `rope_attention`
is slower, all with few queries on many keys and a head dim of {wide} or more.""")
def speed(e: Evidence) -> Says:
    found = {problem: rival.over for problem, rival in beside_op(e).items()}
    if not found:
        raise NotMeasured("nothing was timed beside the op's kernels")
    few = {problem for problem in found if starved(problem) and problem.hdim >= WIDE}
    lost = sum(slower(Estimates({problem: found[problem]})).intervals is True for problem in few)
    others = Estimates({problem: over for problem, over in found.items() if problem not in few}, "×")
    return numbers(all=len(found), lost=lost, wide=WIDE), checks(lost > 0, not_slower(others))


def op_rows(e: Evidence, study: str, table: str = "op") -> list[Row]:
    """What was measured of the op: the rows of a study's latest complete run. Raises: NotMeasured."""
    run = complete_runs(e.record.frame("runs")).get(study, {}).get("run")
    found = [row for row in read(e.record.folder / run, table) if row["study"] == study] if run else []
    if not found:
        raise NotMeasured("calls of the op were not measured: `make op`")
    return found


@finding("use-overhead", """Called with its defaults, the op takes up to {added:.0} more of the host's time than a bare
launch of its kernel, and up to {maps:.0} more for a long prompt in float32, for which it describes each tensor to the
card. In a graph it adds nothing.""")
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
    long = [problem for problem in added if served(e, problem) == "rope_prompt32"]
    short, maps = added.at(*(problem for problem in added if problem not in long)), added.at(*long)
    return numbers(added=short.fastest, maps=maps.fastest), checks(graph < 1.03, short > 0, maps > short.fastest)


@finding("use-problems", """Of {calls:,} random calls {broken} break this rule. In those, values of Q and K span six
decades, and weights hang on the last bits of scores near a million.""")
def problems(e: Evidence) -> Says:
    rows = op_rows(e, "op_problems", "op_problems")
    broken = [row for row in rows if row["status"] != "ok"]
    return numbers(calls=len(rows), broken=len(broken)), checks(
        all(row["inputs"] == "large" and row["ratio"] > ERROR_FACTOR for row in broken), len(broken) < len(rows) / 100
    )
