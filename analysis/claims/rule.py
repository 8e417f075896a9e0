"""The one rule by which a measured number is held against a published one, and a claim gets its verdict.

A claim has one headline test, or one for each of its parts, at one place or several (head dims, versions). Each place
has an outcome, by the kind of the claim and what `MEANS` says; to be on a side of 1 is to be more than 3 % away. Of
several places the verdict is

number, cause      what most are; reproduced counts as the same direction, and opposite as no difference, where that
                   makes them most; half and half is in part
universal, count   refuted, or wrong, by one place

A place is undecided where the interval straddles the bounds, or there is none.

A claim of times is judged on their SMs, by the GPU alone and by their clock. A clock that cannot tell decides nothing.
Where both say right, or both wrong, the weaker word counts; where they disagree, the claim depends on the clock. A
claim of hardware counters is judged at the load of an SM of theirs; a share that one gives is taken to within 10 %. Of
both the whole card is shown and decides nothing. All else is judged once. README.md has the reasons.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ..evidence import TIE, Estimate
from ..evidence.compare import between
from ..evidence.known import UNDECIDED

AGREE = 1.10  # within this factor of a published ratio it is reproduced; the margin of a counter, too

REPRODUCED, SAME_DIRECTION, NO_DIFFERENCE, OPPOSITE = "reproduced", "same direction", "no difference", "opposite"
A_DIFFERENCE = "a difference"
HOLDS, REFUTED, SUPPORTED, NOT_SUPPORTED = "holds", "refuted", "supported", "not supported"
EXACT, WRONG = "exact", "wrong"
IN_PART, ON_TIMER = "in part", "depends on the timer"

STANDS = (REPRODUCED, HOLDS, SUPPORTED, EXACT)
BETWEEN = (SAME_DIRECTION, IN_PART, ON_TIMER)
FALLS = (NO_DIFFERENCE, OPPOSITE, A_DIFFERENCE, REFUTED, NOT_SUPPORTED, WRONG)
VERDICTS = (*STANDS, *BETWEEN, *FALLS, UNDECIDED)
MEANS = {  # what a verdict says of a claim, to readers
    REPRODUCED: "a published ratio: the whole interval measured is within 10 % of it, on its side of 1",
    SAME_DIRECTION: "a published ratio: the interval is on its side of 1, but not all within 10 %",
    NO_DIFFERENCE: "a difference is published, and none beyond 3 % is measured",
    A_DIFFERENCE: "a ratio within 3 % of 1 is published, which counts as no difference, and a difference is measured",
    OPPOSITE: "faster is published and slower is measured, or the reverse",
    HOLDS: "true wherever the claim says so",
    REFUTED: "false: at least one counterexample, which is named, or the cause closes nothing of the gap",
    SUPPORTED: "the cause, taken away, closes at least half of the gap",
    NOT_SUPPORTED: "the cause, taken away, closes less, or there is no gap",
    EXACT: "a count that agrees to the last digit",
    WRONG: "a count that differs; the row gives ours",
    IN_PART: "some of its parts stand and some fall, or as many places of one test stand as fall",
    ON_TIMER: "on their SMs the two clocks disagree: launches and host waits decide",
    UNDECIDED: "the intervals are too wide, a counter is too near its threshold, or it is not measured here",
}
IN_PROSE = {  # the words of prose
    **dict.fromkeys(STANDS, "right"),
    SAME_DIRECTION: "right direction",
    IN_PART: "right in part",
    ON_TIMER: "depends on the clock",
    **dict.fromkeys(FALLS, "wrong"),
    UNDECIDED: "cannot tell",
}


def told(verdict: str) -> str:
    """A verdict or an outcome to readers: the word of prose, and the finer one behind it, as in `"wrong (refuted)"`."""
    word, finer = IN_PROSE[verdict], {WRONG: "another count"}.get(verdict, verdict)
    return word if verdict in BETWEEN else f"{word} ({finer})"


KINDS = {  # of a claim: what a place is called where the test's bounds are met, and where not
    "number": (HOLDS, REFUTED),
    "universal": (HOLDS, REFUTED),
    "count": (EXACT, WRONG),
    "cause": (SUPPORTED, NOT_SUPPORTED),
    "undecided": (HOLDS, REFUTED),
}
# Verdicts of one side, from the stronger to the weaker.
SIDES = ((REPRODUCED, SAME_DIRECTION), (A_DIFFERENCE, OPPOSITE, NO_DIFFERENCE), (SUPPORTED,), (REFUTED, NOT_SUPPORTED))


def compare(low: float, high: float, measured: Estimate) -> str:
    """How a measured ratio stands to a published one, or to the range [low, high] that was published: see above."""
    if not measured.known:
        return UNDECIDED
    faster, slower = low > TIE, high < 1 / TIE
    is_faster, is_slower = measured.low > TIE, measured.high < 1 / TIE
    near = low / AGREE <= measured.low and measured.high <= high * AGREE
    if not (faster or slower):
        if is_faster or is_slower:
            return A_DIFFERENCE
        return REPRODUCED if near else UNDECIDED
    if is_faster or is_slower:
        if is_faster != faster:
            return OPPOSITE
        return REPRODUCED if near else SAME_DIRECTION
    reaches = measured.high > TIE if faster else measured.low < 1 / TIE
    return UNDECIDED if reaches else NO_DIFFERENCE


def _rounded(value: float, digits: int | None) -> float:
    return value if digits is None else float(f"{value:.{digits - 1}e}")


def decide(
    kind: str, rule: str, bounds: Sequence[float], measured: Estimate, digits: int | None = None, unit: str = ""
) -> str:
    """The outcome at one place. The bound of a direction is infinity for faster and 0 for slower."""
    low, high = bounds[0], bounds[-1]
    if rule in ("published", "direction"):
        return compare(low, high, measured)
    if rule == "equals":
        measured = replace(measured, low=_rounded(measured.low, digits), high=_rounded(measured.high, digits))
    met = between(-math.inf if rule == "most" else low, measured, math.inf if rule == "least" else high)
    if met.intervals:
        return KINDS[kind][0]
    if met.possible:
        return UNDECIDED
    return REFUTED if kind == "cause" and _closes_nothing(rule, measured, unit) else KINDS[kind][1]


def _closes_nothing(rule: str, measured: Estimate, unit: str) -> bool:
    """Whether doing without a cause changes no more than a tie does, or an exact number speaks against it."""
    if measured.low == measured.high:
        return True
    if unit == "of the gap":
        return measured.high <= TIE - 1
    return unit == "x" and (measured.low >= 1 / TIE if rule == "most" else measured.high <= TIE)


def explain(outcome: str, effects: Iterable[str], exact: bool) -> str:
    """The outcome of a cause, given whether there is the effect that it is to explain; an `exact` number refutes it in
    any case."""
    effects = set(effects)
    if (exact and outcome == REFUTED) or not effects or effects == {HOLDS}:
        return outcome
    return NOT_SUPPORTED if REFUTED in effects else UNDECIDED


def verdict(kind: str, outcomes: Sequence[str]) -> str:
    """The verdict of a headline under one condition, from its places."""
    decided = [outcome for outcome in outcomes if outcome != UNDECIDED]
    stand, fall = KINDS[kind]
    if kind in ("universal", "count"):
        if fall in decided:
            return fall
        return stand if decided == [*outcomes] else UNDECIDED
    if 2 * len(decided) <= len(outcomes):
        return UNDECIDED
    for side in SIDES:
        for place, word in enumerate(side):
            if 2 * sum(outcome in side[: place + 1] for outcome in decided) > len(decided):
                return word
    return IN_PART


def across(given: Collection[str]) -> str:
    """The verdict of a headline from its verdicts under the conditions that decide."""
    decided = {word for word in given if word != UNDECIDED}
    if not decided:
        return UNDECIDED
    if len(decided) == 1:
        return next(iter(decided))
    return _weaker(decided) or ON_TIMER


def _weaker(words: Iterable[str]) -> str:
    """The weakest of some verdicts of one side; empty where they are of several."""
    words = set(words)
    return next((max(words, key=side.index) for side in SIDES if words <= set(side)), "")


def together(parts: Sequence[str]) -> str:
    """The verdict of a claim from its parts."""
    stand = [part in STANDS or part == SAME_DIRECTION for part in parts]
    if len(set(parts)) == 1:
        return parts[0]
    if IN_PART in parts or (any(stand) and any(part in FALLS for part in parts)):
        return IN_PART
    if UNDECIDED in parts:
        return UNDECIDED
    if all(stand):
        return SAME_DIRECTION if SAME_DIRECTION in parts else HOLDS
    return REFUTED if all(part in FALLS for part in parts) else IN_PART
