"""Findings: what one card shows, a written sentence with its numbers and the condition that makes it true.

    finding("hybrid", "On the device V7 runs at {v7} the speed of separate kernels.", holds=v7.slower, v7=v7)

A finding never raises. Where it holds, its sentence is shown, and where it is only likely, with a word that says so;
where it does not hold, or is not measured, its numbers are.
Sentences are written for the committed record of `REFERENCE`, whose strict build fails on any that does not hold.
`python -m analysis findings` evaluates all of them without drawing a figure.
"""

from __future__ import annotations

import argparse
import ast
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
from IPython.display import Markdown, display

from kernels import VERSIONS, Problem

from ..records.files import REFERENCE, ROOT, DataError
from ..records.interval import LIKELY, TIE, Condition, Ratio
from ..records.known import FAILED, INFEASIBLE, NOT_MEASURED, UNSUPPORTED, Known, best
from ..records.measured import Measured
from ..records.text import ratios, span
from ..tables import fastest

NOTEBOOKS = ROOT / "analysis" / "notebooks"
RECORDED = "finding"  # the key, in the metadata of a notebook's output, that holds what a finding recorded


RECORD = ("finding", "answer")  # what a notebook calls to show and record one

HOLDS, PROBABLY, DIFFERS = "holds", "likely", "differs"  # how one comes out, if it is measured
UNSURE = " *(Likely on this card: its values say so, not all of their intervals.)*"

UNKNOWN = Known(NOT_MEASURED)
LABELS = {  # of a finding without numbers
    NOT_MEASURED: "Not measured here",
    UNSUPPORTED: "Unsupported here",
    INFEASIBLE: "Infeasible here",
    FAILED: "Failed here",
}


@dataclass(frozen=True)
class Speedups:
    """Speedups over a baseline by head dim, with their intervals; above 1 is faster.

    Each property is whether the speedup lies there at every head dim: likely, if an interval reaches beyond; None where
    none was measured.
    """

    by_hdim: Mapping[int, Ratio] = field(default_factory=dict)
    why: Known = UNKNOWN  # there are none

    @property
    def faster(self) -> Condition:
        return self.above(TIE)

    @property
    def slower(self) -> Condition:
        return self.below(1 / TIE)

    @property
    def not_slower(self) -> Condition:
        return self.above(1 / TIE)

    @property
    def not_faster(self) -> Condition:
        return self.below(TIE)

    def above(self, bound: float) -> Condition:
        return self._all(lambda ratio: ratio.low > bound)

    def below(self, bound: float) -> Condition:
        return self._all(lambda ratio: ratio.high < bound)

    def _all(self, condition: Callable[[Ratio], bool]) -> Condition:
        if not self.by_hdim:
            return None
        if all(condition(ratio) for ratio in self.by_hdim.values()):
            return True
        return LIKELY if all(condition(ratio.point) for ratio in self.by_hdim.values()) else False

    @property
    def high(self) -> float:
        """The largest upper end of their intervals; infinite of none."""
        return max((ratio.high for ratio in self.by_hdim.values()), default=math.inf)

    def at(self, *dims: int) -> Speedups:
        """Those at some of the head dims."""
        return Speedups({hdim: self.by_hdim[hdim] for hdim in dims if hdim in self.by_hdim}, self.why)

    @property
    def slowest(self) -> Speedups:
        """The least of them."""
        return self.at(*sorted(self.by_hdim, key=lambda hdim: self.by_hdim[hdim].value)[:1])

    @property
    def fastest(self) -> Speedups:
        """The largest of them."""
        return self.at(*sorted(self.by_hdim, key=lambda hdim: self.by_hdim[hdim].value)[-1:])

    def __format__(self, spec: str) -> str:
        """`"0.75–0.95×"`, or how much longer it takes where the spec is "slower": `"6–34 %"`."""
        values = [ratio.value for ratio in self.by_hdim.values()]
        if not values:
            return self.why.word
        return span([100 / value - 100 for value in values], "%", 0) if spec == "slower" else ratios(values)


class Shares(Speedups):
    """Shares by head dim, such as of a gap: 1 is all of it."""

    def at(self, *dims: int) -> Shares:
        return Shares(super().at(*dims).by_hdim, self.why)

    def __format__(self, spec: str) -> str:
        return span([100 * each.value for each in self.by_hdim.values()], "%", 0) if self.by_hdim else self.why.word


def speedups(
    evidence: Measured | None, version: str, baseline: str, timer: str = "device_warm", at: Problem | None = None
) -> Speedups:
    """How much faster than a baseline a version is: at one problem, or at each head dim of the documents' shapes."""
    if evidence is None:
        return Speedups()
    problems = {at.hdim: at} if at else evidence.shapes(version)
    ratios = {hdim: evidence.ratio(baseline, version, problem, timer) for hdim, problem in problems.items()}
    found = {hdim: ratio for hdim, ratio in ratios.items() if ratio}
    return Speedups(found) if found else Speedups(why=why_none(evidence, version, at))


def closed(evidence: Measured, version: str, without: str, baseline: str) -> Shares:
    """The share of a version's gap to a faster baseline that closes in its ablation `without` something."""
    found = {}
    for hdim, problem in evidence.shapes(version).items():
        if share := evidence.closed(version, without, baseline, problem):
            found[hdim] = share
    return Shares(found) if found else Shares(why=why_none(evidence, without))


