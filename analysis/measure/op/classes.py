"""How many kernels the calls of a model meet while it decodes and prefills; planned, which needs no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels import Problem
from kernels.version import Kernel

from ...records.current import today
from ..machine import now
from ..runs import Run
from .calls import Call
from .check import Row
from .planned import VERSIONS_OF, kernel_of


@dataclass(frozen=True)
class Model:
    """The attention of a model, as its configuration has it."""

    name: str
    heads: int
    kv_heads: int
    hdim: int
    rotary_dim: int
    interleaved: bool = False


MODELS = (
    Model("Llama 2 7B", 32, 32, 128, 128),
    Model("Llama 3 8B", 32, 8, 128, 128),
    Model("Llama 3 70B", 64, 8, 128, 128),
    Model("Qwen2.5 0.5B", 14, 2, 64, 64),
    Model("Gemma 2 9B", 16, 8, 256, 256),
    Model("GPT-J 6B", 16, 16, 256, 64, interleaved=True),
    Model("Phi-2", 32, 32, 80, 32),
)
DECODE, PREFILL, BATCHES = 32_768, 8192, 64
BATCHED = {"decode": 4096, "prefill": 512}  # keys


def lengths(most: int) -> Iterator[int]:
    """All up to 512, multiples of 8 up to 2048, and the first and last of each 64: where tiles begin and end."""
    for length in range(1, most + 1):
        if length <= 512 or length % 64 in (0, 1) or (length % 8 == 0 and length <= 2048):
            yield length


def loops(model: Model) -> Iterator[tuple[str, list[Problem]]]:
    """The problems of each loop that a model runs."""

    def problem(batch: int, seq_q: int, seq_k: int) -> Problem:
        return Problem(
            "rope", batch, model.heads, model.kv_heads, seq_q, seq_k, model.hdim, model.rotary_dim, causal=True
        )

    batches = range(1, BATCHES + 1)
    yield "decode", [problem(1, 1, seq) for seq in lengths(DECODE)]
    yield "prefill", [problem(1, seq, seq) for seq in lengths(PREFILL)]
    yield "decode_batches", [problem(batch, 1, BATCHED["decode"]) for batch in batches]
    yield "prefill_batches", [problem(batch, BATCHED["prefill"], BATCHED["prefill"]) for batch in batches]


def counted(model: Model, target: str) -> Iterator[Row]:
    """A row for each loop, and one for all of them together. Raises: LookupError where no core takes a problem."""
    everything: set[Kernel] = set()
    planned = 0
    for what, problems in (*loops(model), ("all", [])):
        met = set()
        for problem in problems:
            kernel = kernel_of(Call(problem, interleaved=model.interleaved), target)
            if kernel is None:
                raise LookupError(f"no core takes {problem} on {target}")
            met.add(kernel)
        everything |= met
        planned += len(problems)
        yield {
            "what": what, "model": model.name, "version": VERSIONS_OF["rope"], "heads": model.heads,
            "kv_heads": model.kv_heads, "hdim": model.hdim, "rotary_dim": model.rotary_dim,
            "interleaved": model.interleaved, "n": len(problems) or planned, "kernels": len(met or everything),
            "status": "ok", "source_hash": today(VERSIONS_OF["rope"]), "measured_at": now(),
        }  # fmt: skip


def count_classes(run: Run, target: str) -> None:
    for model in MODELS:
        for row in counted(model, target):
            run.append("op", {"study": run.study.name, **row})
