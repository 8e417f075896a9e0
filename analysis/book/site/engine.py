"""Papermill's engine for the chapters: their cells run in this process, which need no kernel of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbformat import NotebookNode
from nbformat.v4 import new_output
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from traitlets.config import Config

NAME = "in_process"


@contextmanager
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


papermill_engines.register(NAME, InProcess)
