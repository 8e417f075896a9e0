"""V8 against its targets: the tables, figures and numbers of its chapter; what is not measured is said instead."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from itertools import product
from typing import Any, NamedTuple

from IPython.display import Markdown, display

from kernels import VERSIONS, Problem
from kernels.limits import EMULATED_TARGET, capability
from kernels.v8 import CLUSTERS_SINCE, WARPGROUPS_ON

from ...measure import candidates
from ...measure.studies import MAIN
from ...models import profiles, steps, targets
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
    V7,
    V8,
    Evidence,
    Result,
    floor,
    known_of,
    label,
    measured_at,
    read,
    relative_error,
    results,
    rivals,
    targets_of,
    times_read,
    worst,
    worst_verdict,
)
from ...records.current import outdated
from ...records.files import DataError, is_reference
from ...records.interval import TIE
from ...records.known import Known
from ...records.text import factor
from .. import figures, style
from ..notebook import card, show
from ..table import NOTHING, Missing, Table, code, lines, link, mark, name, ratio, small, status, timed

STYLE = {  # of targets, and of steps
    REACHED: "ok",
    MISSED: "wrong",
    UNTOLD: "stale",
    UNMEASURED: "unsupported",
    "held": "ok",
    "refuted": "wrong",
    "held in part": "stale",
    "no difference": "unsupported",
}


def load(gpu: str, source: str = "recorded") -> Evidence:
    """The evidence of a GPU as recorded, or of the card at hand, measured now. Raises as `notebook.card`; GpuError."""
    gpu = card(gpu, source, ",".join(NEEDED))
    if source == "live":
        from ...measure.tune import tune

        tune()
    return read(gpu)


# ---------------------------------------------------------------- tables


def target_table(evidence: Evidence) -> Table:
    """Every target: where it is reached, and the problem that is furthest from it."""
    rows = []
    found = results(evidence)
    for target in targets_of(evidence):
        own = [each for each in found if each.target == target]
        last = worst(own)
        verdicts = Counter(_verdict(evidence, each) for each in own)
        about = escape(target.about).replace("`rope_v7`", "<code>rope_v7</code>")
        row = {"about": about, "asked": f"{target.rule} {target.value:.3g}{target.unit}"}
        at = (f" at {count} of {len(own)}" if len(own) > 1 else "" for count in verdicts.values())
        row["verdict"] = lines(*(mark(word, STYLE.get(word, word)) + where for word, where in zip(verdicts, at)))
        if last and last.found:
            row["worst"] = ratio(last.found).replace("×", target.unit, 1)
            least = f"floor {floor(last.problem, evidence.gpu).us:.1f} µs" if last.verdict == MISSED else ""
            against = code(last.rival) if last.rival else ""
            row["where"] = lines(label(last.problem), *(small(text) for text in (against, least) if text))
        rows.append({"worst": None, "where": None, **row})
    return Table.from_frame(
        rows,
        {
            "about": ("target", str),
            "asked": ("asked", str),
            "verdict": ("verdict", str),
            "worst": ("at worst", "{}"),
            "where": ("where", "{}"),
        },
        slice(1, 4, 2),
        "With the 95 % interval over the processes: reached or missed where all of it lies on one side. Peers "
        "and versions whose result is wrong do not count. device_warm.",
    )


def _verdict(evidence: Evidence, result: Result) -> str:
    """The verdict, or where nothing was measured what keeps V8 from running, if that is why."""
    if result.verdict != UNMEASURED:
        return result.verdict
    found = known_of(evidence, result.problem)
    return UNMEASURED if found.ran else found.word


def problem_table(evidence: Evidence) -> Table:
    """Every problem: V8, its floor, the fastest peer, the log's V7, and its error."""
    missed = {each.problem for each in results(evidence) if each.verdict == MISSED}
    rows = []
    for problem in BEYOND:
        measured = measured_at(evidence, problem)
        peer = next(iter(rivals(evidence, problem, peers=True)), None)
        rows.append(
            {
                "problem": lines(label(problem), mark(MISSED, STYLE[MISSED]) if problem in missed else ""),
                "core": measured.core(V8, problem) if measured else "",
                "us": timed(measured, V8, problem) if measured else status(known_of(evidence, problem)),
                "floor": floor(problem, evidence.gpu).us,
                "peer": lines(f"{peer.taken.us:.1f}", small(code(peer.version))) if peer else None,
                "over_peer": peer.ratio if peer else None,
                "over_v7": measured.ratio(V7, V8, problem) if measured else None,
                "error": relative_error(measured.check(V8, problem)) if measured else None,
            }
        )
    return Table.from_frame(
        rows,
        {
            "problem": ("problem", str),
            "core": ("core", str),
            "us": ("V8, µs", str),
            "floor": ("floor, µs", "{:.1f}"),
            "peer": ("fastest peer, µs", "{}"),
            "over_peer": ("peer over V8", ratio),
            "over_v7": ("V7 over V8", ratio),
            "error": ("error", factor),
        },
        slice(2, None),
        f"device_warm on the {evidence.card}. Core: the one that V8 ran on. The fastest peer whose result is "
        "right. Error: the largest over that of fp32 math SDPA, on the worse of two inputs. Missed: some target at "
        "this problem.",
    )


