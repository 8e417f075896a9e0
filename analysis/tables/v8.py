"""V8's tables. What is not measured is said instead."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from html import escape
from itertools import product
from typing import Any

from kernels import Problem
from kernels.limits import capability
from kernels.v8 import WARPGROUPS_ON

from ..evidence import Evidence
from ..evidence.known import RAN
from ..evidence.origin import Source, counters_of, measured, measured_on
from ..measure.studies import MAIN
from ..models import profiles, steps, targets
from ..models.targets import (
    COUNTED,
    COUNTED_AT,
    MEASURED_IN,
    MISSED,
    REACHED,
    UNMEASURED,
    UNTOLD,
    Result,
    floor,
    known,
    label,
    results,
    times_read,
    v8_time,
)
from ..record.text import NOTHING
from .table import Missing, Table, code, lines, link, mark, ratio, small, time_cell

SHAPES, COUNTERS = "shapes", "counters"
STYLE = {  # of targets, and of steps
    MISSED: "wrong",
    UNTOLD: "stale",
    UNMEASURED: "unsupported",
    REACHED: "ok",
    "held": "ok",
    "refuted": "wrong",
    "held in part": "stale",
    "no difference": "unsupported",
}
OTHER_CORE = "These are parts and shapes of another core than the one that this card gets"
COMMANDS = {SHAPES: "make tune", COUNTERS: "make counters"}


def needs(name: str, warpgroups: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For a function of the evidence: the study, shapes or counters without which it is `Missing`; whether it is of the
    core of warpgroups."""

    def measured_on(e: Evidence) -> bool:
        frames = {SHAPES: lambda: len(steps.shapes(e)), COUNTERS: lambda: len(profiled(e))}
        return bool(frames[name]() if name in frames else e.study(name))

    def of(make: Callable[[Evidence], Any]) -> Callable[[Evidence], Any]:
        @functools.wraps(make)
        def made(e: Evidence) -> Any:
            if warpgroups and capability(e.target) != WARPGROUPS_ON:
                return Missing(why=OTHER_CORE)
            return make(e) if measured_on(e) else Missing(COMMANDS.get(name, f"make measure STUDY={name}"))

        return made

    return of


def tuned(e: Evidence) -> Source:
    """Where the times of shapes and cuts are from."""
    return measured_on(e.card, steps.shapes(e)[["commit", "measured_at"]].to_dict("records"))


def profiled(e: Evidence) -> Any:
    """The profiled attention launches of V8 and its relatives."""
    found = profiles.attention(profiles.launches(e.record.folder))
    return found[found["version"].isin(COUNTED)]


# ---------------------------------------------------------------- tables


@needs("beyond")
def target_table(e: Evidence) -> Table:
    """Every target, missed ones first: the problem that is furthest from it, and at how many it is reached."""
    rows = []
    for target, own in results(e).items():
        verdicts = Counter(_verdict(e, each) for each in own)
        about = escape(target.about).replace("`rope_v7`", "<code>rope_v7</code>")
        at = (f" at {count} of {len(own)}" if len(own) > 1 else "" for count in verdicts.values())
        row = {"about": lines(about, small(f"{target.rule} {target.value:.3g}{target.unit}")), "worst": NOTHING}
        row["verdict"] = lines(*(mark(word, STYLE.get(word, word)) + where for word, where in zip(verdicts, at)))
        if last := min((each for each in own if each.found), key=lambda each: each.margin, default=None):
            value = ratio(last.found).replace("×", target.unit, 1)
            row["worst"] = lines(value, small(label(last.problem)), small(code(last.rival)) if last.rival else "")
        rows.append((min(list(STYLE).index(word) if word in STYLE else 0 for word in verdicts), row))
    return Table.from_frame(
        [row for _, row in sorted(rows, key=lambda pair: pair[0])],
        {"about": ("target", str), "worst": ("at worst", str), "verdict": ("verdict", str)},
        caption=f"Below a number: its 95 % interval {e.covers()}. A target is reached, or missed, where the whole "
        "interval says so; else it cannot be told. Peers and versions whose result is wrong do not count. Times are "
        "device_warm.",
    ).of(measured(e, *MEASURED_IN))


def _verdict(e: Evidence, result: Result) -> str:
    """The verdict, or where nothing was measured what keeps V8 from running, if that is why."""
    if result.verdict != UNMEASURED:
        return result.verdict
    found = known(e, result.problem)
    return UNMEASURED if found.ran else found.word


def floor_table(e: Evidence, problem: Problem = MAIN) -> Table:
    """What a call at the main shape cannot do without, and what it takes."""
    least = floor(problem, e.gpu)
    rows = [
        ("an empty launch in a graph", f"{least.launch:.2f}"),
        (f"Q, K, V and the output, once each, at the rate of {least.memory}", f"{least.bytes:.2f}"),
        ("both products, fp32 units", f"{least.fp32:.2f}"),
        ("both products, three TF32 products each", f"{least.tensor:.2f}"),
        ("<b>floor, fp32 units</b>", f"<b>{least.fp32_us:.2f}</b>"),
        ("<b>floor, tensor cores</b>", f"<b>{least.us:.2f}</b>"),
        (f"{link(targets.V8)}, measured", time_cell(v8_time(e, problem))),
    ]
    caption = f"{label(problem)} on the {e.card}, from its measured ceilings. A floor is the launch and the "
    table = Table(("what", "µs"), rows, ("µs",), caption + "larger of bytes and operations, before rounding.")
    return table.of(measured(e, *MEASURED_IN))


