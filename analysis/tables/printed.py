"""Every time that the documents print for a version of ours, beside its times on as many SMs as their card has."""

from collections.abc import Iterator
from typing import Any

from kernels import VERSIONS, Problem

from ..evidence import Estimate, Evidence, measured
from ..record import published
from ..record.text import NOTHING
from ..studies import SLICES, THEIR_CLOCK, THEIR_SMS
from .table import Table, code, lines, small

NEAR = (0.10, 0.25)


def stated() -> Iterator[tuple[str, Problem, list[dict[str, Any]]]]:
    """By version and problem, the rows of published.csv that state the time of a call, the write-up's first."""
    rows = published.load()
    rows = rows[(rows["quantity"] == "time_ms") & rows["version"].isin(list(VERSIONS)) & rows["hdim"].notna()]
    keys = ["version", *published.SHAPE, "rotary_dim", "dtype"]
    order = [*VERSIONS]
    groups = sorted(
        rows.groupby(keys, sort=False, dropna=False), key=lambda group: (order.index(group[0][0]), group[0][5])
    )
    for (name, *shape, rotary_dim, dtype), mine in groups:
        causal = name.endswith("_causal") or name.startswith("fp16_phase6")
        batch, heads, seq_q, seq_k, hdim = (int(each) for each in shape)
        turned = 0 if rotary_dim != rotary_dim else int(rotary_dim)
        own = Problem(
            VERSIONS[name].family, batch, heads, heads, seq_q, seq_k, hdim, turned, dtype or "float32", causal
        )
        yield name, own, mine.to_dict("records")


def printed(e: Evidence) -> Table:
    """A row a version and problem: what is printed, and both columns of their SMs."""
    rows, near = [], {condition: [0] * len(NEAR) for condition in (THEIR_SMS, THEIR_CLOCK)}
    known = dict.fromkeys(near, 0)
    for name, problem, said in stated():
        values = [1e3 * row["value"] for row in said]
        cells = []
        for condition in near:
            us = e.under(condition).time(name, problem=problem)[problem]
            off = us.value / values[0] - 1 if us else None
            if off is not None:
                known[condition] += 1
                near[condition] = [count + (abs(off) <= most) for count, most in zip(near[condition], NEAR)]
            cells.append(_cell(us, off))
        ends = dict.fromkeys(f"{end(values):,.0f}" for end in (min, max))
        where = ", ".join(dict.fromkeys(row["id"] for row in said))
        rows.append((lines(code(name), small(str(problem))), lines(f"{' to '.join(ends)} µs", small(where)), *cells))
    counted = "; of ".join(
        f"{known[condition]} times on {condition}, {close} lie within 10 % and {far} within 25 %"
        for condition, (close, far) in near.items()
    )
    caption = (
        "Every time that the documents and their logs print for a version of ours, and ours on as many SMs as their "
        f"card has. Small: the rows of data/published.csv, and how far ours is from the first of them. Of {counted}. "
        "No time: the version refuses the shape, or an SM of this card holds fewer of its blocks than one of theirs."
    )
    header = ("version and problem", "printed", "the GPU alone", "by their clock")
    source = measured(e, SLICES, f"{SLICES}_fp16")
    return Table(header, rows, header[1:], caption, source=source, title="Printed times, and ours on their SMs")


def _cell(us: Estimate, off: float | None) -> str:
    return NOTHING if off is None else lines(f"{us.value:,.1f} µs", small(f"{100 * off:+.0f} %".replace("-", "−")))
