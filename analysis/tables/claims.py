"""Claims with their verdicts and tests."""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from kernels import VERSIONS

from ..claims import judge, rule
from ..claims.claim import EFFECT, HEAD_DIM, HEADLINE, WORDS, WRITE_UP, YES_OR_NO, Claim
from ..evidence import DECIDED, Evidence
from ..evidence.known import UNDECIDED
from ..record import published
from ..record.text import NOTHING
from ..studies import MATCHED, THEIR_CLOCK, THEIR_SMS
from .table import VERDICT_STYLE, Table, lines, mark, small, to, verdict_mark

LEDGER = "../chapters/claims.html"
FEW = 4  # numbers that a line names one by one
NO_TEST = "undecided"  # the kind of a claim that nothing recorded decides
OF_RATIOS = (rule.NO_DIFFERENCE, rule.A_DIFFERENCE, rule.OPPOSITE)  # outcomes of a ratio that is wrong
SHARES_AND_RATIOS = ("x", "%", "% of peak", *judge.SHARES)
TIES = ("0.97×", "1.03×")
HEADS = {MATCHED: "<a href='../glossary.html#term-matched-load'>matched load</a>"} | {
    name: f"<a href='../glossary.html#term-their-SMs'>their SMs</a>, {name.split(', ')[1]}"
    for name in (THEIR_SMS, THEIR_CLOCK)
}


def _given(e: Evidence) -> tuple[Counter[str], Counter[str]]:
    """The number of claims with each verdict, and of those that the write-up makes."""
    given = {id: tests[0]["verdict"] for id, tests in judge.recorded(e.record).items()}
    return Counter(given.values()), Counter(given[c.id] for c in judge.claims() if WRITE_UP in c.where)


def _found(word: str, count: int) -> str:
    """The numbers of claims by verdict, with links to them in the ledger."""
    return f"<a href='claims.html?verdict={word.replace(' ', '+')}'>{count}</a>"


def in_prose(e: Evidence) -> Table:
    """The same by the words that the chapters use."""
    rows = []
    for word in dict.fromkeys(rule.IN_PROSE.values()):
        mine = [verdict for verdict in rule.VERDICTS if rule.IN_PROSE[verdict] == word]
        all, own = (sum(map(found.__getitem__, mine)) for found in _given(e))
        if all:
            rows.append((mark(word, VERDICT_STYLE[mine[0]]), _found(word, all), str(own)))
    header = ("verdict", "claims", "the write-up's")
    return Table(header, rows, header[1:], source=DECIDED, title="Claims by verdict")


def summary(e: Evidence) -> Table:
    """The number of claims with each verdict, and of those that the write-up makes."""
    all, own = _given(e)
    rows = [
        (verdict_mark(word), _found(rule.told(word), all[word]), str(own[word]), rule.MEANS[word])
        for word in filter(all.__getitem__, rule.VERDICTS)
    ]
    header = ("verdict", "claims", "the write-up's", "means")
    title = "Claims by verdict, and what each verdict means"
    return Table(header, rows, header[1:3], id="verdicts", source=DECIDED, title=title)


