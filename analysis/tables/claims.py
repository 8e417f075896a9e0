"""Claims with their verdicts and tests."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from kernels import VERSIONS

from ..claims import judge
from ..claims.claim import HEADLINE, WRITE_UP, Claim
from ..claims.rule import FALLS, IN_PROSE, MEANS, VERDICTS, told
from ..evidence import DECIDED, Evidence
from ..record import published
from ..record.text import number
from .table import VERDICT_STYLE, Table, lines, mark, small, to, verdict_mark

LEDGER = "../chapters/claims.html"


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
    for word in dict.fromkeys(IN_PROSE.values()):
        mine = [verdict for verdict in VERDICTS if IN_PROSE[verdict] == word]
        all, own = (sum(map(found.__getitem__, mine)) for found in _given(e))
        if all:
            rows.append((mark(word, VERDICT_STYLE[mine[0]]), _found(word, all), str(own)))
    header = ("verdict", "claims", "the write-up's")
    return Table(header, rows, header[1:], source=DECIDED, title="Claims by verdict")


def summary(e: Evidence) -> Table:
    """The number of claims with each verdict, and of those that the write-up makes."""
    all, own = _given(e)
    rows = [(verdict_mark(word), _found(told(word), all[word]), str(own[word]), MEANS[word]) for word in VERDICTS]
    header = ("verdict", "claims", "the write-up's", "means")
    return Table(header, rows, header[1:3], source=DECIDED, title="Claims by verdict, and what each verdict means")


def ledger(e: Evidence, letter: str) -> Table:
    """The claims of a group, each with its verdict, its tests that fail, and, folded, the others.

    Attributes hold what the reader can pick a claim by: its documents, and the word of prose for its verdict.
    """
    rows = []
    for claim in judge.claims():
        if claim.id.startswith(letter):
            tests, documents = judge.recorded(e.record)[claim.id], escape("|".join(claim.where), quote=True)
            place = f"<a id='{claim.id}' href='#{claim.id}' data-documents='{documents}'>{claim.id}</a>"
            about = lines(escape(claim.claim), *map(small, _about(claim, e)))
            word = f"<span data-status='{IN_PROSE[tests[0]['verdict']]}'></span>"
            rows.append((place, about + _tests(tests), word + verdict(tests)))
    return Table(("claim", "what is claimed", "verdict"), rows, source=DECIDED)


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """The verdict of a claim; under it those of its parts and conditions, where there are several."""
    heads = [row for row in rows if row["role"] == HEADLINE]
    under = {", ".join(filter(None, (row["part"], row["condition"]))): row["given"] for row in heads}
    each = (small(f"{escape(where)}: {told(given)}") for where, given in under.items() if len(under) > 1)
    return lines(verdict_mark(rows[0]["verdict"]), *each)


def _about(claim: Claim, e: Evidence) -> Iterable[str]:
    """The source of a claim, the claims that it contradicts, and the published numbers that its tests name."""
    yield "; ".join(f"{escape(document)}: {escape(places)}" for document, places in claim.where.items())
    if claim.against:
        yield f"against {', '.join(map(to, claim.against))}"
    if rows := judge.named(e.record)[claim.id] - set(VERSIONS):
        yield f"printed: {', '.join(map(_printed, sorted(rows)))}"


def _printed(row: str) -> str:
    """A row of published.csv and its number; a pointer that rests on it shows where that is printed."""
    said = published.by_id()[row]
    where = escape(f"{said['source_document']}, {said['locator']}", quote=True)
    return f"<span title='{where}'>{row} ({said['value']:,.10g})</span>"


def _tests(tests: Iterable[Mapping[str, Any]]) -> str:
    """The tests that fail, and folded, those that do not; problems with the same test are one line."""
    groups: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for row in tests:
        role = ", ".join(filter(None, (row["role"], row["part"], row["condition"])))
        groups.setdefault((role, row["says"], row["reason"] or row["rule"] or "", row["outcome"]), []).append(row)
    fails = [_line(*key, rows) for key, rows in groups.items() if key[-1] in FALLS]
    rest = [_line(*key, rows) for key, rows in groups.items() if key[-1] not in FALLS]
    shown = f"<ul class='fails'>{''.join(fails)}</ul>" if fails else ""
    folded = f"{len(rest)} {'other ' if fails else ''}test{'s' * (len(rest) != 1)}"
    return shown + (f"<details><summary>{folded}</summary><ul>{''.join(rest)}</ul></details>" if rest else "")


def _line(role: str, says: str, rule: str, outcome: str, rows: Sequence[Mapping[str, Any]]) -> str:
    values = [number(row["measured"], row["unit"] or "") for row in rows if row["measured"] is not None]
    places = ", ".join(row["place"] for row in rows if row["place"])
    asked = small(escape("; ".join(filter(None, (role, rule, places)))))
    return f"<li>{escape(says)}: {escape(', '.join(dict.fromkeys(values)))} <b>{told(outcome)}</b> {asked}</li>"


def verdicts(e: Evidence, chosen: Iterable[Claim]) -> Table:
    """Some claims with their verdicts, each with a link to its place in the ledger."""
    recorded = judge.recorded(e.record)
    rows = [(to(claim.id, LEDGER), escape(claim.claim), verdict(recorded[claim.id])) for claim in chosen]
    return Table(("claim", "what is claimed", "verdict"), rows)
