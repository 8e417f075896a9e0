"""What the front page and the README share: five comparisons, and the README's part that is made from data."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from statistics import median

from kernels import Problem

from ..claims.rule import stands
from ..figures.style import Plot
from ..measure.studies import SOURCE_TIMER
from ..records import published
from ..records.files import DataError, card_name, gpu_folder, known_gpus, read_json
from ..records.known import NOT_MEASURED, WRONG
from ..records.measured import Measured
from ..records.text import number, ratios
from ..tables import changes
from ..tables.table import Table, share, why_untimed
from .findings import Finding, broken
from .templates import render

SCALAR, FLOAT4 = "sinusoidal_separate_scalar", "sinusoidal_separate_float4"
FIVE = (  # in words, version, baseline
    ("sinusoidal V5, fully fused, over separate kernels that load one float", "sinusoidal_v5", SCALAR),
    ("the same, over separate kernels that load four", "sinusoidal_v5", FLOAT4),
    ("sinusoidal hybrid, over separate kernels that load four", "sinusoidal_hybrid_v1", FLOAT4),
    ("RoPE V1c, fully fused, over separate kernels", "rope_v1c", "rope_separate"),
    ("RoPE V7, hybrid, over separate kernels", "rope_v7", "rope_separate"),
)
SMALL = 20.0  # µs, below which a time has a decimal
NOTEBOOKS = "analysis/notebooks"
CHAPTER = re.compile(r"\]\((\w+)\.(?:ipynb|html)(?:#[\w-]+)?\)")  # a link between chapters; a finding links to pages
FOUND, USE = "found", "use"  # marks of the README, between which what is made from data stands


def most_published(evidence: Measured, version: str, baseline: str) -> str:
    """The largest speedup that the documents state of a version over a baseline: `"2×"`."""
    claims = [published.speedup(version, baseline, problem) for problem in evidence.shapes(version).values()]
    return number(max((claim.value for claim in claims if claim), default=math.nan), "×", 0)


def microseconds(evidence: Measured | None, problem: Problem, *versions: str) -> dict[str, str]:
    """Device times of some versions at a problem, each as text."""
    taken = {name: evidence.time(name, problem) if evidence else None for name in versions}
    return {key: number(t.us, "µs", 0 if t.us >= SMALL else 1) if t else NOT_MEASURED for key, t in taken.items()}


def others(evidence: Measured) -> str:
    """The names of the other cards that were measured; empty where there are none."""
    slugs = [slug for slug in known_gpus() if slug != evidence.slug]
    return ", ".join(card_name(slug, read_json(gpu_folder(slug) / "gpu.json")) for slug in slugs)


def moved(evidence: Measured) -> dict[str, str]:
    """How far speedups of the log's kernels moved since the run before, by two timers; empty where none was."""
    told: dict[str, str] = {}
    for prefix, timer in (("", "device_warm"), ("timed_", SOURCE_TIMER)):
        if found := changes(evidence, timer):
            told |= {f"{prefix}median": share(median(found)), f"{prefix}largest": share(max(found))}
    return told if len(told) == 4 else {}


def five(evidence: Measured) -> Table:
    """Speedups of five comparisons at the published head dims: published, as the authors timed it, on the device."""
    rows = []
    for words, version, baseline in FIVE:
        shapes = evidence.shapes(version).values()
        claims = {problem: published.speedup(version, baseline, problem) for problem in shapes}
        stated = {problem: claim.value for problem, claim in claims.items() if claim}
        measured = {
            timer: {problem: evidence.ratio(baseline, version, problem, timer) for problem in stated}
            for timer in (SOURCE_TIMER, "device_warm")
        }
        outcomes: dict[str, list[str]] = {}
        for problem, value in stated.items():
            word = stands(value, measured["device_warm"][problem])
            word = word or why_untimed(evidence, baseline, version, problem)
            check = evidence.check(version, problem)
            wrong = f" (its result is {WRONG})" * bool(check and check.status == WRONG)
            outcomes.setdefault(word, []).append(f"{problem.hdim}{wrong}")
        rows.append(
            {
                "compared": words,
                "published": stated.values(),
                **{timer: [ratio.value for ratio in found.values() if ratio] for timer, found in measured.items()},
                "outcome": "; ".join(f"{word} at {', '.join(dims)}" for word, dims in outcomes.items()),
            }
        )
    return Table.from_frame(
        rows,
        {
            "compared": ("compared", str),
            "published": ("published", ratios),
            SOURCE_TIMER: ("as timed", ratios),
            "device_warm": ("GPU alone", ratios),
            "outcome": ("verdict of the GPU alone, by head dim", str),
        },
        slice(1, 4),
        "Speedup, least to largest over the published head dims; above 1 is faster. Published on the "
        f"{published.card('rope')}; as timed (launches and host waits included, as the authors do) and GPU alone: "
        f"{evidence.card}.",
    )


def readme(text: str, findings: Iterable[Finding], plot: Plot, table: Table, use: Iterable[Finding]) -> str:
    """`text` of the README with what was found, three findings and a box, and how fast the kernel is, in their marks.

    Raises: DataError without the marks, or where a finding does not hold.
    """
    findings, use = list(findings), list(use)
    if wrong := broken([*findings, *use]):
        raise DataError("\n".join(["the README would say what does not hold", *wrong]))
    made = render("readme.md", findings=findings, table=table.plain(), plot=plot)
    made = CHAPTER.sub(rf"]({NOTEBOOKS}/\1.ipynb)", made)
    return _between(_between(text, FOUND, made), USE, "\n".join(f"{each.text}\n" for each in use))


def _between(text: str, mark: str, made: str) -> str:
    """`text` with `made` between two marks. Raises: DataError without them."""
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    if start not in text or end not in text:
        raise DataError(f"README.md lacks {start} or {end}, between which what is made from data belongs")
    return f"{text[: text.index(start)]}{start}\n\n{made}\n{text[text.index(end) :]}"
