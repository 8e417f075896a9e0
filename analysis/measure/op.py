"""Check and time the op of kernels/op on the GPU at hand: `python -m analysis op`.

Random calls are eager, or a captured graph that is replayed after other calls have evicted what the op caches, on the
whole card or in slices of it (`--sms 48 24 8` makes these alone). Called again, the command makes the calls of which
its run has no row.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import torch

from kernels import VERSIONS, Problem, Unsupported, op
from kernels.runtime.compile import CompileError, assembled, compile_ptx
from kernels.runtime.gpu import Program, device_target
from kernels.runtime.slices import sliced

from ..record import cards
from ..record.files import ROOT, problem_columns
from ..studies import MAIN, OP, Study, partial_rope
from . import op_calls
from .machine import warm_up
from .on_gpu import Row, said
from .op_calls import DTYPES, FUNCTIONS, SLICES, Call, drawn, judge, tensors
from .run import StudyRun, Writer, at_card
from .timing import measure, summarise
from .workers import CORES, Hang, Worker, compilers, tqdm

CALLS = 2000  # of a random study
MOST_PROCESSES, ROOM = 8, 8 << 30  # that check calls at a time; bytes of the card's memory for each
EVICTING = 300  # calls that take the places of cached tables, of which the op keeps 256

REPETITIONS, HOST_CALLS, HOST_SAMPLES = 7, 400, 5  # fewer calls than the launches that queue up
PREFILL = partial_rope(1, 8, 2048, 128)  # of the study `beyond`
SMALL = Problem("rope", 1, 1, seq_q=16, hdim=64, rotary_dim=64)  # its launch is nearly all of its time
TIMED = (SMALL, MAIN, PREFILL, dataclasses.replace(PREFILL, causal=True))
FIRST_CALLS = (
    *(Problem("rope", 1, 32, 8, 1, 4096, 128, 128, dtype) for dtype in DTYPES[:2]),
    Problem("rope", 1, 32, 8, 2048, 2048, 128, 128, "bfloat16", causal=True),
    Problem("rope", 1, 8, 8, 2048, 2048, 128, 128),
    MAIN,
)
STREAM_CALLS, REPLAYS, TOGETHER = 10_000, 2_000, 10
STRESSED_SMS = (24, 48)
SHAPES = ((1, 32, 8, 1, 4096, 128), (2, 8, 8, 4, 900, 64))  # batch, heads, KV heads, queries, keys, head dim
STRESSED = tuple(
    Call(Problem("rope", *shape, rotary_dim=shape[-1], dtype=dtype, causal=shape[3] > 1))
    for shape in SHAPES
    for dtype in DTYPES[:2]
)
QKV = list[torch.Tensor]  # q, k and v
Run = Callable[[QKV], torch.Tensor]


# ---------------------------------------------------------------- one call


def function_of(call: Call) -> Callable[..., torch.Tensor]:
    return getattr(op, FUNCTIONS[call.problem.family])


def evict(call: Call, device: Any) -> None:
    """Call the function until what the op cached for this call is evicted, and its memory is in use by others."""
    for n in range(1, EVICTING + 1):
        x = torch.zeros((n, 1, 1, 4) if call.problem.family == "alibi" else (1, 1, 1, 4), device=device)
        function_of(call)(x, x, x, **({"base": call.base + n} if call.problem.family == "rope" else {}))
    _ = [torch.full((2**power,), math.nan, device=device) for power in range(4, 20) for _ in range(32)]


def replayed(call: Call, run: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The result of a graph of a call, replayed after an eviction."""
    run()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream() if call.sms else None):
        out = run()
    evict(call, "cuda")
    graph.replay()
    torch.cuda.synchronize()
    return out


