#!/usr/bin/env bash
# papermill 2.7.0.
# Guess: `papermill -p` reads a value as YAML does, as -y does: false is False, and what is no number stays text.
# Behaviour: Only True, False and None in capitals are read. `-p causal false` passes the text 'false', which is true
# in an `if`. And what Python's int takes is a number: a run called 20261129_101713 arrives as 20261129101713, and the
# card 007 as 7. With -y false is False, 007 is 7, and the underscore goes as well; -r passes text as it is.
# Output seen:
#   -p: causal = "false"  run = 20261129101713  card = 7
#   -y: causal = False  run = 20261129101713  card = 7
#   -r: causal = "false"  run = "20261129_101713"  card = "007"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet papermill==2.7.0 nbformat==5.11.1 nbclient==0.11.0
cd "$folder"
venv/bin/python - <<'PYTHON'
import nbformat

cell = nbformat.v4.new_code_cell("causal, run, card = True, '', ''", metadata={"tags": ["parameters"]})
language = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}
nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=language), "given.ipynb")
PYTHON

injected() {  # the parameters that papermill writes into the notebook, in one line
    venv/bin/papermill --prepare-only --log-level ERROR given.ipynb prepared.ipynb "${@:2}" > /dev/null 2>&1
    venv/bin/python -c 'import nbformat, sys
cell = nbformat.read("prepared.ipynb", 4).cells[1]
print(sys.argv[1] + ":", "  ".join(line for line in cell.source.splitlines() if " = " in line))' "$1"
}

injected -p -p causal false -p run 20261129_101713 -p card 007 | tee output
injected -y -y '{causal: false, run: 20261129_101713, card: 007}' | tee -a output
injected -r -r causal false -r run 20261129_101713 -r card 007 | tee -a output
diff output - <<'SEEN'
-p: causal = "false"  run = 20261129101713  card = 7
-y: causal = False  run = 20261129101713  card = 7
-r: causal = "false"  run = "20261129_101713"  card = "007"
SEEN