@needs(SHAPES, warpgroups=True)
def step_table(e: Evidence) -> Table:
    """Every step that today's code can take back: what was expected, and how much faster the kernel is with it."""
    rows, shapes = [], steps.shapes(e)
    for step in steps.STEPS:
        found = step.compare(shapes)
        told = lines(*(f"{gain:.3f}× {small(label(problem))}" for problem, gain in found.items())) or NOTHING
        outcome = steps.held(found.values())
        rows.append((lines(step.idea, small(step.expected)), told, mark(outcome, STYLE[outcome])))
    return Table(
        ("step, and why it was expected to be faster", "speedup with it", "outcome"),
        rows,
        caption=f"Speedup by the step, on the {e.card}: of the best tiling with it over the best without it, or "
        "of the kernel over itself with the step undone. device_warm, the middle of three repetitions; within 3 % "
        "there is no difference.",
    ).of(tuned(e))


@needs(SHAPES)
def shape_table(e: Evidence) -> Table:
    """The shape that the rule chooses at each problem of the search, and how far the best one tried is from it."""
    frame = steps.searched(steps.shapes(e))
    return Table.from_frame(
        frame.assign(shape=[f"{row.cluster} × {row.width}, {row.queries}" for row in frame.itertuples()]),
        {
            "problem": ("problem", label),
            "shape": ("blocks × dims, queries", str),
            "median_us": ("µs", "{:.1f}"),
            "tried": ("tilings tried", "{:.0f}"),
            "best_over_chosen": ("best over chosen", "{:.2f}"),
        },
        slice(2, None),
        f"Time of the fastest right tiling over that of the chosen one, on the {e.card}: 1 where the rule chose "
        "the fastest. A search of one run: differences of a few per cent are noise.",
    ).of(tuned(e))


@needs("embeddings")
def embedding_table(e: Evidence) -> Table | Missing:
    """What attention takes with an embedding over attention without any, and how exact a stored table is."""
    frame = targets.embeddings(e)
    if frame.empty:
        return untimed(e)
    over = frame.pivot(index="embedding", columns="problem", values="over_none")
    error = frame.groupby("embedding")["table_error"].max()
    rows = [
        (name, f"{error[name]:.0e}" if error[name] else NOTHING, *(_over(value) for value in over.loc[name]))
        for name in dict.fromkeys(frame["embedding"])
    ]
    return Table(
        ("embedding", "table off by", *over.columns),
        rows,
        ("table off by", *over.columns),
        f"Time over that of attention without an embedding on the same core, {e.card}, device_warm; all dims "
        "are embedded.",
    ).of(measured(e, "embeddings"))


def _over(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.2f}"


@needs(COUNTERS)
def counter_table(e: Evidence) -> Table:
    """What the hardware counted of V8 and its relatives: how often each byte is read, what is busy, what waits."""
    frame = profiled(e)
    launches = [
        launch
        for problem, version in product(COUNTED_AT, COUNTED)
        for launch in frame[(frame["problem"] == problem) & (frame["version"] == version)].to_dict("records")
    ]
    return Table.from_frame(
        [
            {
                **launch,
                "version": lines(link(launch["version"]), mark("stale") if launch["stale"] else ""),
                "times_read": times_read(launch),
                "waits": profiles.waits(launch),
            }
            for launch in launches
        ],
        {
            "problem": ("problem", label),
            "version": ("version", str),
            "times_read": ("read", "{:.1f}×"),
            "issue_percent": ("issue %", "{:.0f}"),
            "l2_percent": ("L2 %", "{:.0f}"),
            "l1_percent": ("L1 %", "{:.0f}"),
            "waits": ("waits most for", _most),
        },
        slice(2, -1),
        f"The attention launch on the {e.card}, by Nsight Compute. Read: bytes that SMs got from L2, and from "
        "each other in a cluster, over those of Q, K and V. Per cent of peak: issue (schedulers), L2, L1 (the path to "
        "it and to shared memory). Waits: of the time of a warp.",
    ).of(counters_of(e, frame["run"]))


def _most(waits: Mapping[str, float]) -> str:
    """The cause that warps wait for most."""
    cause = max((each for each in waits if each != profiles.ISSUES), key=lambda each: waits[each])
    return lines(escape(cause), small(f"{100 * waits[cause]:.0f} %"))


def untimed(e: Evidence) -> Missing:
    """Why V8 has no time."""
    found = known(e, MAIN)
    if found.word in (*RAN, UNMEASURED):
        return Missing("make measure STUDY=beyond")
    return Missing(why=f"`{targets.V8}` is {found.word}" + f": {found.reason}" * bool(found.reason))
