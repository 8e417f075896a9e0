"""The libraries that kernels were timed beside: what each is, and a table of times a study."""

import functools
import inspect
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kernels import VERSIONS, Problem, Version
from kernels.peers import flash3, flashinfer

from ..evidence import Estimate, Evidence, Study
from ..models.rivals import alike, label, library, right, served
from ..record.text import NOTHING, factor, number, span
from ..studies import STUDIES
from .environment import what_changed
from .table import Table, code, family_title, lines, link, mark, small
from .versions import WARM, complete, elsewhere, taken

FRONT = re.compile(r"^Compiled [^,]*(, autotuned)?, then |, RoPE inside$| with ALiBi's bias.*")
PAIR = re.compile(r"(PyTorch|one|Written) (SDPA|graph|out)")  # words of a library's name that stay on one line
RELEASE = re.compile(r"([\w.]+) was\s+measured")  # in the text of a peer's module
MODULES = {module.LIBRARY: module for module in (flash3, flashinfer)}
SAME = 0.01  # by how much times of a library under two names differ at most
FIRST = ("split_keys", "half_prompts")  # the studies of today's calls
PEERS = [version for version in VERSIONS.values() if version.is_peer]


class Row(NamedTuple):
    """A shape of a study: our version and its time, if it has one, and by library its time and whether its result is
    right."""

    problem: Problem
    ours: str
    us: Estimate | None
    others: Mapping[str, tuple[Estimate, bool]]

    @property
    def best(self) -> str:
        """The fastest library with a right result, or nothing."""
        known = {name: us.value for name, (us, fine) in self.others.items() if fine}
        return min(known, key=lambda name: known[name], default="")

    @property
    def over(self) -> Estimate | None:
        """How many times as fast as the fastest library ours is."""
        found = self.others[self.best][0] / self.us if self.us and self.best else None
        return found or None


def column(peer: str) -> str:
    """The library whose attention a peer calls, and how it is tuned, without what it does with the embedding."""
    return FRONT.sub("", library(peer))


def _by_column() -> dict[str, list[Version]]:
    found: dict[str, list[Version]] = {}
    for version in PEERS:
        found.setdefault(column(version.id), []).append(version)
    return found


def _with_rope(version: Version) -> str:
    """The way of a peer with RoPE."""
    ways = {" inside": "inside its kernel", "one graph": "in the same compiled graph"}
    known = (told for words, told in ways.items() if words in library(version.id))
    return next(known, "by a compiled kernel in front" if version.family == "rope" else "")


def _release(e: Evidence, version: Version) -> str:
    """The release of a library that was measured: that which the module of its peer names, or PyTorch's."""
    with_it = "with " * (version.source != "PyTorch")
    found = RELEASE.search(inspect.getdoc(MODULES.get(version.source)) or "")
    return found[1] if found else f"{with_it}PyTorch {_timed(e, version)[-1].run['torch'].partition('+')[0]}"


@functools.lru_cache(maxsize=256)
def _timed(e: Evidence, version: Version) -> list[Study]:
    return [study for study in complete(e) if e.time(version.id, study.name, problem=taken(study, version)).known]


def libraries(e: Evidence) -> Table:
    """The libraries that were timed on a card: release, what they do with RoPE, their results, and the studies."""
    rows = []
    for name, all_ways in _by_column().items():
        if not (versions := [version for version in all_ways if _timed(e, version)]):
            continue
        studies = dict.fromkeys(study.name for version in versions for study in _timed(e, version))
        ways = dict.fromkeys(filter(None, map(_with_rope, versions)))
        anchors = "".join(f"<span id='{version.id}'></span>" for version in all_ways)
        cells = _release(e, versions[0]), "; ".join(ways) or "not timed with it", *_results(e, versions)
        rows.append((anchors + _breakable(name), *cells, ", ".join(studies)))
    return Table(("library", "release", "RoPE", "right results", "largest error", "studies"), rows)


def names() -> str:
    """The names of each library in the data: a list."""
    items = (f"- {name}: {', '.join(code(each.id) for each in versions)}" for name, versions in _by_column().items())
    return "\n".join(items)


def _breakable(name: str) -> str:
    return name.replace("FlashA", "Flash<wbr>A")


def _results(e: Evidence, versions: Iterable[Version]) -> tuple[str, str]:
    """How many results are right, and their largest error as a share of what is allowed."""
    found = [
        check
        for version in versions
        for study in _timed(e, version)
        for problem in taken(study, version)
        if (check := study.check(version.id, problem))
    ]
    fine = [check.excess for check in found if check.status == "ok"]
    return f"{len(fine)} of {len(found)}", number(100 * max(fine, default=math.nan), "%", 0)


