"""Check and time the op of kernels/ops.py on the GPU at hand: `python -m analysis op`.

    python -m analysis op                      2,000 random calls of each kind against float64, times, and stress
    python -m analysis op --problems 200

Random calls are eager, or a captured graph that is replayed after other calls have evicted what the op caches. Called
again, the command makes the calls of which its run has no row.
"""

import argparse
import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import pad

from kernels import VERSIONS, Problem, Unsupported, ops
from kernels.checking.reference import ERROR_FACTOR
from kernels.constants import FREQUENCY_BASE
from kernels.flash.chunks.plan import LEAST_RATIO
from kernels.flash.decode.choose import MOST_QUERIES
from kernels.flash.prompts.float32_plan import LEAST_ROWS
from kernels.runtime import classes
from kernels.runtime.arguments import Asked
from kernels.runtime.arguments import Tensors as Beside
from kernels.runtime.compile import CompileError, assembled, compile_ptx
from kernels.runtime.gpu import Program, device_target
from kernels.runtime.torch_path import attend
from kernels.version import Kernel

from ..errors import DataError
from ..record import cards
from .machine import warm_up
from .on_gpu import Row, row_of
from .runs import StudyRun, Writer, at_card
from .studies import MAIN, OP, Study, partial_rope
from .timing import Timing, device_warm, summarise
from .workers import CORES, Hang, Worker, compilers, tqdm

FUNCTIONS = {"rope": "rope_attention", "attention": "attention", "alibi": "alibi_attention"}  # by family
MODES = ("rates", "rates_positions", "tables", "tables_positions")  # where the angles of RoPE come from
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {  # a view of the values; the memory around it is NaN
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),  # in memory [batch, seq, heads, hdim]
    "cache": lambda x: pad(x, (0, 0, 0, 40), value=math.nan)[:, :, : x.shape[2]],  # the first rows of a longer one
    "unaligned": lambda x: pad(x, (1, 3), value=math.nan)[..., 1:-3],  # rows start 4 bytes after a multiple of 16
    "expanded": lambda x: x[:, :1].expand(x.shape),  # the values of one head for all
    "negated": lambda x: torch._neg_view(-x),
}
INPUTS = ("uniform", "sharp", "large")
HDIMS = (4, 8, 12, 16, 24, 32, 36, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 512, 576, 1024, 2048, 4096)
MODEL_HDIMS = (64, 96, 128)
MOST_POSITIONS = 2**20
# What bounds a problem, so that float64 is quick and fits a small card: elements of scores, of Q and of K, of tables.
MOST_SCORES, MOST_ELEMENTS, MOST_TERMS, MOST_TABLE = 2**23, 2**24, 2**32, 2**24
CALLS, SEED, MOST_KERNELS = 2000, 40, 110
PATIENCE = 90.0  # seconds: a kernel that is not compiled yet takes 10
MOST_PROCESSES, ROOM = 8, 8 << 30  # that check calls at a time; bytes of the card's memory for each
EVICTING = 300  # calls that take the places of cached tables, of which the op keeps 256
ORDERS = 8  # evaluations of fp32 math: one of them may be right by luck
HALF_ULP = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}  # relative
FLT_MIN = 2.0**-126

REPETITIONS, HOST_CALLS, HOST_SAMPLES = 7, 400, 5  # fewer calls than the launches that queue up
PREFILL = partial_rope(1, 8, 2048, 128)  # of the study `beyond`
SMALL = Problem("rope", 1, 1, seq_q=16, hdim=64, rotary_dim=64)  # its launch is nearly all of its time
TIMED = (SMALL, MAIN, PREFILL, dataclasses.replace(PREFILL, causal=True))
VARIANTS: tuple[dict[str, Any], ...] = (
    {}, {"interleaved": False}, {"layout": "transposed"}, {"layout": "cache"}, {"mode": "rates_positions"},
    {"mode": "tables"},
)  # fmt: skip


# ---------------------------------------------------------------- a call and its tensors