def ledger(e: Evidence, letter: str) -> Table:
    """The claims of a group, each with its verdict, what decides it and, folded, its sources and tests; in attributes
    what the reader can pick a claim by: its documents, and the word of prose for its verdict."""
    rows, mine = [], [claim for claim in judge.claims() if claim.id.startswith(letter)]
    for claim in mine:
        tests, documents = judge.recorded(e.record)[claim.id], escape("|".join(claim.where), quote=True)
        place = f"<a id='{claim.id}' href='#{claim.id}' data-documents='{documents}'>{claim.id}</a>"
        about = lines(escape(claim.claim), conclusion(tests))
        word = f"<span data-status='{rule.IN_PROSE[tests[0]['verdict']]}'></span>"
        rows.append((place, about + _folded(tests, _about(claim, e)), word + verdict(tests)))
    header, title = ("claim", "what is claimed", "verdict"), f"Claims {mine[0].id} to {mine[-1].id}"
    return Table(header, rows, id=f"claims-{letter.lower()}", source=DECIDED, title=title)


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """The verdict of a claim; under it, where they differ, those of its parts and of the conditions that decide."""
    under: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["role"] == HEADLINE:
            under.setdefault(row["part"] or "", {})[row["condition"] or ""] = rule.told(row["given"])
    found = []
    for part, given in under.items():
        given = {condition: given[condition] for condition in judge.deciding(given)}
        if len(set(given.values())) == 1:
            given = {"": next(iter(given.values()))}
        for condition, word in given.items():
            found.append((", ".join(filter(None, (part, condition.removeprefix("their SMs, ")))), word))
    several = len({word for _, word in found}) > 1
    each = (small(f"{escape(where)}: {word}") for where, word in found if several)
    return lines(verdict_mark(rows[0]["verdict"]), *each)


def _about(claim: Claim, e: Evidence) -> Iterable[str]:
    """The source of a claim, the claims that it contradicts, and the published numbers that its tests name."""
    for document, places in claim.where.items():
        yield f"<b title='{escape(document, quote=True)}'>{WORDS[document]}</b> {escape(places)}"
    if claim.against:
        yield f"against {', '.join(map(to, claim.against))}"
    if rows := judge.named(e.record)[claim.id] - set(VERSIONS):
        yield f"printed: {', '.join(map(_printed, sorted(rows)))}"


def _printed(row: str) -> str:
    """A row of published.csv and its number; a pointer that rests on it shows where that is printed."""
    said = published.by_id()[row]
    where = escape(f"{said['source_document']}, {said['locator']}", quote=True)
    return f"<span title='{where}'>{row} ({said['value']:,.10g})</span>"


def conclusion(tests: Sequence[Mapping[str, Any]]) -> str:
    """A line about what decides a claim: the test that gives its verdict, of a claim with parts the first that does."""
    verdict = tests[0]["verdict"]
    parts: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in tests:
        if row["role"] == HEADLINE:
            parts.setdefault(row["part"] or "", {}).setdefault(row["condition"] or "", []).append(row)
    found = [_deciding(under) for under in parts.values()]
    if verdict == UNDECIDED:
        rows = next((rows for rows in found if rows[0]["given"] == UNDECIDED), found[0])
        why = next((row["reason"] for row in rows if row["reason"]), "its clocks or parts decide nothing together")
        why = why.split(";")[0]
        known = [] if rows[0]["measured"] is None else [f"{rows[0]['says']}: {_values(rows)}", _bounds(rows)]
        return f"<b>cannot tell</b> {escape('; '.join((*known, why))).replace('_', '_<wbr>')}"
    wanted: Iterable[Collection[str]] = (rule.FALLS, (rule.IN_PART,), (verdict,), rule.VERDICTS)
    rows = next(rows for words in wanted for rows in found if rows[0]["given"] in words)
    says, values = rows[0]["says"], _values(rows)
    if verdict == rule.ON_TIMER:
        under = next(iter(parts.values()))
        clocks = (f"{clock.split(', ')[1]} {_values(under[clock])}" for clock in (THEIR_SMS, THEIR_CLOCK))
        values = "; ".join(clocks)
    where = " at matched load" * (rows[0]["condition"] == MATCHED)
    of_all = _so(rows) if rows[0]["unit"] == YES_OR_NO else f"{values}; {_bounds(rows)}"
    return f"<b>found</b>{where} {escape(f'{says}: {of_all}').replace('_', '_<wbr>')}"


