"""Claims with their verdicts and tests."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from kernels import VERSIONS

from ..claims import judge
from ..claims.claim import EFFECT, HEADLINE, WRITE_UP, Claim
from ..claims.rule import FALLS, IN_PROSE, MEANS, VERDICTS, told
from ..evidence import DECIDED, Evidence
from ..record import published
from ..record.text import NOTHING, number
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
    given = filter(all.__getitem__, VERDICTS)
    rows = [(verdict_mark(word), _found(told(word), all[word]), str(own[word]), MEANS[word]) for word in given]
    header = ("verdict", "claims", "the write-up's", "means")
    return Table(header, rows, header[1:3], source=DECIDED, title="Claims by verdict, and what each verdict means")


def ledger(e: Evidence, letter: str) -> Table:
    """The claims of a group, each with its verdict and, folded, its tests.

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
    """The verdict of a claim; under it those of its parts and conditions, where they differ."""
    heads = [row for row in rows if row["role"] == HEADLINE]
    under: dict[str, dict[str, None]] = {}
    for row in heads:
        where = ", ".join(filter(None, (row["part"], row["condition"])))
        under.setdefault(told(row["given"]), {})[where] = None
    each = (small(f"{word}: {escape('; '.join(places))}") for word, places in under.items() if len(under) > 1)
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


def _tests(tests: Sequence[Mapping[str, Any]]) -> str:
    """The tests of a claim, folded: a table for each thing that is measured, its places against the conditions."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in tests:
        groups.setdefault((row["part"] or "", row["role"], row["says"]), []).append(row)
    against = sum(row["outcome"] in FALLS for row in tests)
    summary = f"{len(tests)} test{'s' * (len(tests) != 1)}, {against or 'none'} against it"
    found = "".join(_matrix(*key, rows) for key, rows in groups.items())
    return f"<details><summary>{summary}</summary>{found}</details>"


def _matrix(part: str, role: str, says: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """What the tests of one thing found: a row for each place, a column for each condition."""
    conditions = list(dict.fromkeys(row["condition"] or "found" for row in rows))
    places: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        place = (row["place"] or "", (row["rule"] or "").replace("published", "printed"))
        places.setdefault(place, {})[row["condition"] or "found"] = _outcome(row)
    asks = small(" (is there a gap at all?)") if role == EFFECT else ""
    title = escape(": ".join(filter(None, (part, says)))) + asks
    head = "".join(f"<th scope='col'>{escape(name)}</th> " for name in ("where", "asked", *conditions))
    body = "".join(
        f"<tr><th scope='row'>{escape(place)}</th> <td>{escape(asked)}</td> "
        + "".join(f"<td>{found.get(name, NOTHING)}</td> " for name in conditions)
        + "</tr>"
        for (place, asked), found in places.items()
    )
    table = f"<table class='tests'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    open = dict.fromkeys(f"{IN_PROSE[row['outcome']]}: {row['reason']}" for row in rows if row["reason"])
    return f"<p>{title}</p><div class='evidence-scroll' tabindex='0'>{table}</div>{small(escape('; '.join(open)))}"


def _outcome(row: Mapping[str, Any]) -> str:
    """What a test found, and its outcome. A share of a gap has no unit: the title says of what."""
    unit = {"x": "×", "of the gap": "", "of the gain": ""}.get(row["unit"], row["unit"] or "")
    value = "" if row["measured"] is None else escape(number(row["measured"], unit))
    style = VERDICT_STYLE[row["outcome"]]
    return lines(value, f"<b class='{style}'>{IN_PROSE[row['outcome']]}</b>")


def verdicts(e: Evidence, chosen: Iterable[Claim]) -> Table:
    """Some claims with their verdicts, each with a link to its place in the ledger."""
    recorded = judge.recorded(e.record)
    rows = [(to(claim.id, LEDGER), escape(claim.claim), verdict(recorded[claim.id])) for claim in chosen]
    return Table(("claim", "what is claimed", "verdict"), rows)