@dataclass(frozen=True)
class Call:
    """One call: its function by the problem's family, the values and layout of its tensors, and how it is called.

    All positions are below `reach`; `seed` is that of the values. A captured graph is replayed after other calls have
    evicted what the op caches.
    """

    problem: Problem
    interleaved: bool = True
    base: float = FREQUENCY_BASE
    mode: str = "rates"
    layout: str = "contiguous"
    scale: float | None = None
    inputs: str = "uniform"
    reach: int = 2**12
    seed: int = 0
    called: str = "eager"
    lengths: bool = False  # of keys, by sequence

    @property
    def places(self) -> int:
        """The number of positions in the sequence that queries or keys have."""
        return max(self.problem.seq_k, self.problem.q_offset + self.problem.seq_q)

    @property
    def softmax_scale(self) -> float:
        return self.problem.softmax_scale if self.scale is None else self.scale

    def served(self, target: str) -> tuple[str, tuple[Kernel, ...]]:
        """The version whose kernels the op takes, and these kernels; V8 and none where PyTorch computes it."""
        unmapped = self.layout == "expanded" and self.problem.kv_heads > 1 and self.problem.dtype != "float32"
        lengths = self.lengths or unmapped  # either takes the kernel on mma.sync
        given = self.interleaved, "tables" in self.mode, "positions" in self.mode, lengths
        try:
            return classes.Call(self.problem, *given).served(target)
        except Unsupported:
            return classes.V8[self.problem.family], ()

    def columns(self, target: str) -> Row:
        own = {name: getattr(self, name) for name in ("interleaved", "mode", "layout")}
        return row_of((self.served(target)[0], self.problem), **own)


Draw = Callable[[random.Random], Call | None]
Given = tuple[list[torch.Tensor], dict[str, Any]]  # q, k and v in their layout, and the keyword arguments