def _deciding(under: Mapping[str, list[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """The rows of a headline under the first condition that decides it: on their SMs, the GPU alone first."""
    return min((under[name] for name in judge.deciding(under)), key=lambda rows: rows[0]["given"] == UNDECIDED)


def _so(rows: Sequence[Mapping[str, Any]]) -> str:
    """At how many places of a headline something is as it says."""
    falls = sum(row["outcome"] in rule.FALLS for row in rows)
    return f"not at {falls} of {len(rows)} places" if falls else f"so at all {len(rows)} places"


def _against(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of a statement about all places those that refute it; all rows where none does, and of other statements."""
    falls = [row for row in rows if row["outcome"] in rule.FALLS]
    return falls if falls and rows[0]["kind"] in ("universal", "count") else [*rows]


def _values(rows: Sequence[Mapping[str, Any]]) -> str:
    """Values of a headline and their places: each of a few, else the least and the largest."""
    told = [row for row in _against(rows) if row["measured"] is not None]
    if all(map(_no_gap, told)):
        return " or ".join(dict.fromkeys(map(_value, told)))
    told = [row for row in told if not _no_gap(row)]
    few = f" at {len(told)} of {len(rows)} places" if len(told) < len(rows) else ""
    unit = told[0]["unit"] or ""
    values = list(map(_value, told))
    labels, hdims = zip(*map(_place, told))
    if len(values) > FEW:
        low, high = (_value(choose(told, key=lambda row: float(row["measured"]))) for choose in (min, max))
        return f"{_bare(low, unit)} to {high}{few}"
    if any(labels):
        groups = itertools.groupby(zip(labels, values), key=lambda pair: pair[0])
        return "; ".join(f"{label} {_listed([value for _, value in group], unit)}" for label, group in groups) + few
    if len(set(values)) == 1:
        return values[0] + few
    return f"{_listed(values, unit)} at {HEAD_DIM}{_listed(hdims)}"


def _listed(words: Sequence[str], unit: str = "") -> str:
    *first, last = words
    return " and ".join(filter(None, (", ".join(_bare(word, unit) for word in first), last)))


def _bare(value: str, unit: str) -> str:
    return value.removesuffix(unit).rstrip()


def _bounds(rows: Sequence[Mapping[str, Any]]) -> str:
    """Bounds that a headline asks of the places that are told; nothing where they are asked several things."""
    asked = list(dict.fromkeys(_rule(row) for row in _against(rows)))
    if all(each.startswith("printed ") for each in asked):
        return f"printed {', '.join(each.removeprefix('printed ') for each in asked)}"
    bounds = ", ".join(re.sub("^equals | to . digits?$", "", each) for each in asked)
    if not all(map(_ours, _against(rows))):
        return f"asked {bounds}"
    return f"asked {bounds}, {'3 % being a tie' if bounds.endswith(TIES) else 'a threshold of ours'}"


def _ours(row: Mapping[str, Any]) -> bool:
    """Whether no document states what a test asks: the bound of a ratio, or of a share."""
    stated = "published.csv" in (row["evidence"] or "") or row["unit"] not in SHARES_AND_RATIOS
    return not stated and _rule(row) != "at least 1×" and _rule(row).startswith(("at least", "at most", "between"))


def _no_gap(row: Mapping[str, Any]) -> bool:
    """Whether a test asks for the share of a gap, or of a gain, that is not there or may not be."""
    return row["unit"] in judge.SHARES and row["reason"] in (judge.NO_EFFECT, judge.EFFECT_OPEN)


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    """The label and the head dim of a place, each empty where it has none."""
    place = row["place"] or ""
    label, found, hdim = place.rpartition(HEAD_DIM)
    return (label.removesuffix(", "), hdim) if found else (place, "")


def _rule(row: Mapping[str, Any]) -> str:
    return str(row["rule"] or "").replace("published", "printed")


def _folded(tests: Sequence[Mapping[str, Any]], about: Iterable[str]) -> str:
    """Where a claim stands, and its tests: a table for each thing that is measured, its places against the conditions.

    The line that is shown counts the tests that decide.
    """
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in tests:
        groups.setdefault((row["part"] or "", row["role"], row["says"]), []).append(row)
    deciding: list[Mapping[str, Any]] = []
    for (_, role, _), rows in groups.items():
        decide = judge.deciding(dict.fromkeys(row["condition"] or "" for row in rows))
        deciding += [row for row in rows if role == HEADLINE and (row["condition"] or "") in decide]
    if all(row["kind"] == NO_TEST for row in deciding):
        return f"<details><summary>no test decides it</summary><p>{lines(*about)}</p></details>"
    outcomes = Counter(map(_counted, sorted(deciding, key=lambda row: rule.VERDICTS.index(row["outcome"]))))
    alone = "all " * (len(deciding) > 1) + next(iter(outcomes))
    counted = ", ".join(f"{count} {word}" for word, count in outcomes.items()) if len(outcomes) > 1 else alone
    summary = f"{len(deciding)} deciding test{'s' * (len(deciding) != 1)}: {counted}"
    found = "".join(_matrix(*key, rows) for key, rows in groups.items())
    return f"<details><summary>{summary}</summary><p>{lines(*about)}</p>{found}</details>"


def _counted(row: Mapping[str, Any]) -> str:
    """The outcome of a test; of a printed ratio, whether it is met or its direction alone is."""
    if _rule(row).startswith("printed") and row["outcome"] in (rule.REPRODUCED, rule.SAME_DIRECTION):
        return "within 10 %" if row["outcome"] == rule.REPRODUCED else "in its direction but not within 10 %"
    return _word(row["outcome"])


def _word(outcome: str) -> str:
    """The word of prose for the outcome of a test; of a ratio that is wrong with the finer one behind it."""
    return rule.told(outcome) if outcome in OF_RATIOS else rule.IN_PROSE[outcome]


def _matrix(part: str, role: str, says: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of the tests of one thing: a row for each place, a column for each condition."""
    conditions = list(dict.fromkeys(row["condition"] or "found" for row in rows))
    places: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        place = (*_place(row), _rule(row))
        places.setdefault(place, {})[row["condition"] or "found"] = _outcome(row)
    asks = small(" (is there a gap at all?)") if role == EFFECT else ""
    title = escape(": ".join(filter(None, (part, says)))) + asks
    named = ("where", HEAD_DIM.strip(), "asked")
    kept = [column for column in range(len(named)) if any(place[column] for place in places)]
    names = (*(escape(named[i]) for i in kept), *(HEADS.get(name, escape(name)) for name in conditions))
    head = "".join(f"<th scope='col'>{name}</th> " for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(place[column])}</td> ' for column in kept)}"
        + "".join(f"<td>{found.get(name, NOTHING)}</td> " for name in conditions)
        + "</tr>"
        for place, found in places.items()
    )
    table = f"<table class='tests'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    open = dict.fromkeys(f"{rule.IN_PROSE[row['outcome']]}: {row['reason']}" for row in rows if row["reason"])
    return f"<p>{title}</p><div class='evidence-scroll' tabindex='0'>{table}</div>{small(escape('; '.join(open)))}"


def _outcome(row: Mapping[str, Any]) -> str:
    """The value that a test found, and its outcome."""
    style = VERDICT_STYLE[row["outcome"]]
    return lines(escape(_value(row)), f"<b class='{style}'>{_word(row['outcome'])}</b>")


def _value(row: Mapping[str, Any]) -> str:
    """The value that a test found, with its unit; of a share of a gap no more than that it is not there or exceeded."""
    if _no_gap(row):
        return "no gap" if row["reason"] == judge.NO_EFFECT else "perhaps no gap"
    if row["unit"] in judge.SHARES and row["measured"] is not None and abs(row["measured"]) > 1:
        return "over 100 %" if row["measured"] > 0 else "below −100 %"
    return "" if row["measured"] is None else judge.shown(row["measured"], row["unit"] or "", row["low"] is None)


def verdicts(e: Evidence, chosen: Iterable[Claim]) -> Table:
    """Some claims with their verdicts, each with a link to its place in the ledger."""
    recorded = judge.recorded(e.record)
    rows = [(to(claim.id, LEDGER), escape(claim.claim), verdict(recorded[claim.id])) for claim in chosen]
    return Table(("claim", "what is claimed", "verdict"), rows)
