"""Run folders: data/measured/<gpu>/<run>/ holds what one start on one card measured.

`run.json` says on which node, card, driver and software, of which commit, and what became of each study. The other
files are tables, gzipped once the run is complete. A run that is not complete is gone on with on the same card, by the
process that holds its lock; nothing else is ever written to a folder that is there. To put runs of several nodes
together is to copy their folders; to drop a run is to delete its folder.
"""

import fcntl
import gzip
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from kernels import VERSIONS
from kernels.version import PROBLEM_COLUMNS

from . import cards, files
from .columns import SCHEMAS
from .files import DataError, Row, append, read_json, read_rows, replace_file, write_json

ABOUT = "run.json"
OF_STUDY = ("finished_at", "complete", "seconds", "throttle", "other_processes", "repeated")
_COLUMNS = [column for column in SCHEMAS["runs"] if column.name not in (*OF_STUDY, "run", "study")]
OF_RUN = tuple(column.name for column in _COLUMNS)
NEEDED = tuple(column.name for column in _COLUMNS if not column.optional)
# Tables that hold one state of a card: what a later run has of a key takes the place of what earlier ones have.
STATES = {"counters": ["version", *PROBLEM_COLUMNS], "sanitizers": ["version"]}
TABLES = ("runs", "checks", "timings", "op", "op_problems", "shapes", *STATES)
LOCK = ".lock"


def folders(card: Path, joining: Mapping[str, Any] | None = None) -> list[Path]:
    """The run folders of a card, from the first to the last start; of a run and its copies, the one that came furthest.

    Raises: DataError where a run is not of the model, power limit and SMs that gpu.json and the runs before it say, or
    the card that is `joining` them is not; where a run.json is damaged, or lies a folder too deep.
    """
    for path in card.glob(f"*/*/{ABOUT}"):
        raise DataError(f"{path.parent} is a run inside of {path.parent.parent.name}: move it to {card}")
    known: Mapping[str, Any] = read_json(card / "gpu.json") if (card / "gpu.json").exists() else {}
    found: dict[Any, tuple[Path, int]] = {}
    for folder in sorted(path.parent for path in card.glob(f"*/{ABOUT}")):
        said = about(folder)
        if not cards.like(known, said):
            raise DataError(
                f"{folder} is of {cards.words(said)}; gpu.json and other runs there are of {cards.words(known)}: "
                f"move it to the folder of its card, or restore {card / 'gpu.json'} if that was copied over"
            )
        known = {**said, **{name: value for name, value in known.items() if value}}
        done = sum(bool(study.get("complete")) for study in said["studies"].values())
        run = said.get("run") or (folder / ABOUT).read_bytes()  # those of before it was kept differ
        if run not in found or found[run][1] < done:
            found[run] = folder, done
    if joining and not cards.like(known, joining):
        raise DataError(f"{card} has runs of {cards.words(known)}, this card is {cards.words(joining)}: --gpu SLUG")
    return sorted(folder for folder, _ in found.values())


def summary(card: Path) -> str:
    """How many runs a folder has, on how many cards, and from when to when: `"3 runs on 2 cards (by UUID), ..."`."""
    found = [about(folder) for folder in folders(card)]
    uuids, copies = {said.get("uuid") for said in found}, len(list(card.glob(f"*/{ABOUT}"))) - len(found)
    parts = [f"{len(found)} runs on {len(uuids - {None})} cards (by UUID)"]
    parts += ["some on cards without one"] * (None in uuids)
    days = sorted(str(said.get("started_at"))[:10] for said in found)
    parts += [f"{days[0]} to {days[-1]}"] * bool(days) + [f"{copies} copies of runs are not counted"] * bool(copies)
    return ", ".join(parts)


def about(folder: Path) -> dict[str, Any]:
    """The run.json of a folder: fields of OF_RUN, `complete`, and in `studies` those of OF_STUDY by study."""
    found = read_json(folder / ABOUT, ("studies", "complete"))
    if not isinstance(found["studies"], dict) or not all(isinstance(each, dict) for each in found["studies"].values()):
        raise DataError(f"{folder / ABOUT}: studies are to be fields by the name of a study")
    return read_json(folder / ABOUT, NEEDED) if found["studies"] else found


def read(folder: Path, table: str) -> list[Row]:
    """The rows of one run, of runs a row a study, None where a cell is empty."""
    said, paths = about(folder), [folder / f"{table}.csv.gz", folder / f"{table}.csv"]
    if table == "runs":
        studies = ({**said, **values, "study": study} for study, values in said["studies"].items())
        found = [{column.name: row.get(column.name) for column in SCHEMAS["runs"]} for row in studies]
    else:
        path = next(filter(Path.exists, paths), None)
        found = read_rows(path, table, of_run=True, torn=not said["complete"]) if path else []
    return [{**row, "run": folder.name} for row in found]


