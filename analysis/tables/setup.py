"""The tables of the chapter that sets the problem up: the documents' shapes, and what a wait of the host costs."""

from __future__ import annotations

from kernels import VERSIONS, Problem

from ..evidence import Evidence
from ..evidence.origin import computed, measured, published_on
from ..findings.setup import megabytes
from ..measure.studies import AUTHORS_SMS, LOG_SHAPES, SOURCE_TIMER, partial_rope
from ..record import published
from ..record.text import NOTHING, number
from .table import Table

SEPARATE, HYBRID = "rope_separate", "rope_v7"
SHAPES = [partial_rope(*shape, hdim) for hdim, shape in {128: LOG_SHAPES[512], **LOG_SHAPES}.items()]


def shapes(e: Evidence) -> Table:
    """The documents' shapes and what follows from them by arithmetic."""
    sms = int(e.gpu["sms"])
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
        f"blocks per SM, {e.card.removeprefix('NVIDIA ')} ({sms})",
    )
    caption = (
        "One call. MB: Q, K, V and the output in float32, each moved once. MFLOP: both products. Blocks: one per "
        "query and head, as most kernels of the log run; in brackets the SMs of each card."
    )
    return Table(header, rows, header[1:], caption).of(computed("from the shapes and the SMs of each card"))


def saved(e: Evidence) -> Table:
    """What V7 saves a call at each head dim, published and measured by both clocks, and what one wait costs here."""
    rows = []
    for problem in SHAPES:
        stated = [published.published(name, problem) for name in (SEPARATE, HYBRID)]
        said = 1000 * (stated[0].value - stated[1].value) if stated[0] and stated[1] else None
        rows.append(
            (
                str(problem.hdim),
                NOTHING if said is None else number(said, digits=1),
                *(_less(e, problem, timer) for timer in (SOURCE_TIMER, "device_warm")),
                _wait(e, problem),
            )
        )
    header = ("head dim", f"published, {published.card('rope')}", "authors' clock", "GPU alone", "one wait")
    caption = (
        "Microseconds that V7 saves per call over separate kernels; below zero it takes longer. All but the published "
        f"column: {e.card}. Each saving is averaged over the processes of a run, so it may differ a little from "
        "the difference of two printed times. One wait: the difference between the two clocks for separate kernels, "
        "divided by their waits."
    )
    return Table(header, rows, header[1:], caption).of(measured(e, "log") + published_on("rope"))


def _wait(e: Evidence, problem: Problem) -> str:
    """What one wait of the host, with the launches after it, adds to a call of separate kernels."""
    timers = (SOURCE_TIMER, "device_warm")
    timed, device = (e.time(SEPARATE, "log", timer, problem=problem)[problem] for timer in timers)
    plan = VERSIONS[SEPARATE](problem)
    waits = len(plan.steps) - len(plan.launches)
    return number((timed.value - device.value) / waits, digits=1)


def _less(e: Evidence, problem: Problem, timer: str) -> str:
    """How much less V7 takes, in the processes that timed both."""
    separate, hybrid = (e.time(name, "log", timer, problem=problem)[problem] for name in (SEPARATE, HYBRID))
    return number((separate - hybrid).value, digits=1)
