"""Processes that work on the GPU, each on one piece after the other, and processes that compile."""

import contextlib
import ctypes
import functools
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from tqdm import tqdm as _tqdm

from kernels.runtime.gpu import GpuError

from ..errors import Failure, MeasureError

CORES = len(os.sched_getaffinity(0))  # that this process may use
MAX_COMPILERS = 16
PATIENCE = 180.0  # seconds without a message: several times what PyTorch takes to tune the products of one problem
ENDS_IN = 5.0  # seconds that a process has to end by itself, its CUDA context too
Work = Callable[..., None]
Sent = Iterator[tuple[str, Any]]
# In a job's log or a notebook no state replaces the one before: there is one every 10 s.
tqdm = functools.partial(_tqdm, mininterval=0.1 if sys.stderr.isatty() else 10.0)


class Hang(MeasureError):
    """A measuring process has sent nothing for as long as its caller would wait."""


def _serve(pipe: Connection) -> None:
    """Body of a measuring process: wait for a piece of work and its arguments, do it, and wait for the next."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # an orderly end
    try:
        while True:
            work, arguments = pipe.recv()
            work(*arguments, pipe)
            pipe.send(("done", None))
    except (EOFError, BrokenPipeError):
        pass  # the parent has gone
    except (Failure, GpuError) as error:
        pipe.send(("failed", str(error)))
    except Exception as error:
        pipe.send(("failed", f"a measuring process failed: {error}\n{traceback.format_exc()}"))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending


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
    """A process of its own that is begun when it is first needed, and again after it is lost.

    It keeps what it has loaded and compiled from one piece of work to the next. A piece of work is a function; its last
    argument is the pipe by which it sends what it finds, in pairs of a kind and a content. What it sends as "begun", a
    place in what it has to do, is kept here, for those who lose the process there.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self.process: Any = None
        self.begun: int | None = None

    def begin(self) -> None:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
            with _children_ignore_interrupts():
                self.process.start()
            theirs.close()

    def ask(self, work: Work, *arguments: Any) -> Sent:
        """Begin a piece of work, and return what it sends; MeasureError, or Hang, where that ends with the process."""
        self.begin()
        self.begun = None
        with contextlib.suppress(OSError):  # where it has died since, `recv` says how
            self.pipe.send((work, arguments))
        return self._sent()

    def _sent(self) -> Sent:
        try:
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
                    return
                if kind == "begun":
                    self.begun = content
                else:
                    yield kind, content
        except MeasureError:
            self.close()
            raise

    def do(self, work: Work, todo: Sequence[Any], *arguments: Any) -> Sent:
        """Begin work on `todo`, which says ("begun", place) before each, and return what else it sends. Where the
        process is lost at one, another goes on behind it: in its place stands ("lost", (it, the error)).

        Raises, when that is asked for: MeasureError where not even one is begun.
        """
        return self._done(self.ask(work, todo, *arguments), work, todo, *arguments) if todo else iter(())

    def _done(self, sent: Sent, work: Work, todo: Sequence[Any], *arguments: Any) -> Sent:
        while True:
            try:
                yield from sent
                return
            except MeasureError as error:
                if self.begun is None:
                    raise
                lost, todo = todo[self.begun], todo[self.begun + 1 :]
                yield "lost", (lost, error)
            if not todo:
                return
            sent = self.ask(work, todo, *arguments)

    def close(self) -> None:
        """End the process; the next piece of work begins another."""
        if self.process is not None:
            self.process.terminate()
            self.process.join(ENDS_IN)
            self.process.kill()
            self.process.join()
            self.pipe.close()
        self.process = None


def answer(work: Work) -> Any:
    """The one thing that a piece of work sends from a process of its own."""
    with contextlib.closing(Worker()) as worker:
        [(_, content)] = worker.ask(work)
    return content


def _end_with_parent() -> None:
    """Have the kernel end this process when the one that began it is killed, which a pool's processes do not notice."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def compilers(target: str) -> Iterator[Callable[[Callable[[Any, str], None], Sequence[Any]], None]]:
    """A function that calls `build(job, target)` for all jobs, several at a time, to fill the cache of kernels.

    A job that fails ends nothing: whoever needs the kernel compiles it, and says what is wrong with it.
    """
    pool = ProcessPoolExecutor(min(CORES, MAX_COMPILERS), multiprocessing.get_context("spawn"), _end_with_parent)

    def compile_each(build: Callable[[Any, str], None], jobs: Sequence[Any]) -> None:
        with contextlib.suppress(BrokenExecutor), tqdm(total=len(jobs), desc="compile", unit="plan") as bar:
            with _children_ignore_interrupts():
                futures = [pool.submit(build, job, target) for job in jobs]
            for _ in as_completed(futures):
                bar.update()

    try:
        yield compile_each
    finally:
        pool.shutdown(cancel_futures=True)
