#!/usr/bin/env bash
# jupyter-book 1.0.4.post1 (myst-nb 1.4.0), Python 3.11.
# Guess: execute.exclude_patterns names notebooks that are not run, by path from the book's folder, as Sphinx's
# exclude_patterns does for pages: intro.ipynb is one notebook, gpu/* those in gpu, gpu/** those below it as well, and
# gpu the whole folder.
# Behaviour: A pattern is compared with the end of a path (pathlib's match). intro.ipynb and ./intro.ipynb leave out
# each intro.ipynb of the book, gpu/* those of cpu/gpu as well. ** stands for one level, so gpu/** runs what is deeper,
# and the name of a folder leaves out nothing. Every build succeeds with -W. A page that was left out by mistake has
# code without results; a notebook that was to be left out runs for hours, or without its GPU.
# Output seen (all notebooks: intro, gpu/intro, gpu/long/sweep, cpu/gpu/check):
#   intro.ipynb leaves out: intro, gpu/intro
#   gpu/* leaves out: gpu/intro, cpu/gpu/check
#   gpu/** leaves out: gpu/intro, cpu/gpu/check
#   gpu leaves out: nothing
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jupyter-book==1.0.4.post1 myst-nb==1.4.0 nbclient==0.11.0 nbformat==5.11.1 \
    ipykernel==7.4.0 sphinx==7.4.7
cd "$folder"
export PATH="$folder/venv/bin:$PATH"
cat > check.py <<'PYTHON'
import shutil
import subprocess
from pathlib import Path

import nbformat

NOTEBOOKS = "intro", "gpu/intro", "gpu/long/sweep", "cpu/gpu/check"
book = Path("book")
for name in NOTEBOOKS:
    cells = [nbformat.v4.new_markdown_cell(f"# {name}"), nbformat.v4.new_code_cell("print(6 * 7)")]
    language = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}
    (book / name).parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=language), book / f"{name}.ipynb")
chapters = "".join(f"- file: {name}\n" for name in NOTEBOOKS[1:])
(book / "_toc.yml").write_text(f"format: jb-book\nroot: {NOTEBOOKS[0]}\nchapters:\n{chapters}")
for pattern in ("intro.ipynb", "gpu/*", "gpu/**", "gpu"):
    (book / "_config.yml").write_text(
        f"title: Book\nexecute:\n  execute_notebooks: force\n  exclude_patterns: ['{pattern}']\n")
    shutil.rmtree(book / "_build", ignore_errors=True)
    subprocess.run(["jupyter-book", "build", "-W", book], check=True, capture_output=True)
    pages = {name: (book / "_build" / "html" / f"{name}.html").read_text() for name in NOTEBOOKS}
    print(pattern, "leaves out:", ", ".join(name for name in NOTEBOOKS if ">42" not in pages[name]) or "nothing")
PYTHON
python check.py | tee output
diff output - <<'SEEN'
intro.ipynb leaves out: intro, gpu/intro
gpu/* leaves out: gpu/intro, cpu/gpu/check
gpu/** leaves out: gpu/intro, cpu/gpu/check
gpu leaves out: nothing
SEEN
