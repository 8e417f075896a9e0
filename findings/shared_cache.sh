#!/usr/bin/env bash
# jupyter-book 1.0.4.post1 (myst-nb 1.4.0, jupyter-cache 1.0.1).
# Guess: With `execute_notebooks: cache` each notebook of a book is run in its own folder and has its own results. The
# cache knows a notebook by its path and its code.
# Behaviour: The cache knows a notebook by its code alone. Two notebooks with the same code in two folders, each of
# which reads the data.csv beside it, are run once. Both pages show the numbers of the folder that ran first. The build
# succeeds with -W. With `force` both are right. It matters to a book with one notebook for each card, model or data
# set: the page of a card then shows the times of another one. What tells such notebooks apart must stand in a code
# cell.
# Output seen:
#   cache: l4 (its data say 82) shows 414, h100 (its data say 414) shows 414
#   force: l4 (its data say 82) shows 82, h100 (its data say 414) shows 414
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jupyter-book==1.0.4.post1 myst-nb==1.4.0 jupyter-cache==1.0.1 nbclient==0.11.0 \
    nbformat==5.11.1 ipykernel==7.4.0 sphinx==7.4.7
cd "$folder"
cat > check.py <<'PYTHON'
import re
import subprocess
import sys
from pathlib import Path

import nbformat

TIMES = {"l4": 82, "h100": 414}
mode, book = sys.argv[1], Path(sys.argv[1])
for card, microseconds in TIMES.items():
    (book / card).mkdir(parents=True)
    (book / card / "data.csv").write_text(f"{microseconds}\n")
    cells = [nbformat.v4.new_markdown_cell(f"# The card {card}"),
             nbformat.v4.new_code_cell('print("time", open("data.csv").read())')]
    language = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=language), book / card / "times.ipynb")
(book / "_config.yml").write_text(f"title: Book\nexecute:\n  execute_notebooks: {mode}\n")
(book / "_toc.yml").write_text("format: jb-book\nroot: l4/times\nchapters:\n- file: h100/times\n")
subprocess.run(["venv/bin/jupyter-book", "build", "-W", book], check=True, capture_output=True)
shown = []
for card, microseconds in TIMES.items():
    page = (book / "_build" / "html" / card / "times.html").read_text()
    (time,) = re.findall(r"time (\d+)", page)
    shown.append(f"{card} (its data say {microseconds}) shows {time}")
print(f"{mode}:", ", ".join(shown))
PYTHON
export PATH="$folder/venv/bin:$PATH"
for mode in cache force; do
    python check.py $mode
done | tee output
diff output - <<'SEEN'
cache: l4 (its data say 82) shows 414, h100 (its data say 414) shows 414
force: l4 (its data say 82) shows 82, h100 (its data say 414) shows 414
SEEN
