"""Numbers and ranges as text: one way to write them for tables, figures and prose."""

import math
from collections.abc import Iterable

NOTHING = "–"


def number(value: float, unit: str = "", digits: int | None = None) -> str:
    """A number with its unit, to three digits or to a number of decimals: `"1.94×"`, `"17.3 %"`, `"4,096 B"`."""
    if math.isnan(value):
        return NOTHING
    size = abs(value)
    if digits is None and unit == "×" and 0.1 <= size < 100:
        digits = 2
    if digits is not None:
        text = f"{value:.{digits}f}"
    elif float(value).is_integer() or size >= 100:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3g}" if size >= 0.001 else f"{value:.1e}"
    return f"{text.replace('-', '−')}{'' if unit in ('', '×') else ' '}{unit}"


def span(values: Iterable[float], unit: str = "", digits: int | None = None) -> str:
    """The least and the largest, their unit once: `"17.3–19.1 %"`; one number where they print the same."""
    values = list(values)
    if not values:
        return NOTHING
    low, high = (number(value, unit, digits) for value in (min(values), max(values)))
    if low == high:
        return low
    bare = low.removesuffix(unit).rstrip()
    return f"{bare} to {high}" if "−" in bare else f"{bare}–{high}"


def short_commit(commit: str) -> str:
    """A commit as pages show it, to 12 digits, with what is said behind them: `"0cbc718a6570-dirty"`."""
    digits, *more = commit.split("-")
    return "-".join([digits[:12], *more])


def factor(ratio: float | None) -> str:
    """A speedup, or how many times as long: `"1.94×"`; a dash for None."""
    return NOTHING if ratio is None else number(ratio, "×", 2)
