"""Processes that measure or compile: several pieces of work in one, a fresh one for what is lost, compiling ahead."""

from __future__ import annotations

import multiprocessing
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

from analysis.measure import workers


def test_a_process_does_several_pieces_of_work_and_ends_when_there_is_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.signal, "signal", lambda *_: None)  # this is not a process of its own
    worker = object.__new__(workers.Worker)
    worker.pipe, theirs = multiprocessing.Pipe()
    worker.patience, worker.idle = 10.0, True

    def work(first: int, send: Any) -> None:
        send.send(("row", first))
        send.send(("row", first + 1))

    process = threading.Thread(target=workers._serve, args=(theirs, work))
    process.start()
    assert list(worker.do(1)) == [("row", 1), ("row", 2)] and worker.idle
    assert list(worker.do(5)) == [("row", 5), ("row", 6)]
    worker.pipe.close()
    process.join(timeout=10)
    assert not process.is_alive()


def test_a_process_that_has_ended_meanwhile_says_how() -> None:
    worker = object.__new__(workers.Worker)
    worker.pipe, theirs = multiprocessing.Pipe()
    worker.patience, worker.idle = 10.0, True
    worker.process = type("Process", (), {"join": lambda self: None, "exitcode": -9})()
    theirs.close()
    with pytest.raises(workers.MeasureError, match="died with exit code -9"):
        list(worker.do(1))
    assert not worker.idle, "it would be waited for instead of ended"


def test_a_silent_process_hangs_and_one_that_speaks_does_not() -> None:
    worker = object.__new__(workers.Worker)
    worker.pipe, theirs = multiprocessing.Pipe()
    worker.patience = 0.1
    theirs.send(("row", 1))
    answers = worker.do()
    assert next(answers) == ("row", 1)
    with pytest.raises(workers.Hang, match="sent nothing for 0 s"):
        next(answers)


def test_a_lasting_process_is_replaced_only_where_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Worker:
        def __init__(self, work: Any, patience: float) -> None:
            made.append(self)

        def do(self, todo: list[str], *arguments: int) -> Any:
            for place, item in enumerate(todo):
                yield "begun", place
                if item == "dies":
                    raise workers.MeasureError("died")
                if item == "spins":
                    raise workers.Hang("sent nothing")
                yield "row", (item, arguments)

        def close(self) -> None:
            pass

    monkeypatch.setattr(workers, "Worker", Worker)
    worker = workers.Lasting(lambda: None, 1.0)
    assert not made and list(worker.do([], 1)) == []
    worker.begin()
    assert list(worker.do(["a"], 1)) == [("row", ("a", (1,)))] and len(made) == 1
    assert list(worker.do(["b", "dies", "c"], 2)) == [
        ("row", ("b", (2,))), ("lost", ("dies", "error", "died")), ("row", ("c", (2,))),
    ]  # fmt: skip
    assert len(made) == 2 and list(worker.do(["d"], 3)) == [("row", ("d", (3,)))] and len(made) == 2
    assert list(worker.do(["spins"], 4)) == [("lost", ("spins", "hang", "sent nothing"))]


class Pool(ThreadPoolExecutor):
    """Threads in the place of processes."""

    def __init__(self, count: int, mp_context: Any) -> None:
        super().__init__(count)


@pytest.fixture
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(workers.os, "cpu_count", lambda: 2)


def test_what_is_compiled_first_is_waited_for_alone(two_at_a_time: None) -> None:
    done, gate = [], threading.Event()

    def build(job: str, target: str) -> None:
        if job.startswith("later"):
            assert gate.wait(10)
        if job == "first bad":
            raise RuntimeError("cannot be compiled")
        done.append((job, target))

    jobs = [
        ("first", "first 1"),
        ("first", "first bad"),
        ("first", "first 2"),
        ("later", "later 1"),
        ("later", "later 2"),
    ]
    compilers = workers.Compilers(build, jobs, "sm_90")
    compilers.wait("first")
    assert set(done) == {("first 1", "sm_90"), ("first 2", "sm_90")}
    compilers.wait("of no jobs")
    gate.set()
    compilers.wait("later")
    assert len(done) == 4
    compilers.close()


def test_nothing_compiles_while_it_is_paused(two_at_a_time: None) -> None:
    tickets, begun, ran = threading.Semaphore(0), threading.Semaphore(0), []
    inside, leave = threading.Event(), threading.Event()

    def build(job: int, target: str) -> None:
        begun.release()
        tickets.acquire()
        ran.append(job)

    def pause() -> None:
        with compilers.paused():
            inside.set()
            leave.wait()

    compilers = workers.Compilers(build, [("a", job) for job in range(9)], "sm_90")
    for _ in range(2):
        begun.acquire()
    pausing = threading.Thread(target=pause)
    pausing.start()
    while compilers._open:
        time.sleep(0.001)
    assert not inside.is_set()  # two run
    tickets.release(9)
    assert inside.wait(10) and sorted(ran) == [0, 1]
    assert not begun.acquire(timeout=0.05)
    leave.set()
    pausing.join()
    compilers.wait("a")
    assert sorted(ran) == list(range(9))
    compilers.close()


def test_where_compiling_breaks_down_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, count: int, mp_context: Any) -> None:
            self.submitted: list[Future[None]] = []

        def submit(self, *_: Any) -> Future[None]:
            if self.submitted:
                raise BrokenProcessPool("it was killed")
            self.submitted.append(Future())
            self.submitted[0].set_exception(BrokenProcessPool("it was killed"))
            return self.submitted[0]

        def shutdown(self, cancel_futures: bool) -> None:
            pass

    monkeypatch.setattr(workers, "ProcessPoolExecutor", Broken)
    compilers = workers.Compilers(lambda job, target: None, [("a", 1), ("a", 2), ("b", 3)], "sm_90")
    compilers.wait("a")
    compilers.wait("b")
    with compilers.paused():
        pass
    compilers.close()
