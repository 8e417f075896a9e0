"""Use it: how fast the op is, what a call costs, and what it promises."""

import itertools
import statistics

from kernels import Problem
from kernels.op.warm import Call

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..models.rivals import V8, served
from ..models.waves import CARDS
from ..record.files import Row, problem_of
from ..record.runs import read
from ..studies import MAIN
from . import Says, checks, exact, faster, finding, numbers, slower, times
from .fuse import FUSED
from .v8 import LOG_SEPARATE

PORTABLE = "rope_v8_portable"


@finding("use-portable", """A card without clusters, such as an RTX 4090 or an A100, runs V8's portable core. On the
{card} that core is {slow:.2} as fast as V8 at the authors' shape, and {gain:.1} as fast as their separate kernels.""")
def portable(e: Evidence) -> Says:
    slow, gain = (e.speedup(*pair, study="beyond", problem=MAIN) for pair in ((PORTABLE, V8), (PORTABLE, LOG_SEPARATE)))
    return numbers(slow=times(slow), gain=times(gain)), checks(slower(slow), faster(gain))


@finding("use-elsewhere", """On cards other than Hopper's a float32 call is always fused: `rope_prompt32`, which rotates
first, needs Hopper's `wgmma`. No such card was timed, so we do not know whether fusing pays there.""")
def elsewhere(e: Evidence) -> Says:
    targets = {card.target for card in CARDS} - {"sm_90"}
    sizes = itertools.product((8, 32), (1, 8, 32, 512, 4096), (4096, 8192), (64, 512, 2048))
    calls = [Call(Problem("rope", 1, 32, kv_heads, q, k, hdim, 64)) for kv_heads, q, k, hdim in sizes]
    return numbers(), checks({call.served(each)[0] for call in calls for each in targets} <= FUSED)


def op_rows(e: Evidence, study: str, table: str = "op") -> list[Row]:
    """Measurements of the op: the rows of a study's latest complete run."""
    run = e.record.latest.get(study, {}).get("run")
    found = [row for row in read(e.record.folder / run, table) if row["study"] == study] if run else []
    if not found:
        raise NotMeasured("calls of the op were not measured: `make op`")
    return found


def of(rows: list[Row], table: str = "op") -> str:
    return f"{table} of {rows[0]['study']}, run {rows[0]['run']}"


@finding("use-first", """The first call, which compiles, takes {least:.1} to {most:.1} s. In the next process it finds
the kernels on disk, and takes {cached:.1} s at most.""")
def first(e: Evidence) -> Says:
    rows = op_rows(e, "op_first")
    cold, cached = (
        {problem_of(row): row["median_us"] / 1e6 for row in rows if row["timer"] == timer}
        for timer in ("first_call", "first_call_cached")
    )
    sooner = all(cached[problem] < seconds for problem, seconds in cold.items())
    least, most = min(cold.values()), max(cold.values())
    return exact(of(rows), least=least, most=most, cached=max(cached.values())), checks(sooner)


@finding("use-overhead", """A call costs the CPU up to {added:.0} on top of a bare launch of its kernel. A long prompt
in float32 costs up to {maps:.0}, because it first describes each tensor to the GPU's copy unit (TMA). In a CUDA graph
the op costs at most {graph:slower} over a bare launch.""")
def overhead(e: Evidence) -> Says:
    medians: dict[tuple[Problem, str, str], list[float]] = {}
    rows = op_rows(e, "op_time")
    for row in rows:
        if row["mode"] == "rates" and row["layout"] == "contiguous" and row["interleaved"] and row["median_us"]:
            medians.setdefault((problem_of(row), row["what"], row["timer"]), []).append(row["median_us"])

    def taken(what: str, timer: str) -> Estimates:
        mine = {p: statistics.median(us) for (p, *how), us in medians.items() if how == [what, timer]}
        return Estimates({problem: Estimate.exact(us, of(rows)) for problem, us in mine.items()}, "µs")

    graph = taken("launch", "device_warm") / taken("op", "device_warm")
    added = taken("op", "host_loop") - taken("launch", "host_loop")
    long = [problem for problem in added if served(e, problem) == "rope_prompt32"]
    short, maps = added.at(*(problem for problem in added if problem not in long)), added.at(*long)
    return numbers(added=short.fastest, maps=maps.fastest, graph=graph.slowest), checks(
        graph > 0.9, graph.slowest < 1, short > 0, maps > short.fastest
    )


@finding("use-problems", """None of {calls:,} random calls broke this rule. Some had values spread
over six orders of magnitude.""")
def problems(e: Evidence) -> Says:
    rows = op_rows(e, "op_problems", "op_problems")
    large = any(row["inputs"] == "large" for row in rows)
    return exact(of(rows, "op_problems"), calls=len(rows)), checks(large, all(row["status"] == "ok" for row in rows))
