"""Run every notebook's cells as JupyterLab does, in their own folder, with `source` live, on a made-up card.

    cd analysis/notebooks && FUSED_PE_DATA=DIR python -P ../../tests/book/from_own_folder.py

Measuring writes the rows of the studies that a notebook asks for, and no others; `gpu` names no card that there is.
Prints what each notebook asked for.
"""

import os
import shutil
import sys
from pathlib import Path

import nbformat

CARD = "8.9"
DATA = Path(os.environ["FUSED_PE_DATA"])
LIVE = {'gpu = "nvidia-h100-80gb-hbm3"': 'gpu = "not-a-card"', 'source = "recorded"': 'source = "live"'}


def code(path: Path) -> list[str]:
    """The code of the cells, the parameters set."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    for cell in cells:
        if "parameters" in cell.metadata.get("tags", []):
            for recorded, live in LIVE.items():
                assert recorded in cell.source
                cell.source = cell.source.replace(recorded, live)
    return [cell.source for cell in cells]


def main() -> None:
    paths = list(sys.path)
    for path in sorted(Path().glob("*.ipynb")):
        first, *rest = code(path)
        sys.path[:] = paths
        names: dict = {}
        exec(first, names)  # finds the packages

        from analysis.book import saving
        from analysis.measure import run
        from tests import cards

        asked: list[str] = []

        def measure_studies(chosen: list, asked: list[str] = asked) -> str:
            asked += [study.name for study in chosen]
            store = DATA.with_name("made-up") / "-".join(asked)
            if not store.exists():
                cards.write(CARD, store, asked)
            shutil.rmtree(DATA, ignore_errors=True)
            shutil.copytree(store, DATA)
            return next(DATA.iterdir()).name

        run.measure_studies = measure_studies
        saving.save = lambda plot, where: None  # drawn, and no more
        saving.to_html = lambda plot, where: plot.caption
        for source in rest:
            exec(source, names)
        print("asked", path.stem, *asked)


if __name__ == "__main__":
    main()
