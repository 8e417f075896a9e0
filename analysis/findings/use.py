"""Use the kernel: how fast it is, what a call of the op costs, and when not to use it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import replace

from kernels import Problem
from kernels.checking.reference import ERROR_FACTOR

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..evidence.current import Row, complete_runs
from ..measure.studies import CACHED
from ..models.advice import FEW_QUERIES, decoding, one_query
from ..models.targets import BEYOND, COMPARED, V8, home
from ..record import records as measured_records
from ..record.files import problem_of
from . import Says, checks, faster, finding, numbers, slower
from .common import right
from .fuse import FULL, HYBRID, everywhere, gains, outcomes, worst
from .v8 import beside_pytorch

WRITTEN_OUT, SDPA = CACHED
HEADS = 128  # of K and V over the batch, which fill a card though each has one query
PREFILL = 2048  # the queries at which the rates of float32 and of half precision are compared
ORDINARY = ("uniform", "sharp", "large")  # inputs without values of a kind of their own


@finding("use-speed", """With up to 64 keys, or with more than {most:,} queries in all (queries per head × heads ×
batch), nothing of PyTorch's or Triton's beats `rope_v8` on an {card} by more than 3 %: it is {rest.over} as fast as the
fastest, on {rest.problems} problems. With more keys and fewer queries it is {starved.over} as fast and loses on
{starved.lost} of {starved.problems}: time PyTorch first there.""")
def speed(e: Evidence) -> Says:
    found = beside_pytorch(e)
    return numbers(most=FEW_QUERIES, rest=found.elsewhere, starved=found.starved), found.split


@finding("use-hybrid", """The alternatives are PyTorch compiled as one graph and PyTorch with RoPE alone compiled, on
some problems also the graph autotuned, a Triton kernel and flex_attention. V8's own hybrid, which can be up to {hybrid}
as fast, is not one of them: the package has no call for it.""")
def hybrid(e: Evidence) -> Says:
    found = worst(gains(e, HYBRID, everywhere))
    return numbers(hybrid=found), checks(faster(found))


# ---------------------------------------------------------------- the op


def op_rows(e: Evidence, study: str, table: str = "op") -> list[Row]:
    """What was measured of the op: the rows of a study's latest complete run. Raises: NotMeasured."""
    rows = measured_records(e.record.folder, table)
    run = complete_runs(e.record.frame("runs")).get(study, {}).get("run")
    found = [row for row in rows if (row["study"], row["run"]) == (study, run)]
    if not found:
        raise NotMeasured("calls of the op were not measured: `make op`")
    return found


@finding("use-overhead", """With contiguous tensors and interleaved pairs, a call of the op in a CUDA graph takes
{graph:.2} as long as the bare launch of `rope_v8`, on an {card}. Called eagerly, the op takes {added:.1} more host time
than a bare launch.""")
def overhead(e: Evidence) -> Says:
    medians: dict[tuple[Problem, str, str], list[float]] = {}
    for row in op_rows(e, "op_time"):
        if row["mode"] == "rates" and row["layout"] == "contiguous" and row["interleaved"] and row["median_us"]:
            medians.setdefault((problem_of(row), row["what"], row["timer"]), []).append(row["median_us"])

    def taken(what: str, timer: str) -> Estimates:
        mine = {problem: us for (problem, *how), us in medians.items() if how == [what, timer]}
        return Estimates({problem: Estimate.exact(statistics.median(us)) for problem, us in mine.items()}, "µs")

    graph = (taken("op", "device_warm") / taken("launch", "device_warm")).measured_in("times")
    added = taken("op", "host_loop") - taken("launch", "host_loop")
    return numbers(graph=graph, added=added), checks(graph < 1.03, added > 0, added < 15)


