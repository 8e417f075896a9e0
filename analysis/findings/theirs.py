"""Times that the documents print beside ours on their SMs: how far a slice stands in for their card."""

import functools
import statistics
from collections.abc import Iterator
from typing import Any

from kernels import VERSIONS, Problem

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..record import published
from ..studies import SLICES, THEIR_CLOCK
from . import Says, checks, finding, numbers, times

LARGE = 4096  # head dims from here on, where the slice is slower than their card
SLOW, MEDIAN = 0.85, "median"


@functools.cache
def printed_times() -> list[tuple[str, Problem, list[dict[str, Any]]]]:
    """By version and problem, the rows of published.csv that state the time of a call, the write-up's first."""
    rows = published.load()
    rows = rows[(rows["quantity"] == "time_ms") & rows["version"].isin(list(VERSIONS)) & rows["hdim"].notna()]
    keys = ["version", *published.SHAPE, "rotary_dim", "dtype"]
    order = [*VERSIONS]
    groups = sorted(
        rows.groupby(keys, sort=False, dropna=False), key=lambda group: (order.index(group[0][0]), group[0][5])
    )
    return [(key[0], _problem(*key), mine.to_dict("records")) for key, mine in groups]


def _problem(name: str, *given: Any) -> Problem:
    *shape, rotary_dim, dtype = given
    causal = name.endswith("_causal") or name.startswith("fp16_phase6")
    batch, heads, seq_q, seq_k, hdim = (int(each) for each in shape)
    turned = 0 if rotary_dim != rotary_dim else int(rotary_dim)
    return Problem(VERSIONS[name].family, batch, heads, heads, seq_q, seq_k, hdim, turned, dtype or "float32", causal)


def _over_ours(e: Evidence) -> Iterator[tuple[int, Estimate]]:
    """The head dim of each printed time of float32, and that time over ours on their SMs by their clock."""
    for name, problem, said in printed_times():
        us = e.under(THEIR_CLOCK).time(name, problem=problem)[problem]
        if us and problem.family != "fp16":
            yield problem.hdim, 1e3 * said[0]["value"] / us


@finding("claims-slice", """The printed times bound how far a slice stands in for the authors' card. By their clock our
float32 kernels are {small:.2} as fast as printed, in the median of head dims up to 2048. At 4096 and 8192 the median is
{large:.2} as fast, and {slow} of {all} are at most 0.85 times as fast. The slice has as many SMs as their card, but the
clock rate, memory and L1 of ours. So a time says less than a ratio.""")
def slice_of_theirs(e: Evidence) -> Says:
    found = [*_over_ours(e)]
    small, large = ([gain for hdim, gain in found if (hdim >= LARGE) is far] for far in (False, True))
    if not small or not large:
        raise NotMeasured(f"nothing is timed on their SMs: `make measure STUDY={SLICES}`")
    middle, far = (
        Estimates({MEDIAN: Estimate.count(statistics.median(gain.value for gain in gains), gains)}, "×")
        for gains in (small, large)
    )
    slow = sum(gain.value <= SLOW for gain in large)
    counts = {name: Estimate.count(n, large) for name, n in (("slow", slow), ("all", len(large)))}
    return numbers(small=times(middle), large=times(far), **counts), checks(
        middle > 0.9, middle < 1, far < SLOW, slow > 0.6 * len(large)
    )
