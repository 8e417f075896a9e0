"""What carries over from card to card: the verdicts of the documents' claims, and our findings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pandas as pd

from ...claims import judge, rule
from ...claims.rule import UNDECIDED
from ...records import files
from ...records.files import DataError
from ...records.known import NOT_MEASURED
from .. import findings
from ..findings import Finding
from .cards import Card

SAME, DIFFERS, OPEN = "same", "differs", "not decided on every card"


def carries(verdicts: Sequence[str]) -> str:
    """Whether cards agree on a claim: those that decide it may differ; else some may not decide it."""
    decided = {verdict for verdict in verdicts if verdict not in rule.OPEN}
    if len(decided) > 1:
        return DIFFERS
    return SAME if len({*verdicts}) == 1 else OPEN


def verdicts(cards: Sequence[Card]) -> pd.DataFrame:
    """A row for each claim and measured card: its verdict, and whether several cards agree on it.

    Raises: DataError.
    """
    measured = [card for card in cards if not card.is_published]
    given = {
        card.slug: {str(row["claim_id"]): str(row["verdict"]) for row in judge.verdicts_of(card.slug)}
        for card in measured
        if not card.is_empty
    }
    rows = []
    for claim in judge.claims():
        found = [given.get(card.slug, {}).get(claim.id, UNDECIDED) for card in measured]
        common = {"claim_id": claim.id, "claim": claim.claim, "carries": carries(found) if len(measured) > 1 else ""}
        rows += [
            {**common, "card": card.slug, "label": card.label, "verdict": verdict}
            for card, verdict in zip(measured, found, strict=True)
        ]
    return pd.DataFrame(rows, columns=["claim_id", "claim", "carries", "card", "label", "verdict"])


def counts(verdicts: pd.DataFrame) -> dict[str, int]:
    """How many claims are the same, differ, or are not decided on every card; nothing of a single card."""
    given = verdicts.drop_duplicates("claim_id")["carries"].to_list()
    return {} if "" in given else {words: given.count(words) for words in (SAME, DIFFERS, OPEN)}


def held(cards: Sequence[Card]) -> pd.DataFrame:
    """A row for each finding and measured card: how it comes out there, and its sentence on the reference record.

    Raises: DataError for a damaged file of the reference.
    """
    measured = [card for card in cards if not card.is_published]
    chapters = sorted(findings.NOTEBOOKS.glob("*.ipynb"))
    with mock.patch.object(files, "MEASURED", files.DATA / "measured"):  # also where another folder is read
        reference = {path: findings.evaluate(path, files.REFERENCE) for path in chapters}
    rows = []
    known = files.REFERENCE if files.MEASURED == files.DATA / "measured" else None
    for path, card in itertools.product(chapters, measured):
        evaluated = reference[path] if card.slug == known else _evaluate(path, card) if reference[path] else []
        found = {each.id: each for each in evaluated}
        for each in reference[path]:
            here = found.get(each.id)
            rows.append(
                {
                    "finding": each.id,
                    "chapter": path.stem,
                    "card": card.slug,
                    "label": card.label,
                    "outcome": here.outcome if here else NOT_MEASURED,
                    "text": here.text if here else "",
                    "reference": each.text,
                }
            )
    return pd.DataFrame(rows, columns=["finding", "chapter", "card", "label", "outcome", "text", "reference"])


def _evaluate(path: Path, card: Card) -> list[Finding]:
    """What a chapter finds on a card; nothing where what it begins with was not measured."""
    try:
        return findings.evaluate(path, card.slug)
    except DataError:
        return []
