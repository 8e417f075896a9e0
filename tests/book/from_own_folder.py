"""Run every notebook's cells as JupyterLab does on a card that is there: in its own folder, with `source` live.

Measuring finds the folder of the reference card; `gpu` names none that there is. Prints the studies each asked for.
"""

import sys
from pathlib import Path

import nbformat

assert Path.cwd().name == "notebooks"
LIVE = {'gpu = "nvidia-h200"': 'gpu = "not-a-card"', 'source = "recorded"': 'source = "live"'}


def code(path: Path) -> list[str]:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    for cell in cells:
        if "parameters" in cell.metadata.get("tags", []):
            for recorded, live in LIVE.items():
                assert recorded in cell.source
                cell.source = cell.source.replace(recorded, live)
    return [cell.source for cell in cells]


def main() -> None:
    asked: list[str] = []
    paths = list(sys.path)
    for path in sorted(Path().glob("*.ipynb")):
        first, *rest = code(path)
        sys.path[:] = paths
        names: dict = {}
        exec(first, names)  # finds the packages

        from analysis.book import style
        from analysis.measure import run, tune

        run.measure_studies = lambda chosen: asked.extend(study.name for study in chosen) or "nvidia-h200"
        tune.tune = lambda: asked.append("tune")
        style.save = lambda plot, where: None
        asked.clear()
        for source in rest:
            exec(source, names)
        print("asked", path.stem, *asked)


if __name__ == "__main__":
    main()
