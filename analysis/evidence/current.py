"""Which recorded rows are of the code as it stands and of its assembler."""

import functools
from collections.abc import Iterable

import pandas as pd

from kernels import VERSIONS
from kernels.runtime.compile import NVJITLINK, PTXAS
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


def assembler(version: str) -> str:
    """The assembler of the kernels of a version: ptxas of the log, nvJitLink beyond it; none of a peer.

    Of the kernels beyond the log, those with setmaxnreg go through ptxas in any case.
    """
    known = VERSIONS.get(version)
    return "" if known is None or known.is_peer else NVJITLINK if known.beyond else PTXAS


def assembled_by(version: str, recorded: object) -> str:
    """The assembler of a recorded row: rows from before the column existed were made by nvJitLink."""
    return recorded if isinstance(recorded, str) and recorded else assembler(version) and NVJITLINK


def identity(version: str) -> Row:
    """The columns that tell which code a row is of, and what assembled it."""
    return {"source_hash": today(version), "assembler": assembler(version)}


def is_current(version: str, recorded: str, made_by: object = None) -> bool:
    """Whether a recorded hash is that of a version's code, as it is called today, and its assembler today's."""
    return called_today(recorded) == today(version) and assembled_by(version, made_by) == assembler(version)


def current(rows: Iterable[Row]) -> list[Row]:
    """The rows of today's code; of a table without assemblers, whatever made them."""
    return [
        row for row in rows
        if is_current(row["version"], row["source_hash"], row.get("assembler", assembler(row["version"])))
    ]  # fmt: skip


def outdated(frame: pd.DataFrame) -> pd.Series:
    """Whether each row of a table is of code, or from an assembler, that has changed since, or of a version gone."""
    made_by = frame["assembler"] if "assembler" in frame else frame["version"].map(assembler)
    rows = zip(frame["version"], frame["source_hash"], made_by, strict=True)
    return pd.Series([not is_current(*row) for row in rows], index=frame.index, dtype=bool)
