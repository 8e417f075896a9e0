"""What the op of kernels/ops.py does on the GPU at hand: `python -m analysis op` writes op_problems.csv and op.csv.

    python -m analysis op                      2,000 random calls against float64, then a call beside a bare launch
    python -m analysis op --problems 200 --seed 7

Random calls are eager, or a captured graph that is replayed after other calls have evicted what the op caches. Called
again, the command makes the calls of which its run has no row.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from kernels import VERSIONS, Problem, Unsupported
from kernels.runtime.compile import CompileError, assembled, compile_ptx
from kernels.runtime.gpu import GpuError, Program, device_target
from kernels.runtime.tensors import plan_launch, planned_keys
from kernels.version import Launch

from ..evidence.current import today
from ..record import cards
from ..record.files import DataError, problem_columns
from .machine import now, warm_up
from .on_gpu import identify
from .op_calls import FUNCTIONS, MODES, Call, drawn, judge, tensors
from .refused import exit_code
from .runs import StudyRun, Writer
from .studies import MAIN, Study, partial_rope
from .timing import Timing, device_warm, summarise
from .workers import Hang, MeasureError, Worker, answer, compilers, tqdm

VERSIONS_OF = {"rope": "rope_v8", "attention": "attention_v8", "alibi": "alibi_v1"}  # whose kernels a family has
CALLS, SEED, MOST_KERNELS = 2000, 40, 180
PATIENCE = 90.0  # seconds: a kernel that is not compiled yet takes 10
EVICTING = 300  # calls that take the places of cached tables, of which the op keeps 256
REPETITIONS, HOST_CALLS, HOST_SAMPLES = 7, 400, 5  # fewer calls than the launches that queue up
PREFILL = partial_rope(1, 8, 2048, 128)  # of the study `beyond`
SMALL = Problem("rope", 1, 1, seq_q=8, hdim=64, rotary_dim=64)  # its launch is nearly all of its time
TIMED = (SMALL, MAIN, PREFILL, dataclasses.replace(PREFILL, causal=True))
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"interleaved": False},
    *({"layout": layout} for layout in ("transposed", "cache")),
    *({"mode": mode} for mode in MODES[1:3]),
)
Row = dict[str, Any]
Functions = Mapping[str, Callable[..., torch.Tensor]]


# ---------------------------------------------------------------- random calls


def functions() -> Functions:
    from kernels import ops

    return {name: getattr(ops, name) for name in FUNCTIONS.values()}


def launch_of(call: Call, target: str) -> Launch | None:
    """The launch of a call, planned as the op plans it; None where no core takes it."""
    problem, seq_k = call.problem, planned_keys(call.problem.seq_k)
    problem = dataclasses.replace(problem, seq_k=seq_k, q_offset=max(seq_k - problem.seq_q, 0))
    with contextlib.suppress(Unsupported):
        return plan_launch(problem, target, call.interleaved, "tables" in call.mode, "positions" in call.mode).launch
    return None


def _kernel(call: Call, target: str) -> Any:
    launch = launch_of(call, target)
    return launch and launch.kernel


def _compile(call: Call, target: str) -> None:
    with contextlib.suppress(CompileError):  # the call says so
        assembled(compile_ptx(_kernel(call, target), target), target)


def compile_all(calls: Sequence[Call], target: str) -> None:
    """Fill the cache of compiled kernels, several at a time; each kernel once."""
    if kernels := {kernel: call for call in calls if (kernel := _kernel(call, target))}:
        with compilers(target) as compile_each:
            compile_each(_compile, list(kernels.values()))


def call_columns(call: Call, target: str) -> Row:
    """The columns of a call that both tables have, with the time of the row and the hash of the code."""
    version, launch = VERSIONS_OF[call.problem.family], launch_of(call, target)
    about = {name: getattr(call, name) for name in ("interleaved", "mode", "layout")}
    made = {"core": launch and launch.shape.core, "source_hash": today(version), "measured_at": now()}
    return {"version": version, **problem_columns(call.problem), **about, **made}


def evict(call: Call, device: Any, op: Functions) -> None:
    """Call the function until what the op cached for this call is evicted, and its memory is in use by others."""
    for n in range(1, EVICTING + 1):
        shape = (n, 1, 1, 4) if call.problem.family == "alibi" else (1, 1, 1, 4)
        x = torch.zeros(shape, device=device)
        op[call.function](x, x, x, **({"base": call.base + n} if call.problem.family == "rope" else {}))
    for power in range(4, 20):
        for _ in range(32):
            torch.full((2**power,), float("nan"), device=device)


def replayed(call: Call, run: Callable[[], torch.Tensor], op: Functions) -> torch.Tensor:
    """The result of a graph of a call, replayed after an eviction."""
    run()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    evict(call, "cuda", op)
    graph.replay()
    torch.cuda.synchronize()
    return out


def check(call: Call, device: Any, op: Functions) -> Row:
    """Make a call: the columns of its status, and of its errors if it has a result.

    Raises: RuntimeError, where a launch failed; the device is then in no state to go on.
    """
    began, given = time.monotonic(), tensors(call, device)
    positions = given.options.get("positions")
    row: Row = {"largest_position": call.places - 1 if positions is None else int(positions.max())}
    made = functools.partial(op[call.function], given.q, given.k, given.v, **given.options)
    status, reason, out = "ok", "", None
    try:
        try:
            out = made(fallback=False) if call.called == "eager" else replayed(call, made, op)
        except Unsupported as refusal:
            status, reason, out = "fell_back", str(refusal), made()
    except (TypeError, ValueError) as error:  # Unsupported among them
        status, reason = "refused", str(error)
    if out is not None:
        found = judge(call, given, out)
        if broken := found.pop("broken"):
            status, reason = "wrong", "+".join(broken)
        row |= found
    return {**row, "status": status, "reason": reason or None, "seconds": round(time.monotonic() - began, 3)}


def check_calls(calls: Sequence[tuple[int, Call]], send: Connection) -> None:
    """Body of the measuring process: a row for each call."""
    op = functions()
    for place, (index, call) in enumerate(calls):
        send.send(("begun", place))
        send.send(("row", (index, check(call, "cuda", op))))


def check_problems(run: StudyRun, target: str, count: int = CALLS, seed: int = SEED) -> None:
    """Make the calls of a draw of which a run has no row. Raises: MeasureError, DataError."""
    calls = list(itertools.islice(drawn(seed, functools.partial(_kernel, target=target), MOST_KERNELS), count))
    done = {row["call"] for row in run.rows("op_problems") if row["seed"] == seed}
    todo = [(index, call) for index, call in enumerate(calls) if index not in done]
    compile_all([call for _, call in todo], target)
    with tqdm(total=len(todo), desc="check", unit="call") as bar, contextlib.closing(Worker(PATIENCE)) as worker:
        for kind, content in worker.do(check_calls, todo):
            if kind == "lost":
                (index, _), error = content
                status, reason = "hang" if isinstance(error, Hang) else "error", str(error).splitlines()[0]
                found: Row = {"status": status, "reason": reason, "seconds": PATIENCE if status == "hang" else 0.0}
            else:
                index, found = content
            call = calls[index]
            kernel = _kernel(call, target)
            own = {
                "seed": seed, "call": index, "function": call.function, "base": call.base,
                "scale": call.softmax_scale, "inputs": call.inputs, "called": call.called,
                "largest_position": call.places - 1, "kernel": kernel and kernel.name,
            }  # fmt: skip
            run.append("op_problems", [{**call_columns(call, target), **own, **found}])
            bar.update()


# ---------------------------------------------------------------- beside a bare launch


@dataclass(frozen=True)
class Timed:
    """What is timed; `launch` and `buffers` are what analysis.measure.timing asks of a program."""

    call: Call
    what: str
    run: Callable[[], Any]
    buffers: tuple[int, ...] = (0,)

    def launch(self, copy: int = 0) -> None:
        self.run()


def contestants(problem: Problem, op: Functions, target: str) -> list[Timed]:
    """The version's own launch, and the op in every variant, on the same values."""
    chosen = []
    for variant in VARIANTS:
        call = Call(problem, **variant)
        given = tensors(call, "cuda")
        if not variant:
            inputs = {"q": given.q, "k": given.k, "v": given.v}
            chosen.append(Timed(call, "launch", Program(VERSIONS["rope_v8"](problem, target), inputs).launch))
        run = functools.partial(op[call.function], given.q, given.k, given.v, **given.options)
        chosen.append(Timed(call, "op", run))
    return chosen


