"""Execute the chapters, two at a time, in processes forked from this one.

A kernel for each would spend most of the time importing and reading: cells run in the forked process instead, in an
IPython shell, with what this process has imported and read of the card.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbformat import NotebookNode
from nbformat.v4 import new_output
from traitlets.config import Config

from ..errors import Failure
from . import citing
from .numbers import shown_in

AT_ONCE = 2
HIDDEN = "remove-cell"


class BuildError(Failure):
    """The book could not be built; the message says why."""


@contextlib.contextmanager
def shell() -> Iterator[InteractiveShell]:
    """A shell with no names yet; it takes the place of `__main__`, which processes that are started ask for."""
    quiet = Config()
    quiet.HistoryManager.enabled = False
    hook, main = sys.displayhook, sys.modules["__main__"]
    try:
        made = InteractiveShell.instance(config=quiet, colors="nocolor")
        made.reset(new_session=False)
        sys.displayhook = hook
        yield made
    finally:
        sys.displayhook, sys.modules["__main__"] = hook, main


def run(here: InteractiveShell, source: str) -> list[NotebookNode]:
    """The outputs of a cell. Raises: what the cell raises."""
    with capture_output() as captured:
        result = here.run_cell(source)
    result.raise_error()
    outputs = [new_output("display_data", each.data, metadata=each.metadata or {}) for each in captured.outputs]
    for name in ("stdout", "stderr"):
        if text := getattr(captured, name):
            outputs.append(new_output("stream", name=name, text=text))
    return outputs


def execute(notebook: Path, output: Path, gpu: str) -> None:
    """Execute a notebook for a GPU with what is recorded, and hide cells that show nothing."""
    executed = nbformat.read(notebook, as_version=4)
    with shell() as here, citing.page_with(shown_in(notebook), f"analysis/notebooks/{notebook.name}"):
        for count, cell in enumerate((each for each in executed.cells if each.cell_type == "code"), 1):
            try:
                cell.execution_count, cell.outputs = count, run(here, cell.source)
            except Exception as error:
                raise BuildError(f"{notebook.name}, cell {count}: {type(error).__name__}: {error}") from None
            tags = cell.metadata.get("tags", [])
            if "parameters" in tags:
                here.push({"gpu": gpu, "source": "recorded"})
            if not cell.outputs:
                cell.metadata.tags = [*tags, HIDDEN]
    nbformat.write(executed, output)


_tasks: dict[str, Callable[[], None]] = {}  # the processes that are forked have them


def side_by_side(tasks: Mapping[str, Callable[[], None]]) -> Iterator[str]:
    """Call each task in one of the forked processes and yield its name when it is done; one that fails ends all."""
    gc.freeze()  # no process looks through what all share for what it may free
    _tasks.update(tasks)
    with ProcessPoolExecutor(AT_ONCE, get_context("fork")) as pool:
        names = {pool.submit(_call, name): name for name in tasks}
        try:
            for done in as_completed(names):
                done.result()
                yield names[done]
        except BrokenExecutor:
            raise BuildError("a process that executes chapters was ended") from None
        finally:
            pool.shutdown(cancel_futures=True)


def _call(name: str) -> None:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        _tasks[name]()