def check(call: Call, device: Any) -> Row:
    """Make a call, in its slice of the card: the columns of its status, and of its errors if it has a result.

    Raises: RuntimeError, where a launch failed; the device is then in no state to go on.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        try:
            if call.sms:
                stack.enter_context(torch.cuda.stream(stack.enter_context(sliced(call.sms))))
        except Unsupported as refusal:
            row: Row = {"status": "unavailable", "reason": str(refusal)}
        else:
            row = _checked(call, device)
    return {**row, "seconds": round(time.monotonic() - began, 3)}


def _checked(call: Call, device: Any) -> Row:
    qkv, options = tensors(call, device)
    made = functools.partial(function_of(call), *qkv, **options)
    row: Row = {"status": "ok"}
    try:
        try:
            out = made(fallback=False) if call.called == "eager" else replayed(call, made)
            row |= judge(call, (qkv, options), out)
            row["status"] = "wrong" if row["reason"] else "ok"
        except Unsupported as refusal:
            row |= judge(call, (qkv, options), made())
            row |= {"status": "wrong"} if row["reason"] else {"status": "fell_back", "reason": str(refusal)}
    except (TypeError, ValueError) as error:  # Unsupported among them
        row = {"status": "refused", "reason": str(error)}
    return row


def check_calls(calls: Sequence[tuple[int, Call]], send: Connection) -> None:
    """Body of the measuring process: a row for each call."""
    for place, (index, call) in enumerate(calls):
        send.send(("begun", place))
        send.send(("row", (index, check(call, "cuda"))))


# ---------------------------------------------------------------- times


def host_loop(run: Callable[[], Any]) -> list[float]:
    """Samples of the host's time of one call, of so few that it never waits for the device."""
    samples = []
    for _ in range(HOST_SAMPLES):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(HOST_CALLS):
            run()
        samples.append((time.perf_counter() - began) * 1e6 / HOST_CALLS)
    torch.cuda.synchronize()
    return samples


def time_op(send: Connection) -> None:
    """Body of a measuring process: the op beside the version's own launch, on the same values.

    A row for each, timer and repetition; each repetition in an order of its own.
    """
    warm_up()
    dice, target = random.Random(0), device_target()
    for call in map(Call, TIMED):
        qkv, options = tensors(call, "cuda")
        plan = VERSIONS[call.served(target)[0]](call.problem, target)
        runs: dict[str, Callable[..., Any]] = {
            "op": functools.partial(function_of(call), *qkv, **options),
            "launch": Program(plan, dict(zip("qkv", qkv))).launch,
        }
        for run in runs.values():
            run()
        for repetition in range(1, REPETITIONS + 1):
            for what in dice.sample(list(runs), len(runs)):
                program: Any = SimpleNamespace(launch=lambda copy, run=runs[what]: run())
                times_us = {"device_warm": measure(program, "device_warm"), "host_loop": host_loop(runs[what])}
                for timer, samples_us in times_us.items():
                    own = {"what": what, "timer": timer, "repetition": repetition, "status": "ok"}
                    send.send(("row", {**call.columns(target), **own, **summarise(samples_us)}))


def first_calls(send: Connection) -> None:
    """Body of a measuring process: rows of calls in fresh processes, of which the second finds the kernels on disk."""
    for problem in FIRST_CALLS:
        program = [sys.executable, "-m", "analysis.measure.first_call", json.dumps(problem_columns(problem))]
        with tempfile.TemporaryDirectory() as folder:
            here = {**os.environ, "FUSED_PE_CACHE": folder}
            for timers in (("first_call", "second_call"), ("first_call_cached",)):
                done = subprocess.run(program, cwd=ROOT, env=here, stdout=subprocess.PIPE, check=True)
                for timer, us in zip(timers, json.loads(done.stdout)):
                    own = {"what": "op", "timer": timer, "repetition": 1, "status": "ok"}
                    columns = Call(problem).columns(device_target())
                    send.send(("row", {**columns, **own, **summarise([us])}))


# ---------------------------------------------------------------- under stress


