"""Which recorded rows are of the code as it stands, and which runs are complete: both are decided here alone."""

import functools
from collections.abc import Iterable

import pandas as pd

from kernels import VERSIONS
from kernels.runtime.identity import source_hash

from ..record.files import HASHES, Row, read_records


@functools.cache
def today(version: str) -> str:
    """The hash of a version's code as it stands, or an empty text if there is no such version."""
    return source_hash(VERSIONS[version]) if version in VERSIONS else ""


@functools.cache
def _later_hashes() -> dict[str, str]:
    return {row["old"]: row["new"] for row in read_records(HASHES, "hashes")}


def called_today(recorded: str) -> str:
    """A recorded hash, or what data/hashes.csv says it is called today: two rows of one are of the same code."""
    return _later_hashes().get(recorded, recorded)


def is_current(version: str, recorded: str) -> bool:
    """Whether a recorded hash is that of a version's code, as it is called today."""
    return called_today(recorded) == today(version)


def current(rows: Iterable[Row]) -> list[Row]:
    """The rows of today's code."""
    return [row for row in rows if is_current(row["version"], row["source_hash"])]


def outdated(frame: pd.DataFrame) -> pd.Series:
    """Whether each row of a table is of code that has changed since, or is gone."""
    changed = [not is_current(*pair) for pair in zip(frame["version"], frame["source_hash"], strict=True)]
    return pd.Series(changed, index=frame.index, dtype=bool)


def complete_runs(runs: pd.DataFrame) -> dict[str, Row]:
    """The latest complete run of every study that has one, by study."""
    chosen = runs[runs["complete"].astype(bool)]
    return {row["study"]: row for row in chosen.sort_values("run").to_dict("records")}
