"""A claim: what a document says, of which kind it is, and the tests that decide it.

    @number
    def c18(e):
        'V7 beats separate kernels ...'
        yield speed(e, "rope_v7", "rope_separate", (128, 512, 2048), published=("N199", "N201", "N203"))

Where documents say it, in which words, and what it contradicts stands in data/claims.csv. A claim is a generator of
tests over the evidence of a card. One test is its headline, or one of each of its parts; it gives the verdict. An
effect is what a cause is claimed to explain: it belongs to the places of the headline that share its head dim and
label. A test has a place for each estimate: a head dim, or a label of a mapping. What names neither a study nor a timer
is judged under every condition: on their SMs and on the whole card, by the GPU alone and by their clock.

One rule each:
    published, published_range   a ratio, one at each place or for all, or the two ends of a range
    direction                    "faster" or "slower", where no ratio is stated
    least, most, equals          a bound, one at each place or for all; `equals` after rounding to `digits`
    between                      both bounds, for all places, or a pair for each
A bound is a number, an estimate, or the id of a row of data/published.csv.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..evidence import Estimate, Estimates, Evidence, Known, said
from ..evidence.known import UNDECIDED
from ..record.files import DATA, DataError, read_records
from ..record.published import DOCUMENTS
from .rule import KINDS

WRITE_UP = DOCUMENTS[0]
WORDS = dict(zip(DOCUMENTS, ("write-up", "summary", "log", "note", "report"), strict=True))  # for documents, in prose
HEADLINE, EFFECT = "headline", "effect"
HEAD_DIM = "head dim "  # of a place, before the number
DIRECTIONS = {"faster": math.inf, "slower": 0.0}
UNITS = {"×": "x", "%": "of the gap"}  # what a test calls the unit of its estimates
YES_OR_NO = "yes or no"  # the unit of a test that asks for 1, and finds 1 or 0

# What a test measures; a text says why nothing that is kept decides it, and what would.
Measured = Estimates | Estimate | float | str | Mapping[str, Estimates] | Mapping[str, Estimate] | Mapping[str, float]
Bound = float | str | Estimate
Hdims = int | tuple[int, ...]
RULES = ("published", "published_range", "direction", "least", "most", "between", "equals", "part", "kind", "unit")


@dataclass(frozen=True)
class Place:
    """One place of a test: a head dim and a label, which may be empty, with what is measured and its bounds."""

    hdim: int | None
    label: str
    measured: Estimate
    bounds: tuple[Estimate, ...] = ()

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.label, f"{HEAD_DIM}{self.hdim}" if self.hdim is not None else "")))

    def shared_by(self, other: "Place") -> bool:
        """Whether both are at one place, as far as both say where."""
        hdims = {each.hdim for each in (self, other)} - {None}
        labels = {each.label for each in (self, other)} - {""}
        return len(hdims) < 2 and len(labels) < 2


@dataclass(frozen=True)
class Test:
    says: str
    places: tuple[Place, ...] = ()
    rule: str = ""
    unit: str = ""
    digits: int | None = None
    role: str = HEADLINE
    part: str = ""
    kind: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The versions, and the rows of published.csv, that it names."""
        given = (each.about.names for place in self.places for each in (place.measured, *place.bounds))
        return frozenset().union(*given)


Tests = Iterator[Test]


@dataclass(frozen=True)
class Claim:
    """A claim of the documents in our words, with a few of theirs and where in each document they stand."""

    id: str
    kind: str
    claim: str
    ask: Callable[[Evidence], Tests]
    quote: str
    where: Mapping[str, str]
    contradicts: Sequence[str] = ()

    @property
    def against(self) -> list[str]:
        """The claims that it contradicts, whichever of the two says so."""
        return sorted({*self.contradicts, *(other.id for other in CLAIMS.values() if self.id in other.contradicts)})

    def tests(self, e: Evidence) -> list[Test]:
        """Its tests on the evidence of a card. Raises: DataError unless each part has one headline."""
        tests = [
            test if test.kind else replace(test, kind=self.kind if test.role == HEADLINE else _aside(test))
            for test in self.ask(e)
        ]
        parts = [test.part for test in tests if test.role == HEADLINE]
        if not parts or len(set(parts)) != len(parts) or any(test.part not in ("", *parts) for test in tests):
            raise DataError(f"{self.id}: one headline is due, or one for each part; there are: {', '.join(parts)}")
        return tests


def _aside(test: Test) -> str:
    return "count" if test.rule == "equals" else "universal"


CLAIMS: dict[str, Claim] = {}


