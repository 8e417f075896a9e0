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
OTHER = 'gpu = "nvidia-h200"\nsource = "recorded"'


def given(notebook: Any, **parameters: Any) -> Any:
    """The notebook that papermill runs for parameters; without any, the one that it is given."""
    return parameterize_notebook(copy.deepcopy(notebook), parameters) if parameters else notebook


def edited(notebook: Any, source: str) -> Any:
    """A notebook whose cell of parameters a reader has written anew."""
    notebook = copy.deepcopy(notebook)
    [cell] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    cell.source = source
    return notebook


def run(notebook: Any) -> tuple[str, str, BaseException | None]:
    """The card that a notebook loads and what it then says, and how it fails, of its cells up to `load`."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    first = next(place for place, source in enumerate(sources) if "load(" in source)
    with shell() as here, capture_output() as said:
        for source in [*sources[:first], sources[first].partition("\n")[0]]:
            done = here.run_cell(source, store_history=True)
        return getattr(here.user_ns.get("e"), "slug", ""), str([each.data for each in said.outputs]), done.error_in_exec


@pytest.mark.parametrize(
    ("notebook", "says"),
    [
        (given(SETUP, GPU="nvidia-h200"), "there is no parameter GPU; allowed: gpu, source"),
        (given(SETUP, gpu="nvidia-h200", Source="live"), "there is no parameter Source; allowed: gpu, source"),
        (given(SETUP, studies=["log"]), "there is no parameter studies; allowed: gpu, source"),
        (given(SETUP, gpu=90), "no GPU called 90 has been measured"),
        (given(SETUP, gpu=90), "-r gpu NAME"),
        (given(SETUP, gpu=None), "no GPU called None has been measured"),
        (given(SETUP, source="Live"), "source is 'Live'; allowed: recorded, live"),
        (given(SETUP, source=1), "source is 1; allowed: recorded, live"),
        (
            edited(given(SETUP, gpu=REFERENCE), OTHER),
            f"gpu is 'nvidia-h200' in the cell of parameters, and '{REFERENCE}'",
        ),
        (edited(given(SETUP, source="live"), OTHER.replace("recorded", "x")), "source is 'x' in the cell of"),
    ],
)
def test_a_parameter_that_is_not_understood_is_refused(notebook: Any, says: str) -> None:
    _, _, failed = run(notebook)
    assert isinstance(failed, DataError) and isinstance(failed, Failure) and says in str(failed)
    assert "\n" not in str(failed)


@pytest.mark.parametrize(
    ("notebook", "shown", "told"),
    [
        (SETUP, REFERENCE, False),
        (edited(SETUP, OTHER), "nvidia-h200", False),
        (given(SETUP, gpu="nvidia-h200"), "nvidia-h200", True),
        (given(given(SETUP, gpu="nvidia-h200")), "nvidia-h200", True),  # an executed notebook, run again
        (given(given(SETUP, gpu="nvidia-h200"), source="recorded"), REFERENCE, True),
        (edited(given(SETUP, gpu="nvidia-h200"), OTHER), "nvidia-h200", True),
    ],
)
def test_what_papermill_sets_counts_and_is_told(notebook: Any, shown: str, told: bool) -> None:
    card, said, failed = run(notebook)
    assert failed is None and card == shown and ("Set by papermill" in said) is told


def test_a_cell_of_parameters_that_is_run_again_counts_for_more_than_what_papermill_added_before() -> None:
    notebook = given(SETUP, GPU="nvidia-h200")
    again = copy.deepcopy(SETUP.cells[[cell.cell_type for cell in SETUP.cells].index("code") + 1])
    at = next(place for place, cell in enumerate(notebook.cells) if "load(" in cell.source)
    notebook.cells.insert(at, again)
    assert run(notebook)[0] == REFERENCE


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