def at_once(run: Run, sets: Sequence[QKV], right: Sequence[torch.Tensor], contexts: Sequence[Any]) -> int:
    """How many calls, each set in a context of its own at the same time, differ from the same call alone."""
    wrong = [torch.zeros((), device=out.device) for out in right]
    torch.cuda.synchronize()
    for _ in range(STREAM_CALLS // (len(sets) * TOGETHER)):
        for context, qkv, out, differing in zip(contexts, sets, right, wrong):
            with context:
                made = [run(qkv) for _ in range(TOGETHER)]
                differing += sum((each != out).any() for each in made)
    torch.cuda.synchronize()
    return sum(map(int, wrong))


def in_two_slices(run: Run, sets: Sequence[QKV]) -> int:
    """How many calls in two slices of the card at a time differ from the same call alone there. Raises: Unsupported."""
    with sliced(STRESSED_SMS[0]) as one, sliced(STRESSED_SMS[1]) as other:
        streams, right = [torch.cuda.stream(each) for each in (one, other)], []
        for stream, qkv in zip(streams, sets, strict=True):
            with stream:
                right.append(run(qkv))
        return at_once(run, sets, right, streams)


def graph_and_eager(run: Run, sets: Sequence[QKV], right: Sequence[torch.Tensor]) -> int:
    """How many replays of a graph whose inputs change, and eager calls between them, differ from a call alone."""
    given = [x.clone() for x in sets[0]]
    wrong, graph = torch.zeros((), device="cuda"), torch.cuda.CUDAGraph()
    run(given)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = run(given)
    for replay in range(REPLAYS):
        place = replay % 2
        for old, new in zip(given, sets[place], strict=True):
            old.copy_(new)
        graph.replay()
        wrong += (run(sets[1 - place]) != right[1 - place]).any()
        wrong += (out != right[place]).any()
    return int(wrong)


def stress(send: Connection) -> None:
    """Body of a measuring process: a row for each stress of each call."""
    names = {torch.cuda.get_device_name(card) for card in range(torch.cuda.device_count())}
    two_cards = torch.cuda.device_count() > 1 and len(names) == 1  # others may split keys into other parts
    for call in STRESSED:
        sets = [tensors(dataclasses.replace(call, seed=seed), "cuda")[0] for seed in (1, 2)]
        made = functools.partial(function_of(call), **tensors(call, "cuda")[1], fallback=False)

        def run(qkv: QKV, made: Callable[..., torch.Tensor] = made) -> torch.Tensor:
            return made(*qkv)

        right = [run(qkv) for qkv in sets]
        streams = [torch.cuda.stream(torch.cuda.Stream()) for _ in sets]
        works = {
            "two_streams": (STREAM_CALLS, functools.partial(at_once, run, sets, right, streams)),
            "graph_and_eager": (REPLAYS, functools.partial(graph_and_eager, run, sets, right)),
            "two_slices": (STREAM_CALLS, functools.partial(in_two_slices, run, sets)),
        }
        if two_cards:  # while the other one is current
            cards = [sets[0], [x.to("cuda:1") for x in sets[1]]], [right[0], right[1].to("cuda:1")]
            others = [torch.cuda.device(1), torch.cuda.device(0)]
            works["two_devices"] = STREAM_CALLS, functools.partial(at_once, run, *cards, others)
        for what, (count, work) in works.items():
            began = time.monotonic()
            try:
                wrong = work()
                found = {"status": "wrong", "reason": f"{wrong} results differ"} if wrong else {"status": "ok"}
            except Unsupported as refusal:
                found = {"status": "unavailable", "reason": str(refusal)}
            own = {"what": what, "n": count, "seconds": round(time.monotonic() - began, 3), **found}
            send.send(("row", {**call.columns(device_target()), **own}))


# ---------------------------------------------------------------- the command


BODIES = {"op_time": time_op, "op_stress": stress, "op_first": first_calls}  # studies of one process
SEEDS = {"op_problems": 40, "op_decode": 43, "op_prompts": 43, "op_slices": 44}  # of studies of random calls


def calls_of(study: str, target: str, sms: Sequence[int] = SLICES) -> list[Call]:
    """The calls of a study: those drawn at random, or those whose kernels its process will want; `sms` of slices."""
    seed, long = SEEDS.get(study, 0), CALLS // 2
    if study == "op_problems":
        return [*drawn(seed, CALLS - long, target, 110), *drawn(seed, long, target, 110, op_calls.long_call)]
    if study == "op_slices":
        return drawn(seed, CALLS, target, 110, functools.partial(op_calls.sliced_call, sms=sms))
    if study in SEEDS:
        draw = op_calls.decode_call if study == "op_decode" else op_calls.prompt_call
        return drawn(seed, CALLS, target, 90, draw)
    return {"op_time": [*map(Call, TIMED)], "op_stress": [*STRESSED]}.get(study, [])


def _compile(call: Call, target: str) -> None:
    with contextlib.suppress(CompileError):  # the call says so
        for kernel in call.served(target)[1]:
            assembled(compile_ptx(kernel, target), target)


def check_problems(run: StudyRun, workers: Sequence[Worker], target: str, calls: Sequence[Call]) -> None:
    """Make the calls of which a run has no row, a share of them in each process. Raises: MeasureError, DataError."""
    done = {row["call"] for row in run.rows("op_problems")}
    todo = [(index, call) for index, call in enumerate(calls) if index not in done]
    made = [worker.do(check_calls, todo[place :: len(workers)]) for place, worker in enumerate(workers)]
    found = filter(None, itertools.chain.from_iterable(itertools.zip_longest(*made)))
    for kind, content in tqdm(found, total=len(todo), desc="check", unit="call"):
        if kind == "lost":
            (index, _), error = content
            status = "hang" if isinstance(error, Hang) else "error"
            content = index, {"status": status, "reason": said(error), "seconds": 0.0}
        index, row = content
        call = calls[index]
        own = {
            "seed": SEEDS[run.study.name], "call": index, "function": FUNCTIONS[call.problem.family], "base": call.base,
            "scale": call.softmax_scale, "inputs": call.inputs, "called": call.called,
            "largest_position": (call.reach if "positions" in call.mode else call.places) - 1, "lengths": call.lengths,
            "sms": call.sms or None,
        }  # fmt: skip
        run.append("op_problems", [{**call.columns(target), **own, **row}])


def measure_op(writer: Writer, studies: Sequence[str], new_run: bool, sms: Sequence[int] = SLICES) -> bool:
    """Bring studies to their ends; whether every row is as it should be. `sms` are those of slices.

    Raises: MeasureError, DataError.
    """
    bad, target = [], writer.gpu["target"]
    most = max(1, min(MOST_PROCESSES, CORES // 2, writer.gpu["memory_bytes"] // ROOM))
    with contextlib.ExitStack() as stack:
        compile_each = stack.enter_context(compilers(target))
        workers = [stack.enter_context(contextlib.closing(Worker())) for _ in range(most)]
        for name in studies:
            body, study = BODIES.get(name), Study(name, "", ())
            table, wanted = ("op", 1) if body else ("op_problems", CALLS)
            run = StudyRun(study, writer, new_run)
            if run.complete and len(run.rows(table)) < wanted:  # it is of other code, or of fewer calls
                run = StudyRun(study, writer, True)
            if not run.complete:
                calls = calls_of(name, target, sms)
                compile_each(_compile, list({call.served(target)[1]: call for call in calls}.values()))
                if body:
                    run.append(table, [row for _, row in workers[0].ask(body)])
                else:
                    check_problems(run, workers, target, calls)
                run.save(complete=True)
                for worker in workers:
                    worker.close()  # nobody else is on the card when calls are timed
            rows = run.rows(table)
            counts = collections.Counter(row["status"] for row in rows)
            print(f"[op] {name}: {', '.join(f'{n} {status}' for status, n in counts.items())}; {run.folder}")
            bad += [row for row in rows if row["status"] not in ("ok", "unavailable")]
    for row in bad[:40]:
        print(f"[op]   {row['status'].upper()}: call {row.get('call')}: {row['reason']}")
    return not bad


def main(arguments: list[str] | None = None) -> int:
    parser = cards.parser("op", __doc__, "measure again what is complete")
    parser.add_argument("--sms", type=int, nargs="+", metavar="N", help="only random calls in slices of so many SMs")
    chosen = parser.parse_args(arguments)
    with at_card(chosen.gpu) as writer:
        if chosen.sms:
            return 0 if measure_op(writer, ("op_slices",), True, chosen.sms) else 1
        return 0 if measure_op(writer, OP, chosen.new_run) else 1
