"""The recorded mutation check is of today's kernels, leaves little uncaught, and comes out again."""

from __future__ import annotations

import pytest

from analysis.measure.static.explained import EXPLAINED
from analysis.measure.static.mutants import Mutant, mutants
from analysis.measure.static.mutations import COUNT, judge
from analysis.records.current import is_current
from analysis.records.files import MUTATIONS, read_table

ROWS = read_table(MUTATIONS, "mutations").to_dict("records")
AGAIN = ROWS[:: len(ROWS) // 5][:5]
BY = ("status", "hazard", "value", "endless_loop", "error")


def mutant_of(row: dict) -> Mutant:
    columns = ("operator", "line", "original", "mutated")
    (found,) = [
        mutant
        for mutant in mutants(row["version"])
        if mutant.function == row["kernel"] and all(getattr(mutant, name) == row[name] for name in columns)
    ]
    return found


def test_the_recorded_mutants_are_of_todays_kernels() -> None:
    stale = {row["version"] for row in ROWS if not is_current(row["version"], row["source_hash"])}
    assert not stale, f"python -m analysis mutations brings these up to date: {stale}"
    assert len({mutant_of(row) for row in ROWS}) == len(ROWS) == COUNT == 100
    assert [row["mutant"] for row in ROWS] == list(range(1, COUNT + 1))


def test_at_least_95_of_100_are_caught_and_every_survivor_is_explained() -> None:
    survivors = [row for row in ROWS if row["outcome"] == "survived"]
    assert len(survivors) <= 5
    assert all(row["outcome"] == "caught" and row["by"] in BY for row in ROWS if row not in survivors)
    assert [row["reason"] for row in survivors] == [EXPLAINED[mutant_of(row).key] for row in survivors]


def test_every_explanation_is_of_a_mutant_that_there_is() -> None:
    assert not [key for key in EXPLAINED if key not in {mutant.key for mutant in mutants(key[0])}]


@pytest.mark.parametrize("row", AGAIN, ids=lambda row: f"{row['mutant']}-{row['version']}-{row['operator']}")
def test_recorded_mutants_have_the_same_outcome_again(row: dict) -> None:
    result = judge(mutant_of(row))
    assert result is not None
    by = row["by"] if row["outcome"] == "caught" else ""
    assert (result["outcome"], result["by"]) == (row["outcome"], by)
