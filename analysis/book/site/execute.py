"""Execute the chapters: papermill once a notebook, two at a time, each in a process of its own.

A kernel for each would spend most of the time importing: cells run in this process instead, in an IPython shell, and
processes are forked from one that has imported this module and so has read the card's tables.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
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

from ... import figures
from ...claims import judge
from ...evidence import Evidence
from ...models import profiles
from ...record.files import ROOT, DataError, gpu_folder
from .. import pages

ENGINE = "in_process"
AT_ONCE = 2
CARD = "FUSED_PE_CHAPTERS_OF"  # the card's folder, while its chapters run
PRELOADED = (__name__, figures.__name__, pages.__name__)


class BuildError(RuntimeError):
    """The book could not be built; the message says why."""


# ---------------------------------------------------------------- one notebook


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
    """Execute a notebook for a GPU and leave out what papermill adds. Raises: BuildError with the cell's error."""
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
        if "injected-parameters" in cell.metadata.get("tags", ()):
            cell.metadata["tags"].append("remove-cell")
    nbformat.write(executed, output)


# ---------------------------------------------------------------- all of them


def in_pool(gpu: str, log: Path, tasks: dict[str, Callable[[], Any]]) -> Iterator[str]:
    """Call each task and yield its name when it is done; what they print goes to a file.

    Raises: what the first that fails raises; the others are ended.
    """
    processes = get_context("forkserver")
    processes.set_forkserver_preload(list(PRELOADED))
    os.environ[CARD] = gpu
    with ProcessPoolExecutor(AT_ONCE, processes, _print_to, (str(log),), max_tasks_per_child=1) as pool:
        running: dict[Future, str] = {pool.submit(task): name for name, task in tasks.items()}
        try:
            for future in as_completed(running):
                future.result()
                yield running[future]
        except BaseException:
            for process in active_children():
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            del os.environ[CARD]


def _print_to(log: str) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())


def read(gpu: str) -> None:
    """Read what most chapters ask for; what is missing or damaged is for the chapter to say."""
    with contextlib.suppress(DataError, OSError):
        Evidence.load(gpu).record.read()
        judge.verdicts_of(gpu)
        profiles.launches(gpu_folder(gpu))


if card := os.environ.get(CARD):
    read(card)
    gc.freeze()  # no chapter looks through what all share for what it may free
