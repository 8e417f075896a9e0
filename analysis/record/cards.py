"""The folder of a card under data/measured: one card a folder."""

import argparse
import math
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import files
from .files import DataError, read_json, write_json


def parser(command: str, about: str | None, new_run: str = "") -> argparse.ArgumentParser:
    """The options of every command that writes to a card's folder; `new_run`: what `--new-run` does, if it has it."""
    made = argparse.ArgumentParser(prog=f"python -m analysis {command}", description=(about or "").splitlines()[0])
    made.add_argument("--gpu", default="", metavar="SLUG", help="the folder of this card (default: by its name)")
    if new_run:
        made.add_argument("--new-run", action="store_true", help=new_run)
    return made


def like(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both are of one model under one power limit, with as many SMs; what is not known is like any."""
    pairs = [(one.get(name), other.get(name)) for name in ("name", "power_limit_w", "sms")]
    return all(not mine or not theirs or mine == theirs for mine, theirs in pairs)


def describe(path: Path, gpu: Mapping[str, Any], ceilings: Mapping[str, Any]) -> None:
    """Write a gpu.json of its folder: what the card is, and what was measured of it."""
    known = {name: gpu[name] for name in files.CARD if name in gpu}
    finite = {name: value for name, value in ceilings.items() if math.isfinite(value)}
    write_json(path, {**known, "uuid": gpu.get("uuid"), "slug": path.parent.name, "ceilings": finite})


def _claimed(folder: Path, gpu: Mapping[str, Any]) -> bool:
    """Make the folder this card's, unless it is one's already; of several that try at a time one succeeds."""
    path = folder / "gpu.json"
    if path.exists():
        return False
    mine = folder / f"gpu.{uuid.uuid4().hex}"  # nodes may share the folder, a name and a pid
    describe(mine, gpu, gpu.get("ceilings", {}))
    try:
        os.link(mine, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        os.replace(mine, path)
    finally:
        mine.unlink(missing_ok=True)
    return True


def folder_of(gpu: Mapping[str, Any], named: str = "") -> Path:
    """The folder of a card, which is made and made its own if it has none yet; `named` is its name where not empty.

    Its own name is the model's, and where another card or power limit has that, with the card's UUID. A folder that is
    named takes any card of the same model and power limit: each run says which card it ran on.

    Raises: DataError where `named` is no name of a folder, or the folder holds another model or power limit, or where a
    card without a UUID meets a folder that is taken.
    """
    if named and (Path(named).name != named or named.startswith(".")):
        raise DataError(f"--gpu is {named!r}; it names a folder under {files.MEASURED}")
    short = str(gpu.get("uuid") or "").partition("-")[2][:8].lower()
    for name in [named] if named else [gpu["slug"], *([f"{gpu['slug']}-{short}"] if short else [])]:
        folder = files.MEASURED / name
        if _claimed(folder, gpu):
            return folder
        holds = read_json(folder / "gpu.json")
        own = "uuid" in holds and holds["uuid"] == gpu.get("uuid")  # one of before UUIDs were kept is of another card
        if like(holds, gpu) and (own or named):
            return folder
    raise DataError(f"{folder} is of {words(holds)}, this card is {words(gpu)}: name its folder, --gpu SLUG")


def words(gpu: Mapping[str, Any]) -> str:
    limit = f" at {gpu['power_limit_w']} W" if gpu.get("power_limit_w") else ""
    sms = f", {gpu['sms']} SMs" if gpu.get("sms") else ""
    return f"{gpu.get('name') or 'a model that is not named'}{limit}, {gpu.get('uuid') or 'UUID unknown'}{sms}"
