"""The tables of the chapter that sets the problem up: the documents' shapes, and what a wait of the host costs."""

from __future__ import annotations

import math
from typing import NamedTuple

from kernels import VERSIONS, Problem

from ...evidence import Evidence
from ...figures import savings
from ...measure.studies import AUTHORS_SMS, LOG_SHAPES, MAIN, SOURCE_TIMER, partial_rope
from ...records import published
from ...records.known import NOT_MEASURED
from ...records.measured import Measured
from ...records.text import NOTHING, number
from ...tables.table import Table
from ..origin import computed, measured_in, published_on

SEPARATE, HYBRID = "rope_separate", "rope_v7"
SHAPES = [partial_rope(*shape, hdim) for hdim, shape in {128: LOG_SHAPES[512], **LOG_SHAPES}.items()]
FLOAT_BYTES = 4
SEVERAL = 4  # times the floor, from which on neither bytes nor products take the time


def megabytes(problem: Problem) -> float:
    """Q, K, V and the output, each moved once."""
    return 2 * FLOAT_BYTES * (math.prod(problem.q_shape) + math.prod(problem.kv_shape)) / 1e6


class SerialBound(NamedTuple):
    """What a call takes that overlaps nothing, and whether separate kernels take several times as long."""

    holds: bool | None
    numbers: dict[str, str]


def serial_bound(evidence: Measured) -> SerialBound:
    """Bytes from DRAM, then the fp32 products, at the main shape; and what separate kernels take."""
    ceilings, taken = evidence.gpu["ceilings"], evidence.time(SEPARATE, MAIN)
    moving = 1e3 * megabytes(MAIN) / ceilings["read_gb_s"]
    computing = MAIN.flops / ceilings["fp32_tflops"] / 1e6
    return SerialBound(
        taken.us > SEVERAL * (moving + computing) if taken else None,
        {
            "bytes_us": number(moving, "µs", 1),
            "flops_us": number(computing, "µs", 1),
            "separate": f"{taken.us / (moving + computing):.0f} times" if taken else NOT_MEASURED,
        },
    )


def shapes(evidence: Measured) -> Table:
    """The documents' shapes and what follows from them by arithmetic."""
    sms = int(evidence.gpu["sms"])
    rows = []
    for problem in SHAPES:
        blocks = problem.heads * problem.seq_q
        rows.append(
            (
                str(problem.hdim),
                f"{problem.heads} × {problem.seq_q}",
                number(megabytes(problem), digits=2),
                number(problem.flops / 1e6, digits=0),
                number(problem.flops / megabytes(problem) / 1e6, digits=0),
                str(blocks),
                *(number(blocks / each, digits=1) for each in (AUTHORS_SMS, sms)),
            )
        )
    header = (
        "head dim",
        "heads × tokens",
        "MB",
        "MFLOP",
        "FLOP per byte",
        "blocks",
        f"blocks per SM, {published.card('rope')} ({AUTHORS_SMS})",
        f"blocks per SM, {evidence.card.removeprefix('NVIDIA ')} ({sms})",
    )
    caption = (
        "One call. MB: Q, K, V and the output in float32, each moved once. MFLOP: both products. Blocks: one per "
        "query and head, as most kernels of the log run; in brackets the SMs of each card."
    )
    return Table(header, rows, header[1:], caption).of(computed("from the shapes and the SMs of each card"))


def saved(evidence: Measured) -> Table:
    """What V7 saves a call at each head dim, published and measured by both clocks, and what one wait costs here."""
    rows = []
    for problem in SHAPES:
        stated = [published.published(name, problem) for name in (SEPARATE, HYBRID)]
        said = 1000 * (stated[0].value - stated[1].value) if stated[0] and stated[1] else None
        rows.append(
            (
                str(problem.hdim),
                NOTHING if said is None else number(said, digits=1),
                *(_less(evidence, problem, timer) for timer in (SOURCE_TIMER, "device_warm")),
                _wait(evidence, problem),
            )
        )
    header = ("head dim", f"published, {published.card('rope')}", "authors' clock", "GPU alone", "one wait")
    caption = (
        "Microseconds that V7 saves per call over separate kernels; below zero it takes longer. All but the published "
        f"column: {evidence.card}. Each saving is averaged over the processes of a run, so it may differ a little from "
        "the difference of two printed times. One wait: the difference between the two clocks for separate kernels, "
        "divided by their waits."
    )
    return Table(header, rows, header[1:], caption).of(measured_in(evidence) + published_on("rope"))


def _wait(evidence: Measured, problem: Problem) -> str:
    """What one wait of the host, with the launches after it, adds to a call of separate kernels."""
    timed, device = (evidence.time(SEPARATE, problem, timer) for timer in (SOURCE_TIMER, "device_warm"))
    plan = VERSIONS[SEPARATE](problem)
    waits = len(plan.steps) - len(plan.launches)
    return number((timed.us - device.us) / waits, digits=1) if timed and device else NOTHING


def _less(evidence: Measured, problem: Problem, timer: str) -> str:
    """How much less V7 takes, as the questions of the chapter on causes ask it."""
    less = savings.saved(Evidence.load(evidence.slug), problem, timer)
    return number(less.value, digits=1) if less else NOTHING
