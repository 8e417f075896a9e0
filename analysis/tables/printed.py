"""Every time that the documents print for a version of ours, beside its times on as many SMs as their card has."""

from ..evidence import Evidence, measured
from ..findings.theirs import printed_times
from ..record.text import NOTHING, factor
from ..studies import SLICES, THEIR_CLOCK, THEIR_SMS
from .table import Table, code, lines, small

NEAR = (0.10, 0.25)


def printed(e: Evidence) -> Table:
    """A row a version and problem: what is printed, and both columns of their SMs."""
    rows, near = [], {condition: [0] * len(NEAR) for condition in (THEIR_SMS, THEIR_CLOCK)}
    known = dict.fromkeys(near, 0)
    for name, problem, said in printed_times():
        values = [1e3 * row["value"] for row in said]
        cells = []
        for condition in near:
            us = e.under(condition).time(name, problem=problem)[problem]
            if us:
                off = abs(us.value / values[0] - 1)
                known[condition] += 1
                near[condition] = [count + (off <= most) for count, most in zip(near[condition], NEAR)]
            cells.append(lines(f"{us.value:,.1f} µs", small(factor(values[0] / us.value))) if us else NOTHING)
        ends = dict.fromkeys(f"{end(values):,.0f}" for end in (min, max))
        where = ", ".join(dict.fromkeys(row["id"] for row in said))
        rows.append((lines(code(name), small(str(problem))), lines(f"{' to '.join(ends)} µs", small(where)), *cells))
    counted = "; of ".join(
        f"{known[condition]} times on {condition}, {close} lie within 10 % and {far} within 25 %"
        for condition, (close, far) in near.items()
    )
    caption = (
        "Every time that the documents and their logs print for a version of ours, and ours on as many SMs as their "
        f"card has. Small: the rows of data/published.csv, and how many times as fast as the first of them ours is. Of "
        f"{counted}. "
        "No time: the version refuses the shape, or an SM of this card holds fewer of its blocks than one of theirs."
    )
    header = ("version and problem", "printed", "the GPU alone", "by their clock")
    source = measured(e, SLICES, f"{SLICES}_fp16")
    return Table(header, rows, header[1:], caption, source=source, title="Printed times, and ours on their SMs")
