"""Execute the chapters: papermill once a notebook, two at a time, in processes forked from this one.

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
from typing import Any

import nbformat
import papermill
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbformat import NotebookNode
from nbformat.v4 import new_output
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from traitlets.config import Config

from ..errors import Failure
from ..record.files import ROOT

ENGINE = "in_process"
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
    """The outputs of a cell; the last is the error where there is one."""
    with capture_output() as captured:
        result = here.run_cell(source)
    outputs = [new_output("display_data", each.data, metadata=each.metadata or {}) for each in captured.outputs]
    for name in ("stdout", "stderr"):
        if text := getattr(captured, name):
            outputs.append(new_output("stream", name=name, text=text))
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        trace = here.InteractiveTB.stb2text(here.InteractiveTB.structured_traceback(type(error), error))
        outputs.append(new_output("error", ename=type(error).__name__, evalue=str(error), traceback=trace.split("\n")))
    return outputs


class InProcess(Engine):
    """Stops behind the first cell that fails; its error is among its outputs."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: NotebookExecutionManager, kernel_name: str, **options: Any) -> None:
        cells = [(index, cell) for index, cell in enumerate(nb_man.nb.cells) if cell.cell_type == "code"]
        with shell() as here:
            for count, (index, cell) in enumerate(cells, 1):
                nb_man.cell_start(cell, index)
                cell.execution_count, cell.outputs = count, run(here, cell.source)
                if any(output.output_type == "error" for output in cell.outputs):
                    nb_man.cell_exception(cell, index)
                    return
                nb_man.cell_complete(cell, index)


papermill_engines.register(ENGINE, InProcess)


def execute(notebook: Path, output: Path, gpu: str) -> None:
    """Execute a notebook for a GPU, leave out what papermill adds, and hide cells that show nothing.

    Raises: BuildError with the cell's error.
    """
    try:
        executed = papermill.execute_notebook(
            str(notebook), None, {"gpu": gpu, "source": "recorded"}, kernel_name="python3", progress_bar=False,
            cwd=str(ROOT), log_output=False, engine_name=ENGINE,
        )  # fmt: skip
    except papermill.PapermillExecutionError as error:
        raise BuildError(f"{notebook.name}, cell {error.exec_count}: {error.ename}: {error.evalue}") from None
    executed.metadata.pop("papermill", None)  # paths and times of this machine
    for cell in executed.cells:
        for added in ("papermill", "execution"):
            cell.metadata.pop(added, None)
        if cell.cell_type == "code" and not cell.outputs:
            cell.metadata.tags = [*cell.metadata.get("tags", ()), HIDDEN]
    nbformat.write(executed, output)


_tasks: dict[str, Callable[[], None]] = {}  # the processes that are forked have them


def side_by_side(tasks: Mapping[str, Callable[[], None]]) -> Iterator[str]:
    """Call each task in one of the forked processes and yield its name when it is done.

    Raises: BuildError with what the first that fails says; those that have not begun are left out.
    """
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