@finding("use-problems", """{calls:,} random calls were compared with float64 on an {card}, {special:,} of them with
infinities, NaN or values near the ends of float32. All {right:,} keep every rule below: an error of at most 4 times
that of fp32 math ({ratio:.2f}× at worst), and infinities and NaN where PyTorch has them.""")
def problems(e: Evidence) -> Says:
    rows = op_rows(e, "op_problems", "op_problems")
    kept = [row for row in rows if row["status"] == "ok"]
    ratio = max((row["ratio"] for row in kept if row["ratio"] is not None), default=0.0)
    special = sum(row["inputs"] not in ORDINARY for row in rows)
    return numbers(calls=len(rows), special=special, right=len(kept), ratio=ratio), checks(
        len(kept) == len(rows), ratio <= 4, ERROR_FACTOR == 4
    )


# ---------------------------------------------------------------- decoding


def cached(problem: Problem, name: str) -> Problem:
    """The step with the keys that a way starts from: rotated ones where it has a cache of them."""
    return replace(problem, cache="rotated") if name in CACHED else problem


def ways(e: Evidence, version: str, over: str, of: Callable[[Problem], bool] = decoding) -> Estimates:
    """How many times as fast as another a way to decode is, by the step, where both are right. Raises: NotMeasured."""
    found = {}
    for step in e.study("decode").problems("rope"):
        if step.cache == "none" and of(step):
            mine, theirs = cached(step, version), cached(step, over)
            if right(e, "decode", mine, version) and right(e, "decode", theirs, over):
                slow = e.time(over, study="decode", problem=theirs)[theirs]
                found[step] = slow / e.time(version, study="decode", problem=mine)[mine]
    if not found:
        raise NotMeasured("decoding was not measured: `make measure STUDY=decode`")
    return Estimates(found, "×")


def split(e: Evidence, dtype: str, over: str, of: Callable[[Problem], Problem] = lambda problem: problem) -> Estimates:
    """How many times as fast as another the decode kernel is, where both are right; `of` gives the other's problem."""
    found = {}
    for step in e.study("split_keys").problems("rope"):
        if (step.dtype, step.cache) != (dtype, "none") or not right(e, "split_keys", step, "rope_decode"):
            continue
        theirs = of(step)
        if right(e, "split_keys", theirs, over):
            slow = e.time(over, study="split_keys", problem=theirs)[theirs]
            found[step] = slow / e.time("rope_decode", study="split_keys", problem=step)[step]
    if not found:
        raise NotMeasured("split keys were not measured: `make measure STUDY=split_keys`")
    return Estimates(found, "×")


def unrotated(problem: Problem) -> Problem:
    """The step without RoPE, as SDPA has it of keys that are rotated already."""
    return replace(problem, family="attention", rotary_dim=0, q_offset=0)


@finding("use-split", """**With up to 8 queries the op decodes by kernels of its own.** Blocks share the keys, and each
key is rotated once for all heads that share it: in float32 that is {v8} as fast as `rope_v8` on an {card}, and {graph}
as fast as PyTorch's graph with attention written out. In half precision it is {cudnn} as fast as cuDNN, which reads
keys that are rotated already.""", card="nvidia-h100-80gb-hbm3")
def split_keys(e: Evidence) -> Says:
    v8, graph = split(e, "float32", V8), split(e, "float32", "torch_rope_one_graph")
    cudnn = split(e, "float16", "torch_sdpa_half_cudnn", unrotated)
    return numbers(v8=v8, graph=graph, cudnn=cudnn), checks(faster(v8), faster(graph), cudnn > 1 / 1.03)


def lost(gain: Estimates) -> int:
    """On how many it is slower, interval included."""
    return sum(slower(gain.at(key)).intervals is True for key in gain)


@finding("use-cache", """**From a cache of rotated keys, write attention out.** Two ways start from such a cache:
attention written out, and SDPA; each rotates the new query and key, and PyTorch compiles it as one graph. With one
query and more than 64 keys, attention written out is {sdpa} as fast as SDPA on an {card}.""")
def cache(e: Evidence) -> Says:
    sdpa, v8 = ways(e, WRITTEN_OUT, SDPA), ways(e, V8, WRITTEN_OUT)
    return numbers(sdpa=sdpa), checks(faster(sdpa), 2 * lost(v8) > len(v8))


