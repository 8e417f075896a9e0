"""Compiled code on disk: one file per key, prefixed with its checksum.

A damaged file is removed and compiled anew. Where the folder cannot be read or written, nothing is cached and nothing
fails. Files are written under a temporary name and renamed, so that processes may share a folder.
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from .environment import cache_folder

FOLDER = cache_folder()
DIGEST_BYTES = 32


def load(key: str, suffix: str) -> bytes | None:
    """The cached content of a key; None where there is none or it cannot be read."""
    if FOLDER is None:
        return None
    path = _path(FOLDER, key, suffix)
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    digest, content = kept[:DIGEST_BYTES], kept[DIGEST_BYTES:]
    if hashlib.sha256(content).digest() == digest:
        return content
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def load_or_make(key: str, suffix: str, make: Callable[[], bytes]) -> bytes:
    """The cached content of a key; if there is none, what `make` returns, which is then cached."""
    content = load(key, suffix)
    if content is None:
        content = make()
        if FOLDER is not None:
            with contextlib.suppress(OSError):
                _store(_path(FOLDER, key, suffix), content)
    return content


def keeps() -> bool:
    """Whether the folder of the cache can be written."""
    if FOLDER is None:
        return False
    with contextlib.suppress(OSError):
        FOLDER.mkdir(parents=True, exist_ok=True)
    return os.access(FOLDER, os.W_OK | os.X_OK)


def _path(folder: Path, key: str, suffix: str) -> Path:
    return folder / key[:2] / f"{key}{suffix}"


def _store(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(hashlib.sha256(content).digest() + content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