def host_loop(run: Callable[[], Any]) -> Timing:
    """The host's time of one call, of so few that it never waits for the device."""
    samples = []
    for _ in range(HOST_SAMPLES):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(HOST_CALLS):
            run()
        samples.append((time.perf_counter() - began) * 1e6 / HOST_CALLS)
    torch.cuda.synchronize()
    return summarise(samples)


def timings(chosen: list[Timed], target: str, repetitions: int = REPETITIONS) -> Iterator[Row]:
    """A row for each contestant, timer and repetition; each repetition in an order of its own."""
    dice = random.Random(0)
    for each in chosen:
        each.run()
    for repetition in range(1, repetitions + 1):
        for each in dice.sample(chosen, len(chosen)):
            for timer, timing in (("device_warm", device_warm(each)), ("host_loop", host_loop(each.run))):  # type: ignore[arg-type]
                own = {"what": each.what, "timer": timer, "repetition": repetition, "status": "ok"}
                yield {**call_columns(each.call, target), **own, **vars(timing)}


def _time_all(send: Connection) -> None:
    """Body of a measuring process."""
    warm_up()
    for problem in TIMED:
        for row in timings(contestants(problem, functions(), device_target()), device_target()):
            send.send(("row", row))


def time_op(run: StudyRun, target: str) -> None:
    """Time the op beside the version's own launch on small, main and long problems. Raises: MeasureError."""
    compile_all([Call(problem, **variant) for problem in TIMED for variant in VARIANTS], target)
    with contextlib.closing(Worker(PATIENCE)) as worker:
        for _, row in worker.ask(_time_all):
            run.append("op", [row])


