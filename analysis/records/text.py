"""Numbers and ranges as text: one way to write them for tables, figures and prose."""

from __future__ import annotations

from collections.abc import Iterable

from .interval import TIE

NOTHING = "–"


def span(values: Iterable[float], digits: int = 2) -> str:
    """The least and the largest, `"0.98–1.02"`, or one number where they print the same."""
    values = list(values)
    low, high = (f"{value:.{digits}f}".replace("-", "−") for value in (min(values), max(values)))
    if low == high:
        return low
    return f"{low} to {high}" if "−" in low else f"{low}–{high}"


def effect(speedups: Iterable[float]) -> str:
    """What speedups amount to, in a few words that hold whatever they are."""
    speedups = list(speedups)
    if not speedups:
        return "has no measured ratio"
    if 1 / TIE < min(speedups) and max(speedups) < TIE:
        return "ties"
    if min(speedups) > 1:
        return f"is {span(speedups)}× as fast"
    if max(speedups) < 1:
        return f"takes {span(1 / speedup for speedup in speedups)}× as long"
    return f"runs at {span(speedups)}× the speed"


def beside(speedups: Iterable[float]) -> str:
    """`effect` up to the word that names the other: `"is 1.20× as fast as"`, `"ties with"`."""
    said = effect(speedups)
    return f"{said} {'with' if said == 'ties' else 'of' if said.endswith('speed') else 'as'}"


def number(value: float, unit: str = "") -> str:
    """A number to three digits with its unit: `"1.94×"`, `"17.3 %"`, `"4,096 B"`."""
    size = abs(value)
    if unit == "×" and 0.1 <= size < 100:
        text = f"{value:.2f}"
    elif float(value).is_integer() or size >= 100:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3g}" if size >= 0.001 else f"{value:.1e}"
    return f"{text.replace('-', '−')}{'' if unit in ('', '×') else ' '}{unit}"


def amount(values: Iterable[float], unit: str = "") -> str:
    """The least and the largest of some values, their unit once: `"17.3–19.1 %"`."""
    values = list(values)
    low, high = number(min(values), unit), number(max(values), unit)
    if low == high:
        return low
    bare = low.removesuffix(unit).rstrip()
    return f"{bare} to {high}" if "−" in bare else f"{bare}–{high}"


def spread(values: Iterable[float]) -> str:
    """The least and the largest of some speedups."""
    values = list(values)
    if not values:
        return NOTHING
    low, high = f"{min(values):.2f}×", f"{max(values):.2f}×"
    return low if low == high else f"{low[:-1]}–{high}"
