"""Decode calls and prompts in half precision of the op on the GPU at hand: at random; and under stress."""

import dataclasses
import functools
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch

from kernels import Problem
from kernels.flash.decode.choose import MOST_DIMS, MOST_QUERIES
from kernels.runtime.gpu import device_target

from . import op
from .on_gpu import Row

DTYPES = ("float32", "float16", "bfloat16")
HDIMS = tuple(hdim for hdim in op.HDIMS if hdim % 8 == 0 and hdim <= MOST_DIMS)
PROMPT_HDIMS = (64, 64, 80, 96, 128, 128, 192, 256)
SEED, MOST_KERNELS = 43, 90
STREAM_CALLS, REPLAYS, TOGETHER, KILLS = 10_000, 2_000, 10, 2
SHAPES = ((1, 32, 8, 1, 4096, 128), (2, 8, 8, 4, 900, 64))  # batch, heads, KV heads, queries, keys, head dim
STRESSED = tuple(
    op.Call(Problem("rope", *shape, rotary_dim=shape[-1], dtype=dtype, causal=shape[3] > 1))
    for shape in SHAPES
    for dtype in DTYPES[:2]
)
Run = Callable[[list[torch.Tensor]], torch.Tensor]


def _varied(dice: random.Random, call: op.Call, lengths_share: float, dtypes: tuple[str, ...]) -> op.Call:
    """The call in one of the dtypes, with lengths or not, and of what this dtype and its kernels take."""
    problem, lengths = call.problem, dice.random() < lengths_share
    offset = max(problem.seq_k - problem.seq_q, 0) if lengths else problem.q_offset
    dtype = dice.choice(dtypes)
    inputs = call.inputs if dtype == "float32" else dice.choice(op.INPUTS[:2])  # large ones overflow
    called = call.called if dice.random() < 0.5 else "eager"  # a process keeps no more tables than so many evict
    interleaved = call.interleaved or problem.rotary_dim % 8 > 0
    problem = dataclasses.replace(problem, dtype=dtype, q_offset=offset)
    return dataclasses.replace(
        call, problem=problem, lengths=lengths, interleaved=interleaved, inputs=inputs, called=called
    )


def decode_call(dice: random.Random) -> op.Call | None:
    """A call of up to 8 queries, or None where it would take long."""
    call = op.random_call(dice, HDIMS, MOST_QUERIES)
    return call and _varied(dice, call, 0.5, DTYPES)


def prompt_call(dice: random.Random) -> op.Call | None:
    """A prompt in half precision, or None where it would take long."""
    call = op.random_call(dice, PROMPT_HDIMS)
    return _varied(dice, call, 0.2, DTYPES[1:]) if call and call.problem.seq_q > MOST_QUERIES else None


def two_streams(run: Run, sets: list[list[torch.Tensor]], right: list[torch.Tensor]) -> torch.Tensor:
    """How many of the calls on two streams at once differ from the same call alone, bit by bit."""
    streams, wrong = [torch.cuda.Stream() for _ in sets], [torch.zeros((), device="cuda") for _ in sets]
    torch.cuda.synchronize()
    for _ in range(STREAM_CALLS // (2 * TOGETHER)):
        for place, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                made = [run(sets[place]) for _ in range(TOGETHER)]
                wrong[place] += sum((out != right[place]).any() for out in made)
    torch.cuda.synchronize()
    return wrong[0] + wrong[1]


def graph_and_eager(run: Run, sets: list[list[torch.Tensor]], right: list[torch.Tensor]) -> torch.Tensor:
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
    return wrong


def two_devices(run: Run, sets: list[list[torch.Tensor]], right: list[torch.Tensor]) -> torch.Tensor:
    """How many calls on two cards at once, whichever is current, differ from the same call alone on the first."""
    cards = [(sets[0], right[0]), ([x.to("cuda:1") for x in sets[1]], right[1].to("cuda:1"))]
    wrong = [torch.zeros((), device=out.device) for _, out in cards]
    for current in range(2):
        with torch.cuda.device(current):
            for _ in range(STREAM_CALLS // 4):
                for card, (qkv, out) in enumerate(cards):
                    wrong[card] += (run(qkv) != out).any()
    return wrong[0].cpu() + wrong[1].cpu()


def runs(call: op.Call) -> Run:
    """The op on q, k and v, as a call asks."""
    options = op.tensors(call, "cuda")[1]
    return lambda qkv: op.function_of(call)(*qkv, **options, fallback=False)


def decode_for_ever(place: int) -> None:
    """Make a call of `STRESSED` until the process is killed; a line says that launches are under way."""
    run, qkv = runs(STRESSED[place]), op.tensors(STRESSED[place], "cuda")[0]
    run(qkv)
    torch.cuda.synchronize()
    print("begun", flush=True)
    while True:
        run(qkv)


def killed(place: int, run: Run, sets: list[list[torch.Tensor]], right: list[torch.Tensor]) -> torch.Tensor:
    """How many calls beside another process, and after it was killed amid its launches, differ from a call alone."""
    wrong = torch.zeros((), device="cuda")
    command = f"from {__name__} import decode_for_ever; decode_for_ever({place})"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE, env=here) as other:
            assert other.stdout and other.stdout.readline()
            for step in range(2 * TOGETHER):
                if step == TOGETHER:
                    other.kill()
                wrong += (run(sets[step % 2]) != right[step % 2]).any()
    return wrong


def _stresses(place: int) -> Iterator[Row]:
    call = STRESSED[place]
    run = runs(call)
    sets = [op.tensors(dataclasses.replace(call, seed=seed), "cuda")[0] for seed in (1, 2)]
    right = [run(qkv) for qkv in sets]
    works: list[tuple[str, Any, int]] = [
        ("two_streams", two_streams, STREAM_CALLS),
        ("graph_and_eager", graph_and_eager, REPLAYS),
        ("killed", functools.partial(killed, place), KILLS),
    ]
    cards = {torch.cuda.get_device_name(card) for card in range(torch.cuda.device_count())}
    if torch.cuda.device_count() > 1 and len(cards) == 1:  # others may split keys into other parts
        works.append(("two_devices", two_devices, STREAM_CALLS))
    for what, work, count in works:
        began = time.monotonic()
        wrong = int(work(run, sets, right))
        seconds = round(time.monotonic() - began, 3)
        found = {"status": "wrong", "reason": f"{wrong} results differ"} if wrong else {"status": "ok"}
        yield {**call.columns(device_target()), "what": what, "n": count, "seconds": seconds, **found}


def stress(send: Connection) -> None:
    """Body of a measuring process: a row for each stress of each call."""
    for place in range(len(STRESSED)):
        for row in _stresses(place):
            send.send(("row", row))


def works(count: int) -> list[op.Work]:
    """Random calls of few queries, and of more, and stress."""
    problems = op.Work(
        "op_decode", lambda target: op.drawn(SEED, count, target, MOST_KERNELS, decode_call), count, SEED
    )
    prompts = op.Work(
        "op_prompts", lambda target: op.drawn(SEED, count, target, MOST_KERNELS, prompt_call), count, SEED
    )
    return [problems, prompts, op.Work("op_stress", lambda target: list(STRESSED), body=stress)]