@finding("use-cache-v8", """`rope_v8`, which rotates all keys, is {v8} as fast as attention written out. It loses on
{lost} of {problems} problems. It wins on all {many} with {heads} or more heads of K and V in the whole batch, by
{gain}.""")
def cache_v8(e: Evidence) -> Says:
    v8 = ways(e, V8, WRITTEN_OUT)
    gain = ways(e, V8, WRITTEN_OUT, lambda step: decoding(step) and step.batch * step.kv_heads >= HEADS)
    return numbers(
        v8=v8, lost=lost(v8), problems=len(v8), many=len(gain), heads=HEADS, gain=gain
    ), checks(2 * lost(v8) > len(v8), faster(gain))


@finding("use-decode", """**If the keys are not rotated yet:** with one query per head, more than 64 keys and fewer than
32 heads of K and V, rotating K in a launch before attention is {hybrid} as fast as `rope_v8` on an {card}. On {lost} of
{count} such problems `rope_v8` loses to this, or to rotating both before attention. PyTorch beats it, with one query
and more than 64 keys and whatever the number of heads, on {single.lost} of {single.problems}.""")
def decode(e: Evidence) -> Says:
    found, single = outcomes(e, one_query), beside_pytorch(e).one_query
    before = gains(e, FULL, one_query, version=HYBRID)
    return numbers(hybrid=before, lost=found.lost, count=found.problems, single=single), checks(
        found.lost > found.won, 2 * single.lost > single.problems
    )


# ---------------------------------------------------------------- half precision, errors


def rates(e: Evidence, named: Iterable[tuple[Problem, str, str]]) -> Estimates:
    """TFLOP/s of versions in studies."""
    found = {problem: e.tflops(name, study=study, problem=problem)[problem] for problem, name, study in named}
    return Estimates(found, "TFLOP/s").known


def words(rate: Estimates) -> str:
    return "; ".join(f"batch {p.batch}, {p.heads} heads of head dim {p.hdim}" for p in rate)


@finding("use-half", """With 2,048 queries `rope_v8` does {full:.0} in float32 on an {card} ({full_at}); PyTorch's
attention in half precision does {half:.0} ({half_at}).""")
def half(e: Evidence) -> Says:
    def prompt(problem: Problem) -> bool:
        return problem.seq_q == PREFILL and not problem.causal

    full = rates(e, ((problem, V8, study) for problem in filter(prompt, BEYOND) if (study := home(e, problem))))
    peers = e.study("fp16").versions("fp16", peers=True)
    fastest: dict[Problem, Estimate] = {}
    for problem in filter(prompt, e.study("fp16").problems("fp16")):
        for name in peers:
            rate = rates(e, [(problem, name, "fp16")]) if right(e, "fp16", problem, name) else None
            if rate and not rate[problem].value < getattr(fastest.get(problem), "value", 0.0):
                fastest[problem] = rate[problem]
    best = Estimates(fastest, "TFLOP/s")
    if not (full and best):
        raise NotMeasured("prompts of 2,048 tokens were not timed in both precisions")
    return numbers(full=full, half=best, full_at=words(full), half_at=words(best)), checks(best > full)


@finding("use-errors", """On the {problems} problems timed beside PyTorch the largest error against float64 is
{least:.1e} to {largest:.1e}, at most {relative:.2f}× that of fp32 math, on an {card}. Inputs are of the order of 1.""")
def errors(e: Evidence) -> Says:
    found = [e.study(study).check(V8, problem) for problem in COMPARED if (study := home(e, problem))]
    given = [check for check in found if check]
    if not given:
        raise NotMeasured("V8 was not timed right beside PyTorch")
    largest = [check.max_abs_err for check in given]
    relative = ERROR_FACTOR * max(check.excess for check in given)
    return numbers(
        problems=len(given), least=min(largest), largest=max(largest), relative=relative
    ), checks(relative <= ERROR_FACTOR)
