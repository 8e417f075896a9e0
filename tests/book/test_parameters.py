"""Parameters of notebooks: what papermill and a reader set is understood, or refused in one line."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.utils.capture import capture_output
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from analysis.book.build import NOTEBOOKS
from analysis.book.execute import shell
from analysis.errors import Failure
from analysis.record.files import REFERENCE, ROOT, DataError

SETUP = load_notebook_node(str(NOTEBOOKS / "setup.ipynb"))


def given(notebook: Any, **parameters: Any) -> Any:
    """The notebook that papermill runs for parameters; without any, the one that it is given."""
    return parameterize_notebook(copy.deepcopy(notebook), parameters) if parameters else notebook


def run(notebook: Any) -> tuple[str, BaseException | None]:
    """The card that a notebook loads, and how it fails, of its cells up to `load`."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    first = next(place for place, source in enumerate(sources) if "load(" in source)
    with shell() as here, capture_output():
        for source in [*sources[:first], sources[first].partition("\n")[0]]:
            done = here.run_cell(source, store_history=True)
        return getattr(here.user_ns.get("e"), "slug", ""), done.error_in_exec


@pytest.mark.parametrize(
    ("notebook", "says"),
    [
        (given(SETUP, gpu=90), "no GPU called 90 has been measured"),
        (given(SETUP, gpu=90), "-r gpu NAME"),
        (given(SETUP, gpu=None), "no GPU called None has been measured"),
        (given(SETUP, source="Live"), "source is 'Live'; allowed: recorded, live"),
        (given(SETUP, source=1), "source is 1; allowed: recorded, live"),
    ],
)
def test_a_parameter_that_is_not_understood_is_refused(notebook: Any, says: str) -> None:
    _, failed = run(notebook)
    assert isinstance(failed, DataError) and isinstance(failed, Failure) and says in str(failed)
    assert "\n" not in str(failed)


@pytest.mark.parametrize(
    ("notebook", "shown"),
    [
        (SETUP, REFERENCE),
        (given(SETUP, gpu="nvidia-h200"), "nvidia-h200"),
        (given(given(SETUP, gpu="nvidia-h200")), "nvidia-h200"),  # an executed notebook, run again
        (given(given(SETUP, gpu="nvidia-h200"), source="recorded"), REFERENCE),
    ],
)
def test_parameters_of_papermill_choose_the_card(notebook: Any, shown: str) -> None:
    card, failed = run(notebook)
    assert failed is None and card == shown


@pytest.mark.parametrize("folder", [pytest.param(ROOT, marks=pytest.mark.deep), NOTEBOOKS])
def test_a_notebook_finds_its_packages_although_python_does_not_look_in_its_folder(folder: Path) -> None:
    first = next(cell.source for cell in SETUP.cells if cell.cell_type == "code")
    here = {**os.environ, "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-c", first], cwd=folder, env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_that_is_run_elsewhere_says_where_to(path: Path, tmp_path: Path) -> None:
    first = next(
        cell.source
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code" and "sys" in cell.source
    )
    done = subprocess.run([sys.executable, "-c", first], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.endswith(
        "AssertionError: to be run in the root of the repository or in analysis/notebooks (papermill: --cwd)\n"
    )
