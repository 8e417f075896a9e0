"""V8's chapter: its tables and figures, and what its findings compare. What is not measured is said instead."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import product
from typing import Any, NamedTuple

from kernels import VERSIONS, Problem
from kernels.limits import EMULATED_TARGET, capability
from kernels.v8 import CLUSTERS_SINCE, WARPGROUPS_ON

from ... import figures
from ...figures.style import Plot
from ...measure.studies import MAIN
from ...measure.tune import choice
from ...models import profiles, steps, targets
from ...models.advice import decoding, starved
from ...models.targets import (
    BEYOND,
    COUNTED,
    COUNTED_AT,
    COUNTERS,
    MISSED,
    NEEDED,
    REACHED,
    SHAPES,
    UNMEASURED,
    UNTOLD,
    V8,
    Evidence,
    Result,
    beside_one_graph,
    floor,
    known_of,
    label,
    measured_at,
    read,
    results,
    rivals,
    targets_of,
    times_read,
    worst,
)
from ...records.interval import Condition, Ratio
from ...records.known import WORDS
from ...records.text import NOTHING
from ...tables.table import Missing, Table, code, lines, link, mark, ratio, small, status, timed
from ..findings import Speedups, every
from ..notebook import card
from ..origin import Source, measured_on
from .fuse import Gains

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
COMMANDS = {SHAPES: "make tune", COUNTERS: "make counters", **{name: f"make measure STUDY={name}" for name in NEEDED}}


def load(gpu: str, source: str = "recorded") -> Evidence:
    """The evidence of a GPU as recorded, or of the card at hand, measured now. Raises as `notebook.card`; GpuError."""
    gpu = card(gpu, source, ",".join(NEEDED))
    if source == "live":
        from ...measure.tune import tune

        tune()
    return read(gpu)


def needs(*measured: str, warpgroups: bool = False) -> Callable:
    """For a function of the evidence: what has to be measured for it, else `Missing`; whether it is of that core."""

    def of(make: Callable[[Evidence], Any]) -> Callable[[Evidence], Any]:
        @functools.wraps(make)
        def made(evidence: Evidence) -> Any:
            if warpgroups and capability(evidence.target) != WARPGROUPS_ON:
                return Missing(why=OTHER_CORE)
            if lacking := evidence.lacks(*measured):
                return Missing("` and `".join(COMMANDS[each] for each in lacking))
            return make(evidence)

        return made

    return of


# ---------------------------------------------------------------- what findings compare


def speedups(evidence: Evidence, *versions: str, problems: Sequence[Problem] = BEYOND) -> Speedups:
    """How much faster V8 is than the fastest right peer, or of some versions, by the problem's place."""
    found = {}
    for place, problem in enumerate(problems):
        others = rivals(evidence, problem, peers=not versions, versions=bool(versions))
        first = next((each for each in others if not versions or each.version in versions), None)
        if first:
            found[place] = first.ratio
    known = min((known_of(evidence, problem) for problem in problems), key=lambda each: WORDS.index(each.word))
    return Speedups(found) if found or known.ran else Speedups(why=known)


class BesidePyTorch(NamedTuple):
    """How much faster V8 is than the fastest right peer, where PyTorch compiled all as one graph: on problems where few
    queries meet many keys, with one query a head, and on all others."""

    starved: Gains
    one_query: Gains
    elsewhere: Gains

    @property
    def split(self) -> Condition:
        """Whether V8 loses somewhere of the first kind, mostly with one query, and is slower nowhere else."""
        return every(self.starved.some_lost, self.one_query.mostly_lost, self.elsewhere.not_slower)


def beside_pytorch(evidence: Evidence) -> BesidePyTorch:
    fastest = [*enumerate(beside_one_graph(evidence).items())]

    def over(of: Callable[[Problem], bool]) -> Gains:
        return Gains({place: rival.ratio for place, (problem, rival) in fastest if of(problem)})

    return BesidePyTorch(over(starved), over(decoding), over(lambda problem: not starved(problem)))


def gains(evidence: Evidence, step: steps.Step) -> Speedups:
    """How much faster V8 is with a step, as far as one search can say: without an interval."""
    return Speedups(dict(enumerate(Ratio(gain, gain, gain) for gain in step.compare(evidence.shapes).values())))


def main_time(evidence: Evidence) -> str:
    """Microseconds of V8 at the main shape, or why there is no time."""
    measured = measured_at(evidence, MAIN)
    taken = measured.time(V8, MAIN) if measured else None
    return f"{taken.us:.1f} µs" if taken else known_of(evidence, MAIN).word


def fastest_peer(evidence: Evidence) -> tuple[str, str]:
    """What the fastest right peer at the main shape is, and what it takes, in words."""
    found = rivals(evidence, MAIN, peers=True)
    return (VERSIONS[found[0].version].title, f"{found[0].taken.us:.0f} µs") if found else ("none", UNMEASURED)


class Fill(NamedTuple):
    """How the blocks of the main shape fill a card."""

    tiles: int
    queries: int
    cluster: int
    width: int
    blocks: int
    sms: int

    @property
    def most(self) -> bool:
        """Whether a cluster's blocks take more than half of the SMs, and no more than there are."""
        return self.cluster > 1 and self.sms / 2 < self.blocks <= self.sms