def not_here(e: Evidence) -> str:
    """The libraries that another card alone has times of, by card, and those that none has."""
    cards: dict[str, list[str]] = {}
    for name, versions in _by_column().items():
        if not any(_timed(e, version) for version in versions):
            other = next(filter(None, (elsewhere(e, version) for version in versions)), None)
            anchors = "".join(f"<span id='{version.id}'></span>" for version in versions)
            cards.setdefault(f"Timed on the {other.card} alone" if other else "Not timed", []).append(anchors + name)
    more = "<a href='../chapters/practice.html'>In practice</a> has the times of other cards."
    told = (f"{where}: {'; '.join(names)}." for where, names in cards.items())
    return " ".join([*told, more]) if cards else ""


def _kind(problem: Problem) -> tuple[str, bool]:
    """Its family, and whether it is of half precision."""
    return problem.family, problem.dtype != "float32"


def untimed(e: Evidence, version: Version) -> str:
    """The libraries for the family and precision of a version that another card alone has times of, as a sentence."""
    mine = {problem for study in complete(e) for problem in taken(study, version)}
    kinds = {_kind(each) for problem in mine for each in alike(problem)}
    found: dict[str, dict[str, None]] = {}
    for peer in (each for each in PEERS if not _timed(e, each)):
        other = elsewhere(e, peer)
        if other and kinds & {_kind(each) for study in complete(other) for each in taken(study, peer)}:
            found.setdefault(other.card, {})[library(peer.id)] = None
    return "".join(f" Timed on the {card} alone: {'; '.join(names)}." for card, names in found.items())


def _ours(e: Evidence, study: Study, problems: Iterable[Problem]) -> tuple[str, Estimate | None] | None:
    """The version that the op runs for a problem under one of its names, and its time if the study has it with a right
    result; of another embedding, or in a study of the documents' versions alone, the fastest with a right result."""
    own: dict[str, Estimate] = {}
    chosen = ""
    for problem in problems:
        if _of_ours(study) and problem.family in ("rope", "attention"):
            chosen = served(e, problem)
        for name in study.versions(problem.family):
            us = e.time(name, study.name, WARM, problem=problem)[problem]
            if us and right(e, study.name, problem, name):
                own[name] = us
    if not own:
        return None
    name = chosen or min(own, key=lambda each: own[each].value)
    return name, own.get(name)


def _of_ours(study: Study) -> bool:
    """Whether a study has versions beyond the log."""
    return any(VERSIONS[name].beyond and not VERSIONS[name].is_peer for name in study.taken if name in VERSIONS)


def _rows(e: Evidence, study: Study) -> list[Row]:
    """The shapes at which a study timed a version of ours and a library."""
    called: dict[Problem, list[Problem]] = {}
    for family in dict.fromkeys(version.family for version in PEERS):
        for problem in study.problems(family):
            called.setdefault(alike(problem)[-1], []).append(problem)
    rows = []
    for problem, names in called.items():
        others: dict[str, tuple[Estimate, bool]] = {}
        for each in names:
            for peer in study.versions(each.family, peers=True):
                us, before = e.time(peer, study.name, WARM, problem=each)[each], others.get(column(peer))
                if us and not (before and before[0].value < us.value):  # of two ways to call one, the faster
                    others[column(peer)] = us, right(e, study.name, each, peer)
        if others and (ours := _ours(e, study, names)):
            rows.append(Row(problem, *ours, others))
    return rows


def _part(row: Row) -> tuple[str, str, str]:
    what = "no embedding" if row.problem.family == "attention" else family_title(row.problem.family)
    return what, row.problem.dtype, row.ours


def matrix(e: Evidence, study: Study) -> tuple[str, list[Table]] | None:
    """How often ours is faster, and a table an embedding and dtype: a row a shape, our time and those of all libraries.
    """
    if not (found := sorted(_distinct(_rows(e, study)), key=_part)):
        return None
    first, what = ("ours", "The kernel that the op runs") if _of_ours(study) else (
        "of the documents", "The fastest kernel of the documents with a right result"
    )  # fmt: skip
    tables = [
        _matrix(f"{part}, {dtype}", list(rows), first)
        for (part, dtype), rows in itertools.groupby(found, key=lambda row: _part(row)[:2])
    ]
    counts: dict[str, list[Row]] = {}
    for row in found:
        counts.setdefault(_part(row)[0], []).append(row)
    told = "; ".join(f"{part}: {_outcome(several)}" for part, several in counts.items())
    told = f"{what} over the fastest of this table's libraries. {told}."
    old = {row.ours for row in found if what_changed(study, row.ours) == "code"}
    told += "".join(f" <b>{code(name)} is stale: its code has changed since.</b>" for name in sorted(old))
    return told, tables