# ---------------------------------------------------------------- the command


def measure_op(writer: Writer, target: str, count: int, seed: int, new_run: bool) -> bool:
    """Bring both studies to their ends; whether every row is as it should be. Raises: MeasureError, DataError."""
    fine = True
    for name, table, work in (
        ("op_problems", "op_problems", functools.partial(check_problems, count=count, seed=seed)),
        ("op_time", "op", time_op),
    ):
        run = StudyRun(Study(name, "", (), ()), writer, new_run)
        rows = run.rows(table)
        done = sum(row["seed"] == seed for row in rows) >= count if table == "op_problems" else bool(rows)
        if run.complete != done and (run.complete or table == "op"):  # of other code, or cut short
            run = StudyRun(Study(name, "", (), ()), writer, True)
        if not run.complete:
            work(run, target)
            run.save(complete=True)
        rows = run.rows(table)
        counts = collections.Counter(row["status"] for row in rows)
        print(f"[op] {name}: {', '.join(f'{n} {status}' for status, n in counts.items())}; {run.folder}")
        bad = [row for row in rows if row["status"] != "ok"]
        for row in bad[:40]:
            print(f"[op]   {row['status'].upper()}: call {row.get('call')}: {row['reason']}")
        fine &= not bad
    return fine


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis op", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=CALLS, help=f"random calls (default: {CALLS})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of their draw (default: {SEED})")
    parser.add_argument("--new-run", action="store_true", help="measure again what is complete")
    cards.add_options(parser)
    chosen = parser.parse_args(arguments)
    try:
        gpu = answer(identify)
        folder = cards.folder_of(gpu, chosen.gpu, chosen.wait)
        with contextlib.closing(Writer(folder, gpu)) as writer:
            fine = measure_op(writer, gpu["target"], chosen.problems, chosen.seed, chosen.new_run)
    except (MeasureError, DataError, GpuError) as error:
        print(f"op: {error}", file=sys.stderr)
        return exit_code(error)
    return 0 if fine else 1
