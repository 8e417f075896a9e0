"""One writing command at a time in a folder of measurements, by a lock that ends with the process, however it ends.

`flock` also holds between the nodes of a cluster that share the folder: by NFS 4, by NFS 3 with its lock daemon, or by
Lustre mounted with `flock`. Where the file system has no locks the command says so and goes on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from .files import APPENDED, DataError, read_records

LOCK = ".lock"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
PAUSE_S = 0.5


class Locked(DataError):
    """Another command writes to the folder; `holder` is its node, pid, start and command, as far as it said."""

    def __init__(self, folder: Path, holder: dict[str, str]) -> None:
        self.folder, self.holder = folder, holder
        who = "process {pid} on {node} since {since}: {command}".format(**holder) if holder else "another process"
        super().__init__(f"{folder} is being written to by {who}. --wait waits for its end")


def _holder(path: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):  # it has not said yet, or the disk took no more
        return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


def _introduce(file: int) -> None:
    """Write down who holds the lock, for those who find it taken."""
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    command = " ".join(["python -m analysis", *sys.argv[1:]])
    me = {"node": platform.node(), "pid": str(os.getpid()), "since": since, "command": command}
    with contextlib.suppress(OSError):  # a full disk: the lock holds without its words
        os.truncate(file, 0)
        os.pwrite(file, json.dumps(me).encode(), 0)


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold the folder, which is made if need be, and take off rows that a killed command left half written.

    Raises: Locked where another process holds it and this one does not `wait`; DataError where it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)  # no child inherits it
    except OSError as error:
        raise DataError(f"{folder} cannot be written to ({error.strerror})") from error
    try:
        _take(file, folder, wait)
        _introduce(file)
        take_off_torn_rows(folder)
        yield
        with contextlib.suppress(OSError):
            os.truncate(file, 0)
    finally:
        os.close(file)


def _take(file: int, folder: Path, wait: bool) -> None:
    said = False
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken = Locked(folder, _holder(folder / LOCK))
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise DataError(f"{folder / LOCK} cannot be locked ({error.strerror})") from error
            print(f"[data] {folder}: this file system has no locks; run one command at a time there", file=sys.stderr)
            return None
        if not wait:
            raise taken
        if not said:
            print(f"[data] waiting: {taken}", file=sys.stderr, flush=True)
            said = True
        time.sleep(PAUSE_S)


def take_off_torn_rows(folder: Path) -> None:
    """Cut a last line without an end off the tables that are appended to: its write was cut short by a kill.

    A line of a complete run stays, and is an error to those who read it: no kill does that.
    """
    for table in APPENDED:
        path = folder / f"{table}.csv"
        if not path.exists():
            continue
        with path.open("rb+") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            torn = content[whole:]
            if torn and not _of_a_complete_run(torn, table, folder):
                file.truncate(whole)  # measured again
                print(
                    f"[data] {path}: the last row was cut short, its {len(torn)} bytes are taken off", file=sys.stderr
                )


def _of_a_complete_run(torn: bytes, table: str, folder: Path) -> bool:
    name, comma, _ = torn.decode(errors="replace").partition(",")
    if table == "shapes" or not comma:
        return False
    rows = [row for row in read_records(folder / "runs.csv", "runs") if row["run"] == name]
    return bool(rows) and all(row["complete"] for row in rows)
