"""How to use the kernel: how fast it is beside PyTorch, and what a call costs."""

import math
from collections import Counter
from dataclasses import replace
from html import escape

import numpy as np

from kernels import VERSIONS

from ..evidence import Evidence
from ..evidence.origin import computed, measured
from ..findings.fuse import FLOAT_DECODE, HALF_DECODE, PROMPT
from ..measure.studies import MAIN
from ..models.rivals import MEASURED_IN, V8, beside_op, label, rivals, served
from ..record.text import NOTHING, factor, number
from .table import Missing, Table, lines, mark, ratio, small

CALLS = (  # in words, the call, a study and a timer
    ("prompt of 2,048 tokens, bfloat16", PROMPT, "half_prompts", "device_warm"),
    ("the same in float32", replace(PROMPT, dtype="float32"), "prompts", "device_warm"),
    ("a step on 16,384 keys, float16", HALF_DECODE, "split_keys", "device_cold"),
    ("the same in float32", FLOAT_DECODE, "split_keys", "device_cold"),
    ("64 tokens, head dim 2048, float32", MAIN, "peers", "device_warm"),
)


def costs(e: Evidence) -> Table:
    """What typical calls take, beside the fastest other, and what memory they need beyond their tensors."""
    rows = []
    for words, problem, study, timer in CALLS:
        version = served(e, problem)
        own = e.time(version, study, timer, problem=problem)[problem]
        over = [rival.over.value for rival in rivals(e, problem, version, (study,), timer)]
        buffers = VERSIONS[version](problem, e.target).buffers
        extra = sum(math.prod(buffer.shape) * np.dtype(buffer.dtype.replace("bfloat", "float")).itemsize
                    for name, buffer in buffers.items() if name not in ("q", "k", "v", "out"))  # fmt: skip
        shown = number(own.value, digits=0 if own.value >= 10 else 1) if own else NOTHING
        rows.append((words, shown, factor(over[0]) if over else NOTHING, number(extra / 1e6, digits=1)))
    header = ("call", "µs", "others take", "extra MB")
    caption = (
        f"The GPU alone, {e.card}; steps read K and V from memory. All but the last are of a LLaMA layer: 32 heads on "
        "8 of K and V, head dim 128. Others: the fastest of PyTorch (compiled or not), Triton and FlashInfer "
        "that gives a right result. Extra: memory beside the tensors of the call, by the plan of the kernel."
    )
    source = measured(e, *{study: None for _, _, study, _ in CALLS}) + computed("memory by the plan")
    return Table(header, rows, header[1:], caption, source=source, title="What calls take")


def beside_pytorch(e: Evidence) -> Table | Missing:
    """The op's kernels and their fastest peer at every problem timed beside one: the smallest speedup first."""
    found = beside_op(e)
    if not found:
        return Missing.study("peers")
    (usual, _), *_ = Counter(rival.version for rival in found.values()).most_common(1)
    rows = [
        (
            label(problem),
            lines(number(rival.ours.value, digits=1), _named(served(e, problem), V8, served(e, problem))),
            lines(number(rival.us.value, digits=1), _named(rival.version, usual, VERSIONS[rival.version].title)),
            lines(ratio(rival.over), mark("slower", "wrong") * (rival.over.side < 0)),
        )
        for problem, rival in sorted(found.items(), key=lambda pair: pair[1].over.value)
    ]
    header = ("problem", "rope_attention, µs", "fastest other, µs", "speedup")
    caption = (
        f"Time of one call on the GPU alone, {e.card}, float32, tensors in the L2 cache if they fit. The smallest "
        f"speedup comes first, with the 95 % interval {e.covers()}. B batch, H heads, S queries and keys, D head dim, "
        "R rotated dims. rope_attention chooses by an estimate for each shape whether to fuse fully, to rotate K "
        "first (rope_hybrid_v8), or Q and K (rope_prompt32). Where nothing is named, it runs rope_v8, full fusion, and "
        f"the fastest other with a right result is: {VERSIONS[usual].title}."
    )
    return Table(header, rows, header[1:], caption, source=measured(e, *MEASURED_IN), title="Beside PyTorch")


def _named(version: str, usual: str, title: str) -> str:
    return "" if version == usual else small(escape(title))