def floor_table(evidence: Evidence, problem: Problem = MAIN) -> Table:
    """What a call at the main shape cannot do without, and what it takes."""
    least = floor(problem, evidence.gpu)
    rows = [
        ("an empty launch in a graph", f"{least.launch:.2f}"),
        ("Q, K, V and the output, once each", f"{least.bytes:.2f}"),
        ("both products, fp32 units", f"{least.fp32:.2f}"),
        ("both products, three TF32 products each", f"{least.tensor:.2f}"),
        ("<b>floor, fp32 units</b>", f"<b>{least.fp32_us:.2f}</b>"),
        ("<b>floor, tensor cores</b>", f"<b>{least.us:.2f}</b>"),
    ]
    measured = measured_at(evidence, problem)
    here = timed(measured, V8, problem) if measured else status(known_of(evidence, problem))
    rows.append((f"{link(V8)}, measured", here))
    if alone := steps.time_of(evidence.shapes, problem, "copies_alone"):
        rows.append(("its copies and exchanges alone, measured", f"{alone:.2f}"))
    return Table(
        ("what", "µs"),
        rows,
        numbers=("µs",),
        caption=f"{label(problem)} on the {evidence.card}, from its measured ceilings. A floor is the launch "
        "and the larger of bytes and operations.",
    )


def step_table(evidence: Evidence) -> Table:
    """Every step that today's code can take back: what was expected, and how much faster it is with it."""
    rows = []
    for step in steps.STEPS:
        gains = step.compare(evidence.shapes)
        found = lines(*(f"{factor(gain)} {small(label(problem))}" for problem, gain in gains.items()))
        rows.append({**vars(step), "gains": found or NOTHING, "outcome": steps.held(gains.values())})
    return Table.from_frame(
        rows,
        {
            "idea": ("step", str),
            "expected": ("expected", str),
            "gains": ("times as fast with it", str),
            "outcome": ("verdict", lambda word: mark(word, STYLE[word])),
        },
        caption="device_warm, the middle one of three repetitions; the best shape with it over the best without it, or "
        "the kernel as it is over one with the step taken back. Within 3 % there is no difference.",
    )


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
                "version": name(launch["version"], launch["stale"]),
                "us": launch["duration_ns"] / 1e3,
                "times_read": times_read(launch),
                "waits": profiles.waits(launch),
            }
            for launch in launches
        ],
        {
            "problem": ("problem", label),
            "version": ("version", str),
            "us": ("µs", "{:.1f}"),
            "times_read": ("read", "{:.1f}×"),
            "warps_percent": ("warps %", "{:.0f}"),
            "issue_percent": ("issue %", "{:.0f}"),
            "l2_percent": ("L2 %", "{:.0f}"),
            "l1_percent": ("L1 %", "{:.0f}"),
            "waits": ("waits most for", _most),
        },
        slice(2, -1),
        "The attention launch, by Nsight Compute, whose µs are longer than those timed without it. Read: bytes "
        "that SMs got from L2, and from each other in a cluster, over those of Q, K and V. Per cent of peak: issue, of "
        "the schedulers, L2, and the path to L1 and shared memory; warps, of all that an SM holds. Waits: of the time "
        "of a warp.",
    )