def records(gpu: str | Path, table: str) -> list[Row]:
    """All rows of a table of a card, by its slug or folder, from the first run to the last; None where a cell is empty.

    Of a table that holds one state of the card (`STATES`), that state, in the order in which its versions came.
    """
    card = gpu if isinstance(gpu, Path) else files.gpu_folder(gpu)
    found = [row for folder in folders(card) for row in read(folder, table)]
    if table not in STATES:
        return found
    key = operator.itemgetter(*STATES[table])
    latest = {key(row): row["run"] for row in found}
    place = {name: number for number, name in enumerate(VERSIONS)}
    standing = (row for row in found if row["run"] == latest[key(row)])
    return sorted(standing, key=lambda row: place.get(row["version"], len(place)))


def rows(gpu: str | Path, table: str) -> pd.DataFrame:
    """`records` as a frame."""
    return pd.DataFrame(records(gpu, table), columns=[column.name for column in SCHEMAS[table]])


class Run:
    """A run folder that this process writes to, alone until it closes it or dies."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder, self._lock = folder, lock
        self.about: dict[str, Any] = {"complete": False, "studies": {}}

    @property
    def id(self) -> str:
        return self.folder.name

    @classmethod
    def begin(cls, card: Path, machine: Mapping[str, Any], started_at: str) -> "Run":
        """Make a folder that is named by the start, or by the first second after it that is free, and by the card.

        So runs that cards of one host begin in the same second can be put together.
        """
        start, own = datetime.fromisoformat(started_at), str(machine.get("uuid") or "").split("-")[1:2]
        while True:
            folder = card / "-".join([start.strftime("%Y%m%dT%H%M%SZ"), *own])
            try:
                folder.mkdir(parents=True)
                break
            except FileExistsError:
                start += timedelta(seconds=1)
            except OSError as error:
                raise DataError(f"{folder} cannot be made ({error.strerror})") from error
        lock = _hold(folder)
        assert lock is not None, "it has no run.json yet, by which others find it"
        run = cls(folder, lock)
        said = {name: machine.get(name) for name in OF_RUN}
        run.about = {"run": run.id, **said, "started_at": started_at, **run.about}
        run.save()
        return run

    @classmethod
    def resume(cls, folder: Path) -> "Run | None":
        """Go on with a run that is not complete; None where another process does."""
        lock = _hold(folder)
        if lock is None:
            return None
        run = cls(folder, lock)
        run.about = about(folder)
        if run.about["complete"]:
            run.close()
            return None
        for path in folder.glob("*.tmp"):  # of a writer that was killed
            path.unlink()
        for path in folder.glob("*.csv"):
            content = path.read_bytes()
            os.truncate(path, content.rfind(b"\n") + 1)  # a kill cuts the last row short
        return run

    def study(self, name: str) -> Row:
        """The outcome of a study, to be changed and saved."""
        fresh = {"finished_at": None, "complete": False, "seconds": 0.0, "throttle": "none"}
        return self.about["studies"].setdefault(name, fresh)

    def append(self, table: str, rows: Sequence[Row]) -> None:
        """Append rows, on disk when this returns."""
        append(self.folder / f"{table}.csv", table, rows)

    def settle(self, study: str, complete: bool, **values: Any) -> None:
        """Save what became of a study."""
        finished = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if complete else None
        self.study(study).update(values, complete=complete, finished_at=finished)
        self.save()

    def save(self) -> None:
        """Write what became of the studies; with all of them complete, zip the tables and let go of the run."""
        studies = self.about["studies"].values()
        self.about["complete"] = bool(studies) and all(study["complete"] for study in studies)
        write_json(self.folder / ABOUT, self.about)
        if not self.about["complete"]:
            return
        for path in sorted(self.folder.glob("*.csv")):
            zipped = gzip.compress(path.read_bytes(), mtime=0)  # no time: the same rows, the same bytes
            replace_file(path.with_name(f"{path.name}.gz"), zipped)
            path.unlink()
        (self.folder / LOCK).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def _hold(folder: Path) -> int | None:
    """Take the lock of a folder, which ends with the process, however it ends; None where another process has it."""
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)  # no child inherits it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except OSError:
        pass  # a file system without locks: run one command at a time there
    return file


def unfinished(card: Path) -> Iterator[Path]:
    """Folders of runs that are not complete, the latest first."""
    return (folder for folder in reversed(folders(card)) if not about(folder)["complete"])
