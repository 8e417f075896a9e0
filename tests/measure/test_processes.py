"""Processes that measure: several pieces of work in one, a fresh one for what is lost; a broken pool of compilers."""

import multiprocessing
import os
import time
from typing import Any

import pytest

from analysis.measure import workers

FORK = multiprocessing.get_context("fork")  # which takes no seconds to begin


def squares(todo: list[Any], send: Any) -> None:
    """Sends its process and squares; what is no number hangs, kills the process or raises."""
    for place, item in enumerate(todo):
        send.send(("begun", place))
        if item == "hangs":
            time.sleep(60)
        if item == "dies":
            os._exit(9)
        send.send(("square", (os.getpid(), item * item)))


def test_process_lasts_and_is_replaced_only_where_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda method: FORK)
    worker = workers.Worker(patience=1.0)
    try:
        assert list(worker.do(squares, [])) == [] and worker.process is None
        first, second = (list(worker.do(squares, todo)) for todo in ([2, 3], [4]))
        assert [number for _, (_, number) in first + second] == [4, 9, 16]
        assert {pid for _, (pid, _) in first + second} == {worker.process.pid}
        found = list(worker.do(squares, [5, "dies", 6, "a", 7]))
        assert [kind for kind, _ in found] == ["square", "lost", "square", "lost", "square"]
        (_, (item, died)), (_, (other, raised)) = found[1], found[3]
        assert (item, str(died), other) == ("dies", "a measuring process died with exit code 9", "a")
        assert "can't multiply sequence" in str(raised) and not isinstance(raised, workers.Hang)
        [(_, (item, hang))] = list(worker.do(squares, ["hangs"]))
        assert item == "hangs" and isinstance(hang, workers.Hang) and "sent nothing for 1 s" in str(hang)
        worker.begin()
        worker.process.kill()  # by the host, while it waits
        worker.process.join()
        with pytest.raises(workers.MeasureError, match="died with exit code -9"):
            list(worker.do(squares, [1]))
    finally:
        worker.close()


def dies(job: int, target: str) -> None:
    os._exit(9)


def test_broken_compiler_process_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda method: FORK)
    with workers.compilers("sm_90") as compile_each:
        for jobs in ([1], [1, 2, 3]):
            compile_each(dies, jobs)


def test_process_that_compiles_ends_when_its_parent_is_killed() -> None:
    ours, theirs = FORK.Pipe(duplex=False)

    def compiler() -> None:
        workers._end_with_parent()
        theirs.send("begun")
        time.sleep(60)

    def parent() -> None:
        FORK.Process(target=compiler).start()
        time.sleep(60)

    process = FORK.Process(target=parent)
    process.start()
    theirs.close()
    assert ours.recv() == "begun"
    process.kill()
    process.join()
    assert ours.poll(10)
    with pytest.raises(EOFError):  # nobody holds the other end
        ours.recv()