def tensors(call: Call, device: Any) -> Given:
    """The arguments of a call on a device, the same on every device of its kind.

    Values are uniform in -1 .. 1; or normal, so that scores are far apart (sharp); or have magnitudes from 1e-3 to 1e3
    in q and k (large).
    """
    dice, problem = torch.Generator(device).manual_seed(call.seed), call.problem
    dtype = getattr(torch, problem.dtype)
    qkv: list[torch.Tensor] = []
    for size in (problem.q_shape, problem.kv_shape, problem.kv_shape):
        x = torch.rand(size, generator=dice, device=device) * 2 - 1
        if call.inputs == "sharp":
            x = x.erfinv().clamp(-5, 5) * (2 if len(qkv) < 2 else 1) * math.sqrt(2)
        elif call.inputs == "large" and len(qkv) < 2:
            x = x.sign() * 10 ** (6 * x.abs() - 3)
        x = x.to(dtype)
        qkv.append(x if call.layout == "cache" and not qkv else LAYOUTS[call.layout](x))
    options: dict[str, Any] = {"causal": problem.causal, "q_offset": problem.q_offset, "scale": call.scale}
    if call.lengths:
        lengths = torch.randint(problem.seq_k + 1, (problem.batch,), generator=dice, device=device)
        options |= {"q_offset": None, "lengths": lengths.int()}
    if problem.family == "rope":
        options |= {"rotary_dim": problem.rotary_dim, "interleaved": call.interleaved, "base": call.base}
        if "tables" in call.mode:
            rows = call.reach if "positions" in call.mode else call.places
            pair = torch.arange(problem.rotary_dim // 2, dtype=torch.float64, device=device)
            rates = call.base ** (-2 * pair / max(problem.rotary_dim, 1))
            angle = torch.arange(rows, dtype=torch.float64, device=device)[:, None] * rates
            options |= {"cos": angle.cos().float(), "sin": angle.sin().float()}
        if "positions" in call.mode:
            shape = (problem.batch, call.places)[call.seed % 2 :]
            options["positions"] = torch.randint(call.reach, shape, generator=dice, device=device)
    return qkv, options


# ---------------------------------------------------------------- random calls


def _length(dice: random.Random, most: int) -> int:
    """1 to `most`, as often in every doubling."""
    return min(int(2 ** dice.uniform(0, math.log2(most) + 1)), most)


def random_call(dice: random.Random, hdims: Sequence[int] = HDIMS, most_queries: int = 2048) -> Call | None:
    """A call of the documented range, or None where it would take long."""
    family = dice.choices(tuple(FUNCTIONS), (6, 1, 1))[0]
    hdim, batch = dice.choice(hdims), dice.choice((1, 1, 1, 2, 3, 8))
    kv_heads, groups = dice.choice((1, 1, 2, 3, 4, 8)), dice.choice((1, 1, 1, 2, 4, 8))
    seq_q = 1 if dice.random() < 0.25 else _length(dice, most_queries)
    seq_k = seq_q if dice.random() < 0.25 else _length(dice, 2**15)
    behind = max(seq_k - seq_q, 0)
    q_offset = dice.choice((behind, behind, 0, dice.randrange(4096), dice.randrange(MOST_POSITIONS - seq_q)))
    turns = (hdim, hdim, hdim // 4 * 2, min(128, hdim), 2 * dice.randrange(hdim // 2 + 1))
    problem = Problem(
        family, batch, kv_heads * groups, kv_heads, seq_q, seq_k, hdim, dice.choice(turns) if family == "rope" else 0,
        causal=dice.random() < 0.4, q_offset=q_offset,
    )  # fmt: skip
    call = Call(
        problem,
        interleaved=family != "rope" or dice.random() < 0.5,
        base=dice.choice((10_000.0, 500_000.0, 10.0 ** dice.uniform(0, 7))) if family == "rope" else FREQUENCY_BASE,
        mode=dice.choices(MODES, (3, 1, 1, 1))[0] if family == "rope" else MODES[0],
        layout=dice.choices(tuple(LAYOUTS), (6, 6, 6, 2, 2, 2))[0],
        scale=None if dice.random() < 0.75 else problem.softmax_scale * 2.0 ** dice.uniform(-2, 1),
        inputs=dice.choice(INPUTS),
        reach=dice.choice((2**12, 2**16, MOST_POSITIONS)),
        seed=dice.randrange(2**31),
        called=dice.choices(("eager", "graph"), (3, 1))[0],
    )
    scores = batch * kv_heads * groups * seq_q * seq_k
    elements = max(math.prod(problem.q_shape), math.prod(problem.kv_shape))
    rows = (call.reach if "positions" in call.mode else call.places) if "tables" in call.mode else 0
    fits = scores <= MOST_SCORES and elements <= MOST_ELEMENTS and scores * hdim <= MOST_TERMS
    return call if fits and rows * problem.rotary_dim <= 2 * MOST_TABLE else None


def long_call(dice: random.Random) -> Call | None:
    """One of those of which the op takes most as prompts or chunks, or None: many queries, or few of many keys."""
    call = random_call(dice, MODEL_HDIMS)
    sizes = call and (call.problem.seq_q, call.problem.seq_k)
    return call if sizes and (min(sizes) >= LEAST_ROWS or MOST_QUERIES < sizes[0] <= sizes[1] // LEAST_RATIO) else None


def drawn(seed: int, count: int, target: str, most_kernels: int = MOST_KERNELS, draw: Draw = random_call) -> list[Call]:
    """Calls, the same for the same arguments, that meet at most so many kernels: each takes seconds to compile."""
    dice = random.Random(seed)
    met: set[Any] = set()
    calls: list[Call] = []
    while len(calls) < count:
        if (call := draw(dice)) and (not (new := {*call.served(target)[1]} - met) or len(met) < most_kernels):
            met |= new
            calls.append(call)
    return calls


def _compile(call: Call, target: str) -> None:
    with contextlib.suppress(CompileError):  # the call says so
        for kernel in call.served(target)[1]:
            assembled(compile_ptx(kernel, target), target)


# ---------------------------------------------------------------- what the result should be


def expected(
    call: Call, given: Given, dtype: torch.dtype, order: int = 0, between: torch.dtype | None = None
) -> torch.Tensor:
    """The result in a dtype, by PyTorch's operations; by another `order` the scale is shared otherwise by q and k.

    Rotated q and k are rounded to the dtype `between`, if one is given.
    """
    problem, (qkv, options) = call.problem, given
    rotation = problem.rotary_dim, call.base, call.interleaved
    asked = Asked(problem.family, *rotation, problem.causal, problem.q_offset, scale=1.0)
    part = order / ORDERS if order else 1.0
    q, k, v = (x.resolve_neg().to(dtype) for x in qkv)
    beside = Beside(*(options.get(name) for name in ("cos", "sin", "positions", "slopes", "lengths")))
    return attend(q * call.softmax_scale**part, k * call.softmax_scale ** (1 - part), v, beside, asked, between)


def judge(call: Call, given: Given, out: torch.Tensor) -> Row:
    """`reason`, the rule that `out` breaks as the result of a call, and its errors.

    shape: q's shape and dtype. not_finite: where fp32 math is finite, so is the result. error: at most ERROR_FACTOR
    times the largest error of ORDERS evaluations of fp32 math, or of rounding the largest output; in half precision,
    where weights may be rounded too, the largest value, and with RoPE that of fp32 math on q and k that are rounded
    again behind their rotation, as tensor cores take them.
    """
    q, _, v = given[0]
    if out.shape != q.shape or out.dtype != q.dtype:
        return {"reason": "shape"}
    exact = expected(call, given, torch.float64)
    singles = [expected(call, given, torch.float32, order) for order in range(ORDERS)]
    if q.dtype != torch.float32 and call.problem.rotary_dim:
        singles += [expected(call, given, torch.float32, order, between=q.dtype) for order in range(ORDERS)]
    if bool((singles[0].isfinite() & ~out.isfinite()).any()):
        return {"reason": "not_finite"}
    fp32, worst = (max(float((x - exact).abs().max()) for x in some) for some in (singles, [out]))
    least = max(fp32, HALF_ULP[q.dtype] * float((exact if q.dtype == torch.float32 else v).abs().max()), FLT_MIN)
    found = {
        "max_abs_err": worst,
        "fp32_abs_err": fp32,
        "allowed_abs_err": ERROR_FACTOR * least,
        "ratio": worst / least,
    }
    return {"reason": None if worst <= ERROR_FACTOR * least else "error", **found}


# ---------------------------------------------------------------- on the GPU


def function_of(call: Call) -> Callable[..., torch.Tensor]:
    return getattr(ops, FUNCTIONS[call.problem.family])


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
    with torch.cuda.graph(graph):
        out = run()
    evict(call, "cuda")
    graph.replay()
    torch.cuda.synchronize()
    return out


def check(call: Call, device: Any) -> Row:
    """Make a call: the columns of its status, and of its errors if it has a result.

    Raises: RuntimeError, where a launch failed; the device is then in no state to go on.
    """
    began, (qkv, options) = time.monotonic(), tensors(call, device)
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
    return {**row, "seconds": round(time.monotonic() - began, 3)}


def check_calls(calls: Sequence[tuple[int, Call]], send: Connection) -> None:
    """Body of the measuring process: a row for each call."""
    for place, (index, call) in enumerate(calls):
        send.send(("begun", place))
        send.send(("row", (index, check(call, "cuda"))))


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


def time_op(send: Connection) -> None:
    """Body of a measuring process: the op in every variant, beside the version's own launch, on the same values.

    A row for each, timer and repetition; each repetition in an order of its own.
    """
    warm_up()
    dice, target = random.Random(0), device_target()
    for problem in TIMED:
        calls = [Call(problem, **variant) for variant in VARIANTS]
        given = [tensors(call, "cuda") for call in calls]
        plan = VERSIONS[calls[0].served(target)[0]](problem, target)
        runs: list[tuple[Call, str, Callable[..., Any]]] = [
            (call, "op", functools.partial(function_of(call), *qkv, **options))
            for call, (qkv, options) in zip(calls, given)
        ]
        runs.append((calls[0], "launch", Program(plan, dict(zip("qkv", given[0][0]))).launch))
        for _, _, run in runs:
            run()
        for repetition in range(1, REPETITIONS + 1):
            for call, what, run in dice.sample(runs, len(runs)):
                program: Any = SimpleNamespace(launch=lambda copy, run=run: run())
                for timer, timing in (("device_warm", device_warm(program)), ("host_loop", host_loop(run))):
                    own = {"what": what, "timer": timer, "repetition": repetition, "status": "ok"}
                    send.send(("row", {**call.columns(target), **own, **vars(timing)}))


# ---------------------------------------------------------------- the command


@dataclass(frozen=True)
class Work:
    """A study of the op: its calls, drawn from a seed and each checked, or what measures them in a process."""

    name: str
    calls: Callable[[str], list[Call]]  # of a target
    wanted: int = 1  # rows of a complete run
    seed: int = SEED
    body: Callable[[Connection], None] | None = None


def check_problems(run: StudyRun, workers: Sequence[Worker], target: str, calls: Sequence[Call], seed: int) -> None:
    """Make the calls of which a run has no row, a share of them in each process. Raises: MeasureError, DataError."""
    done = {row["call"] for row in run.rows("op_problems")}
    todo = [(index, call) for index, call in enumerate(calls) if index not in done]
    made = [worker.do(check_calls, todo[place :: len(workers)]) for place, worker in enumerate(workers)]
    found = filter(None, itertools.chain.from_iterable(itertools.zip_longest(*made)))
    for kind, content in tqdm(found, total=len(todo), desc="check", unit="call"):
        if kind == "lost":
            (index, _), error = content
            status = "hang" if isinstance(error, Hang) else "error"
            content = index, {"status": status, "reason": str(error).splitlines()[0], "seconds": 0.0}
        index, row = content
        call = calls[index]
        own = {
            "seed": seed, "call": index, "function": FUNCTIONS[call.problem.family], "base": call.base,
            "scale": call.softmax_scale, "inputs": call.inputs, "called": call.called,
            "largest_position": (call.reach if "positions" in call.mode else call.places) - 1, "lengths": call.lengths,
        }  # fmt: skip
        run.append("op_problems", [{**call.columns(target), **own, **row}])


def measure_op(writer: Writer, works: Sequence[Work], new_run: bool) -> bool:
    """Bring studies to their ends; whether every row is as it should be. Raises: MeasureError, DataError."""
    bad, target = [], writer.gpu["target"]
    most = max(1, min(MOST_PROCESSES, CORES // 2, writer.gpu["memory_bytes"] // ROOM))
    with contextlib.ExitStack() as stack:
        compile_each = stack.enter_context(compilers(target))
        workers = [stack.enter_context(contextlib.closing(Worker(PATIENCE))) for _ in range(most)]
        for work in works:
            table, study = "op" if work.body else "op_problems", Study(work.name, "", ())
            run = StudyRun(study, writer, new_run)
            if run.complete and len(run.rows(table)) < work.wanted:  # it is of other code, or of fewer calls
                run = StudyRun(study, writer, True)
            if not run.complete:
                calls = work.calls(target)
                compile_each(_compile, list({call.served(target)[1]: call for call in calls}.values()))
                if work.body:
                    run.append(table, [row for _, row in workers[0].ask(work.body)])
                else:
                    check_problems(run, workers, target, calls, work.seed)
                run.save(complete=True)
                for worker in workers:
                    worker.close()  # nobody else is on the card when calls are timed
            rows = run.rows(table)
            counts = collections.Counter(row["status"] for row in rows)
            print(f"[op] {work.name}: {', '.join(f'{n} {status}' for status, n in counts.items())}; {run.folder}")
            bad += [row for row in rows if row["status"] != "ok"]
    for row in bad[:40]:
        print(f"[op]   {row['status'].upper()}: call {row.get('call')}: {row['reason']}")
    return not bad


def works(count: int) -> list[Work]:
    timed = [Call(problem, **variant) for problem in TIMED for variant in VARIANTS]
    long = count // 2

    def problems(target: str) -> list[Call]:
        return [*drawn(SEED, count - long, target), *drawn(SEED, long, target, draw=long_call)]

    return [Work("op_problems", problems, count), Work("op_time", lambda target: timed, body=time_op)]


def main(arguments: list[str] | None = None) -> int:
    from . import op_decode  # which takes its calls from here

    parser = argparse.ArgumentParser(prog="python -m analysis op", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=CALLS, help=f"random calls of each kind (default: {CALLS})")
    parser.add_argument("--study", default="all", help=f"some of, separated by commas: {', '.join(OP)}")
    parser.add_argument("--new-run", action="store_true", help="measure again what is complete")
    cards.add_options(parser)
    chosen = parser.parse_args(arguments)
    known = {work.name: work for work in (*works(chosen.problems), *op_decode.works(chosen.problems))}
    names = OP if chosen.study == "all" else chosen.study.split(",")
    if unknown := set(names) - set(known):
        raise DataError(f"no study of the op is called {min(unknown)!r}; known: {', '.join(OP)}")
    with at_card(chosen.gpu) as writer:
        return 0 if measure_op(writer, [known[name] for name in names], chosen.new_run) else 1
