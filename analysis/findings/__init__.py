"""Findings: sentences of the reference edition, each with its numbers and a check of every comparison that it makes.

    @finding("v7-load", "On their SMs V7 is {v7} times as fast as separate kernels on an {card}.")
    def v7_load(e):
        v7 = e.speedup("rope_v7", over="rope_separate", study="slices", hdim=SMALL)
        return numbers(v7=v7), checks(faster(v7))

A sentence has the numbers of one card, the reference by default, whichever card the book is of. On another card its
checks say how that compares. A function may raise NotMeasured: nothing is said of that card then.
"""

import argparse
import functools
import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import Any, NamedTuple

from kernels import VERSIONS, Unsupported

from ..evidence import Comparison, Estimate, Estimates, Evidence, Undecided, every
from ..evidence.compare import faster, not_faster, not_slower, slower, ties
from ..record import published
from ..record.files import DATA, REFERENCE
from ..studies import STUDIES

HOLDS, DIFFERS, OPEN, NOT_MEASURED = BADGES = (
    "holds here", "differs here", "cannot tell here", "not measured here",
)  # fmt: skip
Numbers = Mapping[str, Any]
UNKNOWN = Comparison.exact(None)
Says = tuple[Numbers, Comparison]  # of a card: the numbers of a sentence, and whether its comparisons hold


@dataclass(frozen=True)
class Found:
    """A finding on one card: its sentence, the numbers in it, and whether its comparisons hold."""

    text: str = ""
    numbers: Mapping[str, str] = field(default_factory=dict)
    check: Comparison = UNKNOWN
    given: Numbers = field(default_factory=dict, compare=False)  # the same before they are written

    @property
    def badge(self) -> str:
        """Comparison with the card: the values that it measured hold, or no interval reaches what the sentence says."""
        if self.check.values is None or self.check.values:
            return NOT_MEASURED if self.check.values is None else HOLDS
        return DIFFERS if self.check.possible is False else OPEN


@dataclass(frozen=True)
class Finding:
    """A sentence with places for numbers, and the function of a card's evidence that gives them and its checks."""

    id: str
    text: str
    evaluate: Callable[[Evidence], Says]

    def on(self, e: Evidence) -> Found:
        """The finding on a card: nothing where a measurement that it needs is missing, or its GPU lacks a kernel."""
        try:
            given, check = self.evaluate(e)
        except (Undecided, Unsupported):
            return Found()
        written = Formatter()
        places = [(name, spec or "") for _, name, spec, _ in written.parse(self.text) if name and name != "card"]
        shown = {name: format(written.get_field(name, (), given)[0], spec) for name, spec in places}
        return Found(self.text.format(card=e.card, **given), shown, check, {name: given[name] for name in shown})

    @functools.cached_property
    def home(self) -> Found:
        """The finding on the reference card, whose numbers the sentence has."""
        return self.on(committed(REFERENCE))


@functools.cache
def committed(card: str) -> Evidence:
    """The evidence of a card of this repository, whichever folder of measurements is read."""
    return Evidence.load(DATA / "measured" / card)


FINDINGS: dict[str, Finding] = {}


def finding(id: str, text: str) -> Callable:
    """Register a function of a card's evidence as a finding."""

    def register(evaluate: Callable[[Evidence], Says]) -> Callable:
        if id in FINDINGS:
            raise ValueError(f"two findings are called {id!r}")
        FINDINGS[id] = Finding(id, " ".join(text.split()), evaluate)
        return evaluate

    return register


def numbers(**given: Any) -> Numbers:
    """The numbers of a sentence by the names of their places."""
    return given


def exact(*sources: str, **given: float) -> Numbers:
    """Exact numbers that are from the same tables, by the names of their places."""
    return {name: Estimate.exact(value, *sources) for name, value in given.items()}


def checks(*comparisons: Comparison | bool) -> Comparison:
    """Whether all comparisons of a sentence hold; one of exact numbers is True or False."""
    return every(*(Comparison.exact(each) if isinstance(each, bool) else each for each in comparisons))


def of_values(comparison: Comparison) -> Comparison:
    """The same of the values alone, whatever their intervals: where a sentence is about what was measured."""
    return replace(Comparison.exact(comparison.values), failed=comparison.failed)


def times(gain: Estimates) -> Estimates:
    """The same as prose has it: `{gain:.1} as fast`, "1.4 times as fast"."""
    return gain.measured_in("times")


class Outcomes(NamedTuple):
    """On how many problems something is fastest, ties with the fastest, and loses."""

    won: int
    tied: int
    lost: int


def beside(gains: Estimates) -> Outcomes:
    """Of speedups over a rival."""
    sides = [each.side for each in gains.values() if each]
    return Outcomes(*map(sides.count, (1, 0, -1)))


def across(e: Evidence, version: str, over: str, study: str = "", hdim: Sequence[int] = ()) -> Estimates:
    """The speedup of a version over one on another problem, each at its own of the documents' shapes."""
    slow, fast = (e.time(name, study=study, hdim=hdim) for name in (over, version))
    return slow / fast


def printed(version: str, over: str | None = None, hdim: Sequence[int] = ()) -> Estimates:
    """The speedups over a version, its baseline by default, that the documents and their logs print, by head dim."""
    family, over = VERSIONS[version].family, over or VERSIONS[version].baseline
    problems = published.main_problems(p for p in STUDIES["log"].problems if p.family == family)
    found = {p.hdim: published.speedup(version, over, p) for p in problems}
    exact = {key: Estimate.exact(each.value) for key, each in found.items() if each}
    return Estimates(exact, "×").at(*(hdim or exact))


def load() -> dict[str, Finding]:
    """Every finding, by id, chapter by chapter."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return FINDINGS


def broken() -> list[str]:
    """A line for each finding that the reference's record does not bear out, interval included."""
    wrong = [each for each in load().values() if not each.home.check.intervals]
    return [f"{each.id} does not hold on {REFERENCE}: {each.home.text or each.text}" for each in wrong]


def report(e: Evidence) -> list[str]:
    """The number of findings that hold on a card, and a line for each that does not, with the numbers of both."""
    found = {each: each.on(e) for each in load().values()}
    badges = Counter(each.badge for each in found.values())
    counted = ", ".join(f"{badges[badge]} {badge.removesuffix(' here')}" for badge in BADGES)
    lines = [f"findings on {e.slug}: {counted}"]
    for each, here in found.items():
        if here.badge != HOLDS:
            compared = "; ".join(f"{name} {each.home.numbers.get(name)}, here {n}" for name, n in here.numbers.items())
            lines.append(f"{each.id} {here.badge}" + f": {compared}" * bool(compared))
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis findings", description="Say which findings hold")
    parser.add_argument("--gpu", default=REFERENCE, help="a folder of data/measured/")
    e = Evidence.load(parser.parse_args(arguments).gpu)
    lines, wrong = report(e), broken() if e.record.is_reference else []
    print("\n".join(["[findings] " + lines[0], *lines[1:], *wrong]))
    return 1 if wrong else 0
