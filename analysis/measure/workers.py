"""Processes that measure, one after the other, and processes that compile, several at a time."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from kernels.runtime.gpu import GpuError

from ..records.files import DataError
from .progress import tqdm

MAX_COMPILERS = 16


class MeasureError(RuntimeError):
    """Measuring could not start or go on; what was measured before is on disk."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the sentence, and not where it was raised."""
        return [str(self)]


class Hang(MeasureError):
    """A measuring process has sent nothing for as long as its caller would wait."""


EXPECTED_FAILURES = (MeasureError, DataError, GpuError)


def _serve(pipe: Connection, work: Callable[..., None]) -> None:
    """Body of a measuring process: wait for the arguments of the work, do it, send rows."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # an orderly end, nothing left behind
    try:
        work(*pipe.recv(), pipe)
        pipe.send(("done", None))
    except EOFError:
        pass  # the parent had no work for this process
    except EXPECTED_FAILURES as error:
        pipe.send(("failed", str(error)))
    except Exception as error:
        pipe.send(("failed", f"a measuring process failed: {error}\n{traceback.format_exc()}"))


@contextlib.contextmanager
def _children_ignore_interrupts() -> Iterator[None]:
    """Ctrl-C reaches every process of the terminal; only the parent decides, and ends its children."""
    resource_tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which children inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Worker:
    """A fresh process that has loaded the modules of its work and touches the GPU only once it is told to begin."""

    def __init__(self, work: Callable[..., None], patience: float | None = None) -> None:
        self.patience = patience  # seconds without a message, from the start of the work on; None for any
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        with _children_ignore_interrupts():
            self.process.start()
        theirs.close()

    def do(self, *arguments: Any) -> Iterator[tuple[str, Any]]:
        """Yield what `work(*arguments, pipe)` sends. Raises: MeasureError if it fails or the process dies, Hang."""
        self.pipe.send(arguments)
        while True:
            if not self.pipe.poll(self.patience):
                raise Hang(f"a measuring process has sent nothing for {self.patience:.0f} s")
            try:
                kind, content = self.pipe.recv()
            except EOFError:
                self.process.join()
                raise MeasureError(f"a measuring process died with exit code {self.process.exitcode}") from None
            if kind == "failed":
                raise MeasureError(content)
            if kind == "done":
                self.process.join()
                return
            yield kind, content

    def close(self) -> None:
        self.pipe.close()
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(timeout=5)
            self.process.kill()
        self.process.join()


def watched(work: Callable[..., None], todo: Sequence[Any], patience: float) -> Iterator[tuple[str, Any]]:
    """What `work(todo, pipe)` sends, which says ("begun", place in todo) before each.

    Where one hangs or ends the process, ("lost", (it, "hang" or "error", why)) takes the place of what it would have
    sent, and a fresh process goes on behind it. Raises: MeasureError where not even one begins.
    """
    while todo:
        begun = None
        with contextlib.closing(Worker(work, patience)) as worker:
            try:
                for kind, content in worker.do(todo):
                    if kind == "begun":
                        begun = content
                    else:
                        yield kind, content
                return
            except MeasureError as error:
                if begun is None:
                    raise
                status = "hang" if isinstance(error, Hang) else "error"
                yield "lost", (todo[begun], status, str(error).splitlines()[0])
                todo = todo[begun + 1 :]


def compile_each(build: Callable[[Any, str], None], todo: Sequence[Any], target: str) -> None:
    """Fill the cache of compiled kernels by calls of `build` with what is to do and the target, several at a time."""
    workers = max(1, min(os.cpu_count() or 1, MAX_COMPILERS, len(todo)))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        with _children_ignore_interrupts():
            done = pool.map(build, todo, [target] * len(todo))
        list(tqdm(done, total=len(todo), desc="compile", unit="plan"))
