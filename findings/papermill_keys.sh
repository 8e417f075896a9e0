#!/usr/bin/env bash
# papermill 2.7.0.
# Guess: A mapping reaches the notebook as it is: from a YAML file or from Python, {2048: 4} is {2048: 4} there, with
# the types that its numbers have.
# Behaviour: Values keep their types, keys become texts: {"2048": 4}. The default in the notebook, {2048: 4}, has
# numbers as keys, so the same code behaves differently once the mapping is passed: heads[2048] raises KeyError, and
# heads.get(2048, 1) quietly gives 1. It matters to a notebook that takes a table of settings by head dim, batch size or
# device number: each look-up falls back to its default without a word.
# Output seen:
#   default of the notebook: heads = {2048: 4}, heads.get(2048, 1) = 4
#   -f heads.yaml: heads = {'2048': 4}, heads.get(2048, 1) = 1
#   -y: heads = {'2048': 4}, heads.get(2048, 1) = 1
#   execute_notebook: heads = {'2048': 4}, heads.get(2048, 1) = 1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet papermill==2.7.0 nbformat==5.11.1 nbclient==0.11.0 ipykernel==7.4.0
cd "$folder"
export PATH="$folder/venv/bin:$PATH"
cat > notebook.py <<'PYTHON'
import sys

import nbformat
import papermill

if sys.argv[1:] == ["make"]:
    cells = [nbformat.v4.new_code_cell("heads = {2048: 4}", metadata={"tags": ["parameters"]}),
             nbformat.v4.new_code_cell('print(f"heads = {heads}, heads.get(2048, 1) = {heads.get(2048, 1)}")')]
    language = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=language), "given.ipynb")
elif sys.argv[1:] == ["run"]:
    papermill.execute_notebook("given.ipynb", "run.ipynb", parameters={"heads": {2048: 4}}, progress_bar=False)
else:
    print(nbformat.read("run.ipynb", 4).cells[-1].outputs[0].text.rstrip())
PYTHON
python notebook.py make

run() {  # NAME COMMAND...
    "${@:2}" > log 2>&1 || { cat log; exit 1; }
    echo "$1: $(python notebook.py show)"
}

echo 'heads: {2048: 4}' > heads.yaml
{
    run 'default of the notebook' papermill given.ipynb run.ipynb
    run '-f heads.yaml' papermill given.ipynb run.ipynb -f heads.yaml
    run '-y' papermill given.ipynb run.ipynb -y 'heads: {2048: 4}'
    run execute_notebook python notebook.py run
} | tee output
diff output - <<'SEEN'
default of the notebook: heads = {2048: 4}, heads.get(2048, 1) = 4
-f heads.yaml: heads = {'2048': 4}, heads.get(2048, 1) = 1
-y: heads = {'2048': 4}, heads.get(2048, 1) = 1
execute_notebook: heads = {'2048': 4}, heads.get(2048, 1) = 1
SEEN