def fill(evidence: Evidence) -> Fill:
    launch = VERSIONS[V8](MAIN, evidence.target).launches[-1]
    queries, width = launch.shape.queries, launch.shape.width if launch.cluster > 1 else MAIN.hdim
    tiles, blocks = -(-MAIN.seq_q // queries), math.prod(launch.grid)
    return Fill(tiles, queries, launch.cluster, width, blocks, evidence.gpu["sms"])


class Parts(NamedTuple):
    """Shares of the kernel's time at the main shape that are left with copies and exchanges alone, and unrotated."""

    copies: float = math.nan
    unrotated: float = math.nan

    @property
    def mostly_copies(self) -> bool | None:
        """Whether data and exchanges are most of the time, and rotation is little of it; None where not measured."""
        return None if math.isnan(self.copies) else 0.5 < self.copies < 1 and 0.9 < self.unrotated < 1


def parts(evidence: Evidence) -> Parts:
    at = {name: steps.time_of(evidence.shapes, MAIN, name) for name in ("copies_alone", "no_embedding")}
    whole = steps.base(evidence.shapes, MAIN)
    return Parts(*(us / whole for us in at.values() if us)) if whole and all(at.values()) else Parts()


class Counted(NamedTuple):
    """What the hardware counted of V8 at the main shape: two shares of 1, and how often bytes of Q, K, V are read."""

    busiest: float = math.nan
    longest_wait: float = math.nan
    times_read: float = math.nan

    @property
    def no_bound(self) -> bool | None:
        """Whether no unit is busy and no cause of waiting takes half of the time; None where not counted."""
        bound = self.busiest >= profiles.BUSY / 100 or self.longest_wait >= 0.5
        return None if math.isnan(self.busiest) else not bound


def counted(evidence: Evidence) -> Counted:
    frame = evidence.profiled
    rows = frame[(frame["problem"] == MAIN) & (frame["version"] == V8)].to_dict("records")
    if not rows:
        return Counted()
    idle = [share for cause, share in profiles.waits(rows[-1]).items() if cause != profiles.ISSUES]
    busiest = max(rows[-1][column] for column in profiles.UNITS.values()) / 100
    return Counted(busiest, max(idle), times_read(rows[-1]))


class Score(NamedTuple):
    """How many targets V8 reaches at every problem of theirs, of how many."""

    reached: int
    targets: int

    @property
    def most(self) -> bool:
        return 2 * self.reached > self.targets


def score(evidence: Evidence) -> Score:
    found, own = results(evidence), targets_of(evidence)
    reached = [all(each.verdict == REACHED for each in found if each.target == target) for target in own]
    return Score(sum(reached), len(own))


# ---------------------------------------------------------------- tables


@needs("beyond")
def target_table(evidence: Evidence) -> Table:
    """Every target, missed ones first: the problem that is furthest from it, and at how many it is reached."""
    rows = []
    found = results(evidence)
    for target in targets_of(evidence):
        own = [each for each in found if each.target == target]
        last = worst(own)
        verdicts = Counter(_verdict(evidence, each) for each in own)
        about = escape(target.about).replace("`rope_v7`", "<code>rope_v7</code>")
        at = (f" at {count} of {len(own)}" if len(own) > 1 else "" for count in verdicts.values())
        row = {"about": lines(about, small(f"{target.rule} {target.value:.3g}{target.unit}")), "worst": NOTHING}
        row["verdict"] = lines(*(mark(word, STYLE.get(word, word)) + where for word, where in zip(verdicts, at)))
        if last and last.found:
            value = ratio(last.found).replace("×", target.unit, 1)
            row["worst"] = lines(value, small(label(last.problem)), small(code(last.rival)) if last.rival else "")
        rows.append((min(list(STYLE).index(word) if word in STYLE else 0 for word in verdicts), row))
    return Table.from_frame(
        [row for _, row in sorted(rows, key=lambda pair: pair[0])],
        {"about": ("target", str), "worst": ("at worst", str), "verdict": ("verdict", str)},
        caption=f"Below a number: its 95 % interval {evidence.covers}. A target is reached, or missed, where the whole "
        "interval says so; else it cannot be told. Peers and versions whose result is wrong do not count. Times are "
        "device_warm.",
    )


def _verdict(evidence: Evidence, result: Result) -> str:
    """The verdict, or where nothing was measured what keeps V8 from running, if that is why."""
    if result.verdict != UNMEASURED:
        return result.verdict
    found = known_of(evidence, result.problem)
    return UNMEASURED if found.ran else found.word


def floor_table(evidence: Evidence, problem: Problem = MAIN) -> Table:
    """What a call at the main shape cannot do without, and what it takes."""
    least, measured = floor(problem, evidence.gpu), measured_at(evidence, problem)
    rows = [
        ("an empty launch in a graph", f"{least.launch:.2f}"),
        (f"Q, K, V and the output, once each, at the rate of {least.memory}", f"{least.bytes:.2f}"),
        ("both products, fp32 units", f"{least.fp32:.2f}"),
        ("both products, three TF32 products each", f"{least.tensor:.2f}"),
        ("<b>floor, fp32 units</b>", f"<b>{least.fp32_us:.2f}</b>"),
        ("<b>floor, tensor cores</b>", f"<b>{least.us:.2f}</b>"),
        (f"{link(V8)}, measured", timed(measured, V8, problem) if measured else status(known_of(evidence, problem))),
    ]
    caption = f"{label(problem)} on the {evidence.card}, from its measured ceilings. A floor is the launch and the "
    return Table(("what", "µs"), rows, ("µs",), caption + "larger of bytes and operations, before rounding.")


@needs(SHAPES, warpgroups=True)
def step_table(evidence: Evidence) -> Table:
    """Every step that today's code can take back: what was expected, and how much faster the kernel is with it."""
    rows = []
    for step in steps.STEPS:
        found = step.compare(evidence.shapes)
        told = lines(*(f"{gain:.3f}× {small(label(problem))}" for problem, gain in found.items())) or NOTHING
        outcome = steps.held(found.values())
        rows.append((lines(step.idea, small(step.expected)), told, mark(outcome, STYLE[outcome])))
    return Table(
        ("step, and why it was expected to be faster", "speedup with it", "outcome"),
        rows,
        caption=f"Speedup by the step, on the {evidence.card}: of the best tiling with it over the best without it, or "
        "of the kernel over itself with the step undone. device_warm, the middle of three repetitions; within 3 % "
        "there is no difference.",
    )


@needs(SHAPES)
def shape_table(evidence: Evidence) -> Table:
    """The shape that the rule chooses at each problem of the search, and how far the best one tried is from it."""
    frame = steps.searched(evidence.shapes)
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
        f"Time of the fastest right tiling over that of the chosen one, on the {evidence.card}: 1 where the rule chose "
        "the fastest. A search of one run: differences of a few per cent are noise.",
    )