def _most(waits: Mapping[str, float]) -> str:
    """The two causes that warps wait for most."""
    idle = sorted((cause for cause in waits if cause != profiles.ISSUES), key=lambda cause: -waits[cause])
    return lines(*(f"{escape(cause)} {small(f'{100 * waits[cause]:.0f} %')}" for cause in idle[:2]))


# ---------------------------------------------------------------- what the notebook calls


@dataclass(frozen=True)
class Part:
    """A figure or table of the chapter, what it needs to have been measured, and since when cards can have it."""

    needs: tuple[str, ...]
    make: Callable[[Evidence], Any]
    on: Callable[[tuple[int, int]], bool] = lambda capability: True


def tuned(evidence: Evidence) -> style.Source:
    """Where the times of shapes and cuts are from."""
    return style.measured_on(evidence.card, evidence.shapes[["commit", "measured_at"]].to_dict("records"))


def compared(evidence: Evidence) -> style.Source:
    """Where the times of `targets.family` are from."""
    used = [measured.run for problem in BEYOND if (measured := measured_at(evidence, problem))]
    return style.measured_on(evidence.card, used)


def idea(evidence: Evidence) -> style.Plot:
    """The cluster that the card gets for the main shape; where its kernel has none, that of the emulated target."""
    target = evidence.target if _clusters(capability(evidence.target)) else EMULATED_TARGET
    return figures.v8_idea(*candidates.choice(MAIN, target), MAIN, target)


def _clusters(capability: tuple[int, int]) -> bool:
    return capability >= CLUSTERS_SINCE


def _warpgroups(capability: tuple[int, int]) -> bool:
    return capability == WARPGROUPS_ON


def family(evidence: Evidence) -> style.Plot | Missing:
    """The family at every problem where V8 was timed."""
    frame = targets.family(evidence)
    return figures.v8_family(frame, evidence.card, compared(evidence)) if len(frame) else untimed(evidence)


def embeddings(evidence: Evidence) -> style.Plot | Missing:
    """What embeddings add, where attention without any was timed."""
    frame = targets.embeddings(evidence)
    source = style.measured_in(evidence.studies["embeddings"])
    return figures.v8_embeddings(frame, evidence.card, source) if len(frame) else untimed(evidence)


def untimed(evidence: Evidence) -> Missing:
    """Why V8 has no time."""
    found = known_of(evidence, MAIN)
    if found.ran or found.word == UNMEASURED:
        return Missing(COMMANDS["beyond"])
    return Missing(why=f"`{V8}` is {found.word}" + f": {found.reason}" * bool(found.reason))


PARTS = {
    "idea": Part((), idea),
    "floor": Part((), floor_table),
    "steps": Part((SHAPES,), step_table, _warpgroups),
    "shapes": Part((SHAPES,), lambda e: figures.v8_shapes(steps.regret(e.shapes), e.card, tuned(e)), _clusters),
    "cuts": Part((SHAPES,), lambda e: figures.v8_cuts(steps.cuts(e.shapes), e.card, tuned(e)), _warpgroups),
    "counters": Part((COUNTERS,), counter_table),
    "targets": Part(("beyond",), target_table),
    "problems": Part(("beyond",), problem_table),
    "family": Part(("beyond",), family),
    "embeddings": Part(("embeddings",), embeddings),
}
OTHER_CORE = "These are parts and shapes of another core than the one that this card gets"
COMMANDS = {SHAPES: "make tune", COUNTERS: "make counters", **{name: f"make measure STUDY={name}" for name in NEEDED}}


