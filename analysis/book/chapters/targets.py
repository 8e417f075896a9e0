"""V8 against its targets: the tables, figures and numbers of its chapter; what is not measured is said instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from itertools import product
from typing import Any

from IPython.display import Markdown, display

from kernels import Problem

from ...measure import candidates
from ...measure.studies import MAIN, studies
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
    TARGETS,
    UNMEASURED,
    UNTOLD,
    V7,
    V8,
    Evidence,
    floor,
    label,
    measured_at,
    read,
    relative_error,
    results,
    rivals,
    times_read,
    worst,
    worst_verdict,
)
from ...records.current import outdated
from ...records.files import DataError
from ...records.text import factor
from .. import figures, style
from ..notebook import SOURCES, show
from ..table import NOTHING, Table, code, lines, link, mark, microseconds, name, ratio, small

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
    """The evidence of a GPU, as recorded or measured now. Raises: DataError; RuntimeError without a GPU to measure."""
    if source not in SOURCES:
        raise DataError(f"source is {source!r}; allowed: {', '.join(SOURCES)}")
    if source == "live":
        from ...measure.run import measure_studies
        from ...measure.tune import tune

        gpu = measure_studies(studies(",".join(NEEDED)))
        tune()
    return read(gpu)


# ---------------------------------------------------------------- tables


def target_table(evidence: Evidence) -> Table:
    """Every target: where it is reached, and the problem that is furthest from it."""
    rows = []
    found = results(evidence)
    for target in TARGETS:
        own = [each for each in found if each.target == target]
        last = worst(own)
        verdicts = Counter(each.verdict for each in own)
        about = escape(target.about).replace("`rope_v7`", "<code>rope_v7</code>")
        row = {"about": about, "asked": f"{target.rule} {target.value:.3g}{target.unit}"}
        at = (f" at {count} of {len(own)}" if len(own) > 1 else "" for count in verdicts.values())
        row["verdict"] = lines(*(mark(word, STYLE[word]) + where for word, where in zip(verdicts, at)))
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
                "us": measured.time(V8, problem) if measured else None,
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
            "us": ("V8, µs", microseconds),
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
    if measured and (taken := measured.time(V8, problem)):
        rows.append((f"{link(V8)}, measured", microseconds(taken)))
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
    """A figure or table of the chapter, and what it needs to have been measured."""

    needs: tuple[str, ...]
    make: Callable[[Evidence], Any]


def tuned(evidence: Evidence) -> str:
    """Where the times of shapes and cuts are from."""
    return style.measured_on(evidence.card, evidence.shapes[["commit"]].to_dict("records"))


def compared(evidence: Evidence) -> str:
    """Where the times of `targets.family` are from."""
    used = [measured.run for problem in BEYOND if (measured := measured_at(evidence, problem))]
    return style.measured_on(evidence.card, used)


PARTS = {
    "idea": Part((), lambda e: figures.v8_idea(*candidates.choice(MAIN), MAIN)),
    "floor": Part((), floor_table),
    "steps": Part((SHAPES,), step_table),
    "shapes": Part((SHAPES,), lambda e: figures.v8_shapes(steps.regret(e.shapes), e.card, tuned(e))),
    "cuts": Part((SHAPES,), lambda e: figures.v8_cuts(steps.cuts(e.shapes), e.card, tuned(e))),
    "counters": Part((COUNTERS,), counter_table),
    "targets": Part(("beyond",), target_table),
    "problems": Part(("beyond",), problem_table),
    "family": Part(("beyond",), lambda e: figures.v8_family(targets.family(e), e.card, compared(e))),
    "embeddings": Part(
        ("embeddings",),
        lambda e: figures.v8_embeddings(targets.embeddings(e), e.card, style.measured_in(e.studies["embeddings"])),
    ),
}
COMMANDS = {SHAPES: "make tune", COUNTERS: "make counters", **{name: f"make measure STUDY={name}" for name in NEEDED}}


def part(name: str, evidence: Evidence) -> None:
    """Show a part of the chapter, or say what has to be measured for it. Raises: DataError for an unknown part."""
    if name not in PARTS:
        raise DataError(f"the chapter has no part {name!r}; it has {', '.join(PARTS)}")
    lacking = evidence.lacks(*PARTS[name].needs)
    if lacking:
        how = " and ".join(f"`{COMMANDS[each]}`" for each in lacking)
        display(Markdown(f"*Not measured on the {evidence.card} yet: {how} does.*"))
        return
    show(PARTS[name].make(evidence), evidence)  # type: ignore[arg-type]


def tell(text: str, evidence: Evidence, *needs: str) -> None:
    """Show Markdown with the numbers of `words` filled in; nothing where what it needs is not measured."""
    if not evidence.lacks(*needs):
        display(Markdown(text.format(**words(evidence))))


def words(evidence: Evidence) -> dict[str, str]:
    """The numbers of the chapter's prose: what is not measured has no entry."""
    least = floor(MAIN, evidence.gpu)
    shape = candidates.choice(MAIN)[1]
    said = {
        "gpu": evidence.card,
        "floor": f"{least.us:.1f} µs",
        "fp32_floor": f"{least.fp32_us:.1f} µs",
        "cluster": str(shape.cluster),
        "queries": str(shape.queries),
        "width": str(shape.width),
        "tiles": str(-(-MAIN.seq_q // shape.queries)),
    }
    measured = measured_at(evidence, MAIN)
    if measured:
        taken = measured.time(V8, MAIN)
        found = results(evidence)
        verdicts = [worst_verdict([each for each in found if each.target == target]) for target in TARGETS]
        peer = next(iter(rivals(evidence, MAIN, peers=True)), None)
        said |= {
            "main": f"{taken.us:.1f} µs" if taken else "no number",
            "over_floor": f"{taken.us / least.us:.1f}×" if taken else "no number",
            "peer": f"`{peer.version}`" if peer else "no peer",
            "over_peer": f"{peer.ratio.value:.1f}×" if peer else "no number",
            "reached": str(verdicts.count(REACHED)),
            "targets": str(len(TARGETS)),
        }
    counted = evidence.profiled
    counted = counted[(counted["problem"] == MAIN) & (counted["version"] == V8)].to_dict("records")
    for row in counted:
        idle = {name: share for name, share in profiles.waits(row).items() if name != profiles.ISSUES}
        said |= {
            "times_read": f"{times_read(row):.2f}",
            "issue": f"{row['issue_percent']:.0f} %",
            "busiest": f"{max(row[column] for column in profiles.UNITS.values()):.0f} %",
            "longest_wait": f"{100 * max(idle.values()):.0f} %",
        }
    if len(evidence.shapes):
        changed = int(outdated(evidence.shapes, V8).sum())
        said["tried"] = str(len(evidence.shapes))
        said["stale"] = f" Of them, **{changed} are stale**: the code has changed since." if changed else ""
    return said