@needs("embeddings")
def embedding_table(evidence: Evidence) -> Table | Missing:
    """What attention takes with an embedding over attention without any, and how exact a stored table is."""
    frame = targets.embeddings(evidence)
    if frame.empty:
        return untimed(evidence)
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
        f"Time over that of attention without an embedding on the same core, {evidence.card}, device_warm; all dims "
        "are embedded.",
    )


def _over(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.2f}"


@needs(COUNTERS)
def counter_table(evidence: Evidence) -> Table:
    """What the hardware counted of V8 and its relatives: how often each byte is read, what is busy, what waits."""
    frame = evidence.profiled
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
        f"The attention launch on the {evidence.card}, by Nsight Compute. Read: bytes that SMs got from L2, and from "
        "each other in a cluster, over those of Q, K and V. Per cent of peak: issue (schedulers), L2, L1 (the path to "
        "it and to shared memory). Waits: of the time of a warp.",
    )


def _most(waits: Mapping[str, float]) -> str:
    """The cause that warps wait for most."""
    cause = max((each for each in waits if each != profiles.ISSUES), key=lambda each: waits[each])
    return lines(escape(cause), small(f"{100 * waits[cause]:.0f} %"))


# ---------------------------------------------------------------- figures


def tuned(evidence: Evidence) -> Source:
    """Where the times of shapes and cuts are from."""
    return measured_on(evidence.card, evidence.shapes[["commit", "measured_at"]].to_dict("records"))


def idea(evidence: Evidence) -> Plot:
    """The cluster that the card gets for the main shape; where its kernel has none, that of the emulated target."""
    target = evidence.target if capability(evidence.target) >= CLUSTERS_SINCE else EMULATED_TARGET
    return figures.v8_idea(*choice(MAIN, target), MAIN, target)


def tile(evidence: Evidence) -> Plot:
    """What one block does when, with the times of its parts where those were measured."""
    frame = steps.cuts(evidence.shapes)
    return figures.v8_tile(frame[frame["problem"] == label(MAIN)], evidence.card, tuned(evidence))


@needs(SHAPES, warpgroups=True)
def cuts(evidence: Evidence) -> Plot | Missing:
    frame = steps.cuts(evidence.shapes)
    if frame.empty:
        return Missing(why="Parts of the kernel were left out in a past audit of another card alone")
    return figures.v8_cuts(frame, evidence.card, tuned(evidence))


@needs("beyond")
def family(evidence: Evidence) -> Plot | Missing:
    """The family at every problem where V8 was timed."""
    frame = targets.family(evidence)
    used = [measured.run for problem in BEYOND if (measured := measured_at(evidence, problem))]
    source = measured_on(evidence.card, used)
    return figures.v8_family(frame, evidence.card, source) if len(frame) else untimed(evidence)


def untimed(evidence: Evidence) -> Missing:
    """Why V8 has no time."""
    found = known_of(evidence, MAIN)
    if found.ran or found.word == UNMEASURED:
        return Missing(COMMANDS["beyond"])
    return Missing(why=f"`{V8}` is {found.word}" + f": {found.reason}" * bool(found.reason))