@functools.cache
def _said() -> Mapping[str, Mapping[str, Any]]:
    """Of each claim what data/claims.csv says of it: its quote, where it stands, and what it contradicts."""
    found: dict[str, Any] = {}
    for row in read_records(DATA / "claims.csv", "claims"):
        first = {"quote": row["quote"], "where": {}, "contradicts": (row["contradicts"] or "").split()}
        found.setdefault(row["claim_id"], first)["where"][row["document"]] = row["locator"]
    return found


def _claim(kind: str, ask: Callable[[Evidence], Tests]) -> Callable[[Evidence], Tests]:
    """Register a claim: its id is the function's name, a letter for its subject and a number; its docstring says it."""
    id = f"{ask.__name__[0].upper()}-{ask.__name__[1:]}"
    if id in CLAIMS:
        raise ValueError(f"claim {id} is there twice")
    if id not in _said():
        raise DataError(f"data/claims.csv has no claim {id}")
    CLAIMS[id] = Claim(id, kind, " ".join((ask.__doc__ or "").split()), ask, **_said()[id])
    return ask


number, universal, count, cause, undecided = (partial(_claim, kind) for kind in KINDS)


def headline(
    says: str, measured: Measured, *, unit: str | None = None, digits: int | None = None, role: str = HEADLINE,
    part: str = "", kind: str = "", **given: Any,
) -> Test:  # fmt: skip
    """The test that gives the verdict, at all its places; of a claim with parts, that of one `part`."""
    ((rule, bound),) = given.items()
    places = list(_places(measured))
    paired = rule in ("published_range", "between")
    one_each = isinstance(bound, tuple) and (not paired or isinstance(bound[0], tuple))
    given_each = bound if one_each else (bound,) * len(places)
    bounds = [tuple(map(_bound, each if paired else (each,))) for each in given_each]
    if len(bounds) != len(places):
        raise ValueError(f"{says}: {len(places)} places and {len(bounds)} bounds")
    if unit is None:
        some = next(iter(measured.values())) if isinstance(measured, Mapping) and places[0].label else measured
        unit = UNITS.get(some.unit, "") if isinstance(some, Estimates) else ""
        unit = "x" if rule in ("published", "published_range", "direction") else unit
    located = tuple(replace(place, bounds=each) for place, each in zip(places, bounds))
    return Test(says, located, rule.removesuffix("_range"), unit, digits, role, part, kind)


effect = partial(headline, role=EFFECT)  # what a cause is claimed to explain


def speed(e: Evidence, version: str, over: str, hdim: Hdims, **given: Any) -> Test:
    """Headline: how many times as fast as another a version is."""
    rule = {name: given.pop(name) for name in RULES if name in given}
    return headline(f"{version} over {over}", e.speedup(version, over, hdim=hdim, **given), **rule)


def closes(e: Evidence, version: str, without: str, over: str, hdim: Hdims, part: str = "", **asked: Any) -> Tests:
    """Headline: doing without a cause closes half of the gap to a faster version at least. Effect: there is a gap."""
    share = e.share_closed(version, without, over, hdim=hdim, **asked)
    yield headline(f"share of the gap of {version} to {over} that {without} closes", share, least=0.5, part=part)
    yield loses(e, version, over, hdim, part, **asked)


def wins(e: Evidence, version: str, over: str, hdim: Hdims, part: str = "", **asked: Any) -> Test:
    """Effect: a version is faster than another."""
    return effect(f"{version} over {over}", e.speedup(version, over, hdim=hdim, **asked), least=1.03, part=part)


def loses(e: Evidence, version: str, over: str, hdim: Hdims, part: str = "", **asked: Any) -> Test:
    """Effect: a version is slower than another."""
    return effect(f"{version} over {over}", e.speedup(version, over, hdim=hdim, **asked), most=0.97, part=part)


def _bound(given: Bound) -> Estimate:
    if isinstance(given, str):
        return Estimate.exact(DIRECTIONS[given]) if given in DIRECTIONS else said(given)
    return given if isinstance(given, Estimate) else Estimate.exact(given)


def _places(measured: Measured, label: str = "") -> Iterator[Place]:
    if isinstance(measured, Estimates):
        for hdim, each in measured.items():
            yield Place(hdim, label, each)
    elif isinstance(measured, Mapping):
        for name, some in measured.items():
            yield from _places(some, name)
    elif isinstance(measured, str):
        yield Place(None, label, Estimate.none(Known(UNDECIDED, measured)))
    else:
        yield Place(None, label, measured if isinstance(measured, Estimate) else Estimate.exact(measured))