def part(name: str, evidence: Evidence) -> None:
    """Show a part of the chapter, or say what has to be measured for it. Raises: DataError for an unknown part."""
    if name not in PARTS:
        raise DataError(f"the chapter has no part {name!r}; it has {', '.join(PARTS)}")
    chosen = PARTS[name]
    if not chosen.on(capability(evidence.target)):
        show(Missing(why=OTHER_CORE), evidence)
    elif lacking := evidence.lacks(*chosen.needs):
        show(Missing("` and `".join(COMMANDS[each] for each in lacking)), evidence)
    else:
        show(chosen.make(evidence), evidence)


# ---------------------------------------------------------------- findings


class Found(NamedTuple):
    """What a finding says: whether it holds, why it has no number, and its numbers."""

    holds: bool | None
    numbers: dict[str, Any]
    why: Known | None = None


def found_main(evidence: Evidence) -> Found:
    """V8 at the main shape: its time, its floor, the fastest peer, and how many targets it reaches everywhere."""
    measured, least = measured_at(evidence, MAIN), floor(MAIN, evidence.gpu)
    taken = measured.time(V8, MAIN) if measured else None
    peer = next(iter(rivals(evidence, MAIN, peers=True)), None)
    found, own = results(evidence), targets_of(evidence)
    verdicts = [worst_verdict([each for each in found if each.target == target]) for target in own]
    known = known_of(evidence, MAIN)
    why = Known(UNMEASURED) if known.ran else known
    numbers = {
        "card": evidence.card,
        "main": f"{taken.us:.1f} µs" if taken else why.word,
        "over_floor": f"{taken.us / least.us:.1f}×" if taken else why.word,
        "peer": f"`{peer.version}`" if peer else "none",
        "over_peer": f"{peer.ratio.value:.1f}×" if peer else why.word,
        "reached": verdicts.count(REACHED),
        "targets": len(own),
    }
    return Found(peer.ratio.low > TIE, numbers) if peer and taken else Found(None, numbers, why)


def found_tiles(evidence: Evidence) -> Found:
    """How the blocks of the main shape fill the card."""
    plan = VERSIONS[V8](MAIN, evidence.target)
    launch = plan.launches[-1]
    blocks = math.prod(launch.grid)
    numbers = {
        "card": evidence.card,
        "tiles": -(-MAIN.seq_q // launch.shape.queries),
        "queries": launch.shape.queries,
        "cluster": launch.cluster,
        "width": launch.shape.width if launch.cluster > 1 else MAIN.hdim,
        "blocks": blocks,
        "sms": evidence.gpu["sms"],
    }
    return Found(launch.cluster > 1 and evidence.gpu["sms"] / 2 < blocks <= evidence.gpu["sms"], numbers)


def found_counters(evidence: Evidence) -> Found:
    """What the hardware counted of V8 at the main shape."""
    counted = evidence.profiled
    rows = counted[(counted["problem"] == MAIN) & (counted["version"] == V8)].to_dict("records")
    numbers = {"card": evidence.card, "tiles": found_tiles(evidence).numbers["tiles"]}
    if not rows:
        return Found(None, numbers | dict.fromkeys(("busiest", "longest_wait", "times_read"), UNMEASURED))
    idle = [share for cause, share in profiles.waits(rows[-1]).items() if cause != profiles.ISSUES]
    busiest = max(rows[-1][column] for column in profiles.UNITS.values())
    numbers |= {
        "busiest": f"{busiest:.0f} %",
        "longest_wait": f"{100 * max(idle):.0f} %",
        "times_read": f"{times_read(rows[-1]):.2f}",
    }
    return Found(busiest < profiles.BUSY and max(idle) < 0.5, numbers)


def tell_search(evidence: Evidence) -> None:
    """Say what the search of shapes is worth, where there was one."""
    if evidence.lacks(SHAPES):
        return
    changed = int(outdated(evidence.shapes, V8).sum())
    display(
        Markdown(
            (FITTED if is_reference(evidence.slug, evidence.gpu) else PREDICTED)
            + f" {len(evidence.shapes)} rows were measured."
            + (f" Of them, **{changed} are stale**: the code has changed since." if changed else "")
        )
    )


FITTED = "The rule was fitted to such searches, so the figure says how well it fits and not how well it predicts."
PREDICTED = "The rule was fitted to searches on the reference card, so here the figure says how well it predicts."