def _matrix(title: str, found: Sequence[Row], first: str) -> Table:
    """A row a shape, in parts by our kernel, and a column a library."""
    columns = list(dict.fromkeys(name for row in found for name in row.others))
    rows: list[tuple[str, ...]] = []
    for ours, several in itertools.groupby(found, key=lambda row: row.ours):
        rows.append((link(ours),))
        rows += [(_shape(row.problem), *_first(row), *_cells(row, columns)) for row in several]
    header = (title, f"{first}, µs", "over the fastest library", *map(_breakable, columns))
    return Table(header, rows, header[1:])


def _distinct(rows: Sequence[Row]) -> list[Row]:
    """The rows without libraries that are others by another name."""
    same = {name for row in rows for name in row.others if _same(rows, name)}
    return [
        row._replace(others={name: each for name, each in row.others.items() if name not in same}) for row in rows
    ]


def _same(rows: Iterable[Row], name: str) -> bool:
    """Whether a library is another that chose it: PyTorch's by name, with times within 1 % in every row."""
    other = name.removesuffix(", efficient")
    pairs = [(row.others[name][0].value, row.others.get(other)) for row in rows if name in row.others]
    return other != name and all(each and abs(us / each[0].value - 1) <= SAME for us, each in pairs)


def _first(row: Row) -> tuple[str, str]:
    """Our time, and how fast it is over the fastest library, which is named."""
    ours = number(row.us.value, digits=1) if row.us else small("not in this study")
    name = _breakable(PAIR.sub(r"\1&nbsp;\2", row.best))
    return ours, lines(factor(row.over.value), small(name)) if row.over else NOTHING


def _shape(problem: Problem) -> str:
    return label(problem) + f", {problem.table} table" * (problem.table != "computed")


def _cells(row: Row, columns: Iterable[str]) -> list[str]:
    """The times of libraries: bold the fastest with a right result, marked those whose result is wrong."""
    cells = []
    for name in columns:
        us, fine = row.others.get(name, (None, True))
        text = number(us.value, digits=1) if us else NOTHING
        cells.append(f"<b>{text}</b>" if name == row.best else text if fine else lines(text, mark("wrong")))
    return cells


def _outcome(rows: Iterable[Row]) -> str:
    """How often ours is faster than the fastest library of a row, level, slower or not timed, and by how much."""
    rows = list(rows)
    ratios = [row.over for row in rows if row.over]
    sides = [each.side for each in ratios]
    won, level, lost = (sides.count(side) for side in (1, 0, -1))
    counts = f"faster at {won} of {len(rows)} shapes, level at {level}, slower at {lost}"
    counts += f", not in this study at {len(rows) - len(ratios)}" * (len(rows) > len(ratios))
    return counts + (f" ({span((each.value for each in ratios), '×', 2)} as fast)" if ratios else "")


def outcomes(e: Evidence) -> Table:
    """By embedding and dtype, how often the kernel that the op runs is faster than the fastest library of all studies,
    level, slower or not timed, and by how much."""
    parts: dict[tuple[str, str], dict[Problem, list[Estimate]]] = {}
    found = ((each, row) for each in complete(e) if _of_ours(each) for row in _rows(e, each))
    for study, row in found:
        what, dtype, _ = _part(row)
        over = None if what_changed(study, row.ours) == "code" else row.over
        parts.setdefault((what, dtype), {}).setdefault(row.problem, []).extend([over] if over else [])
    rows = []
    for (what, dtype), problems in parts.items():
        least = [min(several, key=lambda each: each.value) for several in problems.values() if several]
        sides = [each.side for each in least]
        counts = len(problems), sides.count(1), sides.count(0), sides.count(-1), len(problems) - len(least)
        rows.append((f"{what}, {dtype}", *map(str, counts), span((each.value for each in least), "×", 2)))
    header = ("shapes", "all", "faster", "level", "slower", "not timed", "over the fastest library")
    caption = (
        "The kernel that the op runs over the fastest library with a right result of all studies. Not timed: no study "
        "has a time of its code of today beside a library."
    )
    return Table(header, rows, header[1:], caption)


def matrices(e: Evidence) -> list[tuple[str, str, list[Table]]]:
    """Title, outcome and tables of each study that has libraries, first those of today's calls."""
    found = []
    for study in sorted(complete(e), key=lambda study: study.name not in FIRST):
        if made := matrix(e, study):
            found.append((f"{STUDIES[study.name].about} (study {study.name})", *made))
    return found
