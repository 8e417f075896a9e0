"""What the front page and the README share: five comparisons, and the README's part that is made from data."""

from __future__ import annotations

import re

from ..claims.rule import stands
from ..evidence import Evidence
from ..evidence.known import WRONG
from ..figures.style import Plot
from ..findings import committed
from ..measure.studies import SOURCE_TIMER
from ..record import published
from ..record.files import REFERENCE, DataError, card_name, gpu_folder, known_gpus, read_json
from ..record.text import ratios
from ..tables.table import Table, why_none
from .findings import paragraph
from .notebook import say
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
FINDINGS = (
    ("sinusoidal-baseline", "sinusoidal-baseline-float4"),
    ("rope-device", "rope-window", "rope-others"),
    ("rope-v8", "rope-v8-core"),
)
BOX = ("fuse-tiles", "fuse-short", "fuse-many", "fuse-few", "fuse-pytorch")
FOUND = "found"  # the marks of the README, between which what is made from data stands


def edition(e: Evidence) -> None:
    """Show which card the text is written for, and which the tables and figures are of."""
    written = committed(REFERENCE).card
    text = f"Text, tables and figures are of an {written}."
    if not e.is_reference:
        text = (
            f"<div class='reference-card'>\n\nThe text is written for an {written}, whose numbers it has. A badge at "
            "each finding says how this card compares; [card by card](compare.html) has the numbers of both.\n\n</div>"
            f"\n\nTables and figures are of the {e.card}."
        )
    say(text)


def other_cards(e: Evidence) -> None:
    """Show the names of the other cards that were measured; nothing where there are none."""
    slugs = [slug for slug in known_gpus() if slug != e.slug]
    if slugs:
        names = (card_name(slug, read_json(gpu_folder(slug) / "gpu.json")) for slug in slugs)
        say(f"Also measured, [card by card](compare.html): {', '.join(names)}.")


def five(e: Evidence) -> Table:
    """Speedups of five comparisons at the published head dims: published, as the authors timed it, on the device."""
    rows = []
    for words, version, baseline in FIVE:
        shapes = [*e.study("log").shapes(version).values()]
        claims = {problem: published.speedup(version, baseline, problem) for problem in shapes}
        stated = {problem: claim.value for problem, claim in claims.items() if claim}
        timers = (SOURCE_TIMER, "device_warm")
        measured = {timer: e.speedup(version, baseline, "log", timer, problem=[*stated]) for timer in timers}
        outcomes: dict[str, list[str]] = {}
        for problem, value in stated.items():
            found = measured["device_warm"][problem]
            word = stands(value, found) if found else why_none(found).word
            wrong = f" (its result is {WRONG})" * (e.study("log").known(version, problem).word == WRONG)
            outcomes.setdefault(word, []).append(f"{problem.hdim}{wrong}")
        rows.append(
            {
                "compared": words,
                "published": stated.values(),
                **{timer: found.values_known.values() for timer, found in measured.items()},
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
        f"{e.card}.",
    )


def readme(text: str, e: Evidence, plot: Plot, table: Table) -> str:
    """`text` of the README with what was found and the box, between their marks. Raises: DataError without them."""
    found = [paragraph(e, *ids) for ids in FINDINGS]
    made = render("readme.md", findings=found, box=paragraph(e, *BOX), table=table.plain(), plot=plot)
    made = CHAPTER.sub(rf"]({NOTEBOOKS}/\1.ipynb)", made)
    return _between(text, FOUND, made)


def _between(text: str, mark: str, made: str) -> str:
    """`text` with `made` between two marks. Raises: DataError without them."""
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    if start not in text or end not in text:
        raise DataError(f"README.md lacks {start} or {end}, between which what is made from data belongs")
    return f"{text[: text.index(start)]}{start}\n\n{made}\n{text[text.index(end) :]}"
