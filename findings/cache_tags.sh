#!/usr/bin/env bash
# jupyter-book 1.0.4.post1 (myst-nb 1.4.0, jupyter-cache 1.0.1).
# Guess: With `execute_notebooks: cache` a notebook runs again when its code changes. Tags that only say how a cell
# looks on the page (hide-input, remove-cell) do not run it again, nor does other metadata of a cell.
# Behaviour: All metadata of code cells is part of the key: a book whose notebook has a cell newly hidden runs the whole
# notebook again, and so it does after a front end has stored that a cell is collapsed. A changed text cell, and
# metadata of the notebook other than its kernelspec, reuse the cached run.
# Output seen:
#   built again: reused
#   text cell changed: reused
#   language_info of the notebook changed: reused
#   tag hide-input added: ran again
#   metadata collapsed added: ran again
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jupyter-book==1.0.4.post1 myst-nb==1.4.0 jupyter-cache==1.0.1 nbclient==0.11.0 \
    nbformat==5.11.1 ipykernel==7.4.0 sphinx==7.4.7
cd "$folder"
mkdir book
printf 'title: Book\nexecute:\n  execute_notebooks: cache\n' > book/_config.yml
printf 'format: jb-book\nroot: page\n' > book/_toc.yml
cat > check.py <<'PYTHON'
import re
import subprocess
from pathlib import Path

import nbformat

cell = nbformat.v4.new_code_cell("import time\nprint('ran at', time.time_ns())", id="cell")
text = nbformat.v4.new_markdown_cell("# Page", id="text")
page = nbformat.v4.new_notebook(cells=[text, cell])
page.metadata.update(kernelspec={"name": "python3", "display_name": "Python 3"}, language_info={"name": "python"})


def ran():
    nbformat.write(page, "book/page.ipynb")
    subprocess.run(["venv/bin/jupyter-book", "build", "--quiet", "book"], check=True, capture_output=True)
    return re.search(r"ran at (\d+)", Path("book/_build/html/page.html").read_text())[1]


def told(change):
    global last
    now = ran()
    print(f"{change}: {'reused' if now == last else 'ran again'}", flush=True)
    last = now


last = ran()
told("built again")
text.source = "# Another page"
told("text cell changed")
page.metadata.language_info["version"] = "3.14"
told("language_info of the notebook changed")
cell.metadata["tags"] = ["hide-input"]
told("tag hide-input added")
cell.metadata["collapsed"] = True
told("metadata collapsed added")
PYTHON
export PATH="$folder/venv/bin:$PATH"
python -W ignore check.py | tee output
diff output - <<'SEEN'
built again: reused
text cell changed: reused
language_info of the notebook changed: reused
tag hide-input added: ran again
metadata collapsed added: ran again
SEEN
