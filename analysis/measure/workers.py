"""Processes that measure, one after the other, and processes that compile, several at a time, ahead of them."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from kernels.runtime.gpu import GpuError

from ..record.files import DataError
from .progress import tqdm

MAX_COMPILERS = 16
ENDS_IN = 10.0  # seconds that a process without work has to end by itself, its CUDA context too


class MeasureError(RuntimeError):
    """Measuring could not start or go on; what was measured before is on disk."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the sentence, and not where it was raised."""
        return [str(self)]


class Hang(MeasureError):
    """A measuring process has sent nothing for as long as its caller would wait."""


EXPECTED_FAILURES = (MeasureError, DataError, GpuError)


def _serve(pipe: Connection, usual: Callable[..., None]) -> None:
    """Body of a measuring process: wait for the arguments of its work, do it, send rows, and wait for the next."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # an orderly end, nothing left behind
    try:
        while True:
            other, arguments = pipe.recv()
            (other or usual)(*arguments, pipe)
            pipe.send(("done", None))
    except EOFError:
        pass  # the parent has no more work for this process
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
    """A fresh process that has loaded the modules of its work and touches the GPU only once it is told to begin.

    It does as many pieces of work as it is given, one after the other: what it has loaded and compiled stays.
    """

    def __init__(self, work: Callable[..., None], patience: float | None = None) -> None:
        self.patience = patience  # seconds without a message, from the start of the work on; None for any
        self.idle = True
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        with _children_ignore_interrupts():
            self.process.start()
        theirs.close()

    def do(self, *arguments: Any, work: Callable[..., None] | None = None) -> Iterator[tuple[str, Any]]:
        """Yield what its work, or that given here, sends of `work(*arguments, pipe)`.

        Raises: MeasureError if it fails or the process dies, Hang.
        """
        self.idle = False
        with contextlib.suppress(OSError):  # where it has ended since, `recv` says how
            self.pipe.send((work, arguments))
        while True:
            if not self.pipe.poll(self.patience):
                raise Hang(f"a measuring process has sent nothing for {self.patience:.0f} s")
            try:
                kind, content = self.pipe.recv()
            except (EOFError, ConnectionResetError):
                self.process.join()
                raise MeasureError(f"a measuring process died with exit code {self.process.exitcode}") from None
            if kind == "failed":
                raise MeasureError(content)
            if kind == "done":
                self.idle = True
                return
            yield kind, content

    def close(self) -> None:
        self.pipe.close()
        if self.idle:
            self.process.join(timeout=ENDS_IN)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(timeout=5)
            self.process.kill()
        self.process.join()


class Lasting:
    """A worker that is replaced by a fresh one where it hangs or dies: only what it was at then is lost.

    `work(todo, *arguments, pipe)` sends ("begun", place in todo) before it begins anything of `todo`.
    """

    def __init__(self, work: Callable[..., None], patience: float) -> None:
        self.work, self.patience = work, patience
        self.worker: Worker | None = None

    def begin(self) -> None:
        """Start the process ahead of its work, if none is there."""
        self.worker = self.worker or Worker(self.work, self.patience)

    def do(self, todo: Sequence[Any], *arguments: Any) -> Iterator[tuple[str, Any]]:
        """What the work sends. In the place of what is lost stands ("lost", (it, "hang" or "error", why)).

        Raises: MeasureError where not even one begins.
        """
        while todo:
            begun = None
            self.begin()
            assert self.worker is not None
            try:
                for kind, content in self.worker.do(todo, *arguments):
                    if kind == "begun":
                        begun = content
                    else:
                        yield kind, content
                return
            except MeasureError as error:
                self.close()
                if begun is None:
                    raise
                status = "hang" if isinstance(error, Hang) else "error"
                yield "lost", (todo[begun], status, str(error).splitlines()[0])
                todo = todo[begun + 1 :]

    def aside(self, work: Callable[..., None], *arguments: Any) -> Iterator[tuple[str, Any]]:
        """What other work sends, which the first step begins; a process that it costs is replaced, and no more said."""
        self.begin()
        assert self.worker is not None
        try:
            yield from self.worker.do(*arguments, work=work)
        except MeasureError:
            self.close()

    @property
    def pid(self) -> int | None:
        return self.worker.process.pid if self.worker else None

    def close(self) -> None:
        """End the process; the next work begins another."""
        if self.worker:
            self.worker.close()
        self.worker = None


def watched(work: Callable[..., None], todo: Sequence[Any], patience: float) -> Iterator[tuple[str, Any]]:
    """What `Lasting.do` yields of one piece of work. Raises: MeasureError where not even one begins."""
    if todo:
        with contextlib.closing(Lasting(work, patience)) as worker:
            yield from worker.do(todo)


class Compilers:
    """Processes that compile ahead, in the order given; `wait` for what is needed now.

    `jobs` are pairs of a name and what `build(job, target)` compiles. A job that fails, or a process that dies, ends
    nothing: whoever needs what was not compiled compiles it, and says what is wrong with it.
    """

    def __init__(self, build: Callable[[Any, str], None], jobs: Iterable[tuple[str, Any]], target: str) -> None:
        self._build, self._target, self._jobs = build, target, deque(jobs)
        self._left = Counter(name for name, _ in self._jobs)
        self._changed, self._running, self._open = threading.Condition(threading.RLock()), 0, True
        self._workers = max(1, min(os.cpu_count() or 1, MAX_COMPILERS, len(self._jobs)))
        self._pool = ProcessPoolExecutor(self._workers, mp_context=multiprocessing.get_context("spawn"))
        self._fill()

    def _fill(self) -> None:
        with self._changed:
            while self._open and self._jobs and self._running < self._workers:
                name, job = self._jobs.popleft()
                try:
                    with _children_ignore_interrupts():
                        future = self._pool.submit(self._build, job, self._target)
                except BrokenExecutor:
                    self._give_up()
                    break
                self._running += 1
                future.add_done_callback(functools.partial(self._ended, name))
            self._changed.notify_all()

    def _ended(self, name: str, future: Future[None]) -> None:
        with self._changed:
            self._running -= 1
            self._left[name] -= 1
            if not future.cancelled() and isinstance(future.exception(), BrokenExecutor):
                self._give_up()
            self._fill()

    def _give_up(self) -> None:
        self._left.clear()
        self._jobs.clear()

    def wait(self, name: str) -> None:
        """Return when all jobs of that name are done."""
        with self._changed:
            self._changed.wait_for(lambda: self._left[name] <= 0)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing compiles within: what runs is waited for, and what is left begins afterwards."""
        with self._changed:
            self._open = False
            self._changed.wait_for(lambda: self._running == 0)
        try:
            yield
        finally:
            with self._changed:
                self._open = True
                self._fill()

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._give_up()
        self._pool.shutdown(cancel_futures=True)


def compile_each(build: Callable[[Any, str], None], todo: Sequence[Any], target: str) -> None:
    """Fill the cache of compiled kernels by calls of `build` with what is to do and the target, several at a time."""
    workers = max(1, min(os.cpu_count() or 1, MAX_COMPILERS, len(todo)))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        with _children_ignore_interrupts():
            done = pool.map(build, todo, [target] * len(todo))
        list(tqdm(done, total=len(todo), desc="compile", unit="plan"))