def nan_shares(evidence: Measured, version: str) -> Shares:
    """The share of a version's outputs that are NaN at each head dim of the documents' shapes."""
    checks = {hdim: evidence.check(version, problem) for hdim, problem in evidence.shapes(version).items()}
    found = {
        hdim: Ratio(*3 * (check.nan_share,))
        for hdim, check in checks.items()
        if check and check.nan_share == check.nan_share
    }
    return Shares(found) if found else Shares(why=why_none(evidence, version))


def why_none(evidence: Measured | None, version: str, at: Problem | None = None) -> Known:
    """Why nothing was timed of a version, at one problem or at any: what it is that keeps it from running, if that."""
    problems = [at] if at else evidence.problems(VERSIONS[version].family) if evidence else ()
    found = best(evidence, version, problems) if evidence else Known(NOT_MEASURED)
    return Known(NOT_MEASURED) if found.ran else found


def peers(evidence: Measured | None, version: str, problem: Problem) -> Speedups:
    """How much faster than the fastest peer with a right result a version is at a problem."""
    if evidence is None:
        return Speedups()
    peer = fastest(evidence, evidence.versions(problem.family, peers=True), problem)
    return speedups(evidence, version, peer, at=problem) if peer else Speedups(why=why_none(evidence, version, problem))


def every(*conditions: Condition) -> Condition:
    """Whether all conditions hold: the worst of false, not measured (None), likely, and true."""
    for worst in (False, None, LIKELY):
        if worst in conditions:
            return worst
    return True


def outcome(holds: Condition) -> str:
    """How a finding comes out, in a word."""
    if holds is LIKELY:
        return PROBABLY
    if holds is None:
        return NOT_MEASURED
    return HOLDS if holds else DIFFERS


@dataclass(frozen=True)
class Finding:
    """What a finding recorded on one card."""

    id: str
    outcome: str
    text: str

    @property
    def holds(self) -> bool:
        return self.outcome == HOLDS


def finding(id: str, text: str, *, holds: Condition, why: Known | None = None, **numbers: Any) -> None:
    """Show the sentence `text` with its numbers where it holds or is likely, else what was measured, and record which.

    `why` is known of what has no number; by default what the first of the speedups without any says.
    """
    came_out = outcome(holds)
    if came_out in (HOLDS, PROBABLY):
        shown = text.format(**numbers) + (UNSURE if came_out == PROBABLY else "")
    else:
        none = [each for each in numbers.values() if isinstance(each, Speedups) and not each.by_hdim]
        given = [why] if why else [each.why for each in none]
        label = "Differs from the reference"
        if came_out == NOT_MEASURED:
            label = LABELS[given[0].word if given else NOT_MEASURED]
        values = "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items())
        reasons = "".join(f" {each.reason}." for each in dict.fromkeys(given) if each.reason)
        shown = f"**{label}** ({id}): {values}.{reasons}"
    display(Markdown(shown), metadata={RECORDED: {"id": id, "outcome": came_out}})


def recorded(cells: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """What the findings of an executed notebook recorded, in its order."""
    for cell in cells:
        for output in cell.get("outputs", ()):
            entry = output.get("metadata", {}).get(RECORDED)
            if entry:
                yield Finding(entry["id"], entry["outcome"], output["data"]["text/markdown"])


def broken(findings: Iterable[Finding]) -> list[str]:
    """A line for every finding that does not hold."""
    words = {DIFFERS: "does not hold", PROBABLY: "is only likely", NOT_MEASURED: "is not measured"}
    return [f"{each.id} {words[each.outcome]}: {each.text}" for each in findings if not each.holds]


# ---------------------------------------------------------------- without a build


def _calls_finding(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in RECORD
        for each in ast.walk(node)
    )


class _Findings(ast.NodeTransformer):
    """Code without what only shows."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        return node if _calls_finding(node) else ast.Pass()


def evaluate(path: Path, gpu: str) -> list[Finding]:
    """What the findings of a notebook record for a GPU: its code without what only shows."""
    cells = nbformat.read(path, as_version=4).cells
    trees = [ast.parse(cell.source) for cell in cells if cell.cell_type == "code"]
    if not any(map(_calls_finding, trees)):
        return []
    found: list[Finding] = []

    def keep(shown: Markdown, metadata: Mapping[str, Any]) -> None:
        found.append(Finding(**metadata[RECORDED], text=str(shown.data)))

    names: dict[str, Any] = {}
    with mock.patch(f"{__name__}.display", keep):
        for tree in trees:
            exec(compile(ast.fix_missing_locations(_Findings().visit(tree)), path.name, "exec"), names)
            if "gpu" in names and "source" in names:
                names |= {"gpu": gpu, "source": "recorded"}
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis findings", description="Say which findings hold")
    parser.add_argument("--gpu", default=REFERENCE, help="a folder of data/measured/")
    gpu = parser.parse_args(arguments).gpu
    try:
        found = [each for path in sorted(NOTEBOOKS.glob("*.ipynb")) for each in evaluate(path, gpu)]
    except DataError as error:
        print(f"findings: {error}", file=sys.stderr)
        return 1
    wrong = broken(found)
    print("\n".join([f"[findings] {len(found)} findings, {len(found) - len(wrong)} hold on {gpu}", *wrong]))
    return 1 if wrong and gpu == REFERENCE else 0
