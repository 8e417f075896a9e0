"""What the front page and the README share: five comparisons, and the README's part that is made from data."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..measure.studies import SOURCE_TIMER
from ..records import published
from ..records.files import DataError
from ..records.measured import Measured
from ..records.text import number, ratios
from ..verdicts.rule import stands
from .findings import Finding, broken
from .origin import measured_in, published_on
from .style import Plot
from .table import Table, why_untimed
from .templates import render

SCALAR, FLOAT4 = "sinusoidal_separate_scalar", "sinusoidal_separate_float4"
FIVE = (  # in words, version, baseline
    ("sinusoidal, full fusion (V5), over separate kernels that load one float", "sinusoidal_v5", SCALAR),
    ("the same, over separate kernels that load four", "sinusoidal_v5", FLOAT4),
    ("sinusoidal, hybrid (V1), over separate kernels that load four", "sinusoidal_hybrid_v1", FLOAT4),
    ("RoPE, full fusion (V1c), over separate kernels", "rope_v1c", "rope_separate"),
    ("RoPE, hybrid (V7), over separate kernels", "rope_v7", "rope_separate"),
)
FOUND, USE = "found", "use"  # marks of the README, between which what is made from data stands


def most_published(evidence: Measured, version: str, baseline: str) -> str:
    """The largest speedup that the documents state of a version over a baseline: `"2×"`."""
    claims = [published.speedup(version, baseline, problem) for problem in evidence.shapes(version).values()]
    return number(max((claim.value for claim in claims if claim), default=math.nan), "×", 0)


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
            outcomes.setdefault(word, []).append(str(problem.hdim))
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
            "device_warm": ("on the device", ratios),
            "outcome": ("published against the device", str),
        },
        slice(1, 4),
        "Speedup, least to largest over the published head dims; above 1 is faster. Published on the "
        f"{published.card('rope')}; as timed (launches and host waits included, as the authors do) and on the device "
        f"(kernels alone): {evidence.card}.",
        measured_in(evidence) + published_on("rope"),
    )


def readme(text: str, findings: Iterable[Finding], plot: Plot, table: Table, use: Iterable[Finding]) -> str:
    """`text` of the README with what was found, and how fast the kernel is, between their marks.

    Raises: DataError without the marks, or where a finding does not hold.
    """
    findings, use = list(findings), list(use)
    if wrong := broken([*findings, *use]):
        raise DataError("\n".join(["the README would say what does not hold", *wrong]))
    made = render("readme.md", findings=findings, table=table.plain(), plot=plot)
    return _between(_between(text, FOUND, made), USE, "\n".join(f"{each.text}\n" for each in use))


def _between(text: str, mark: str, made: str) -> str:
    """`text` with `made` between two marks. Raises: DataError without them."""
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    if start not in text or end not in text:
        raise DataError(f"README.md lacks {start} or {end}, between which what is made from data belongs")
    return f"{text[: text.index(start)]}{start}\n\n{made}\n{text[text.index(end) :]}"
