#!/usr/bin/env bash
# jupyter-book 1.0.4.post1 (Sphinx 7.4.7, sphinxcontrib-bibtex 2.7.0).
# Guess: Sphinx knows which page refers to what. When a book is built again, pages that name a changed figure number,
# equation number, title or citation are written again, and so is the list of references.
# Behaviour: Only the changed page is written. Other pages keep the old number of its figure and equation and its old
# title. If a page cites a paper for the first time, the list of references, which is on a page of its own, stays
# without that paper: the citation leads nowhere. If refs.bib changes, the list is new, but pages go on citing the old
# name and year. Every build succeeds with -W and no warning. `jupyter-book build --all` puts all of it right. It
# matters to whoever publishes from a build folder that is kept (a CI cache): numbers in the text are silently wrong.
# Output seen:
#   built: see Fig. 2, equation (1), Old title, Smith [2001] | references: Smith 2001
#   figure, equation and title changed: see Fig. 2, equation (1), Old title, Smith [2001] | references: Smith 2001
#   another page cites Abel: see Fig. 2, equation (1), Old title, Smith [2001] | references: Smith 2001
#   refs.bib changed: see Fig. 2, equation (1), Old title, Smith [2001] | references: Abel 1999, Smyth 2015
#   --all: see Fig. 3, equation (2), New title, Smyth [2015] | references: Abel 1999, Smyth 2015
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jupyter-book==1.0.4.post1 sphinx==7.4.7 sphinxcontrib-bibtex==2.7.0
cd "$folder"
mkdir book
cat > book/_config.yml <<'YAML'
title: Book
execute:
  execute_notebooks: "off"
bibtex_bibfiles: [refs.bib]
sphinx:
  config:
    bibtex_reference_style: author_year
YAML
printf '%s\n' 'format: jb-book' 'root: intro' 'chapters:' '- file: method' '- file: results' '- file: more' \
    '- file: references' > book/_toc.yml
echo '# Introduction' > book/intro.md
echo '# More' > book/more.md
printf '%s\n' '# References' '' '```{bibliography}' '```' > book/references.md
printf '%s\n' '# Results' '' 'see {numref}`speed`, equation {eq}`score`, {ref}`method`, {cite:t}`smith`.' \
    > book/results.md
echo '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>' > book/plot.svg

figure() { printf '%s\n' '```{figure} plot.svg' ":name: $1" "The $1" '```' ''; }
equation() { printf '%s\n' '```{math}' ":label: $1" 'x = 1' '```' ''; }
papers() {  # AUTHOR YEAR
    echo "@article{smith, author={$1, Ann}, title={On rows}, journal={Journal}, year={$2}}"
    echo '@article{abel, author={Abel, Bo}, title={On keys}, journal={Journal}, year={1999}}'
}
show() {  # NAME OPTION...
    venv/bin/jupyter-book build -W "${@:2}" book > log 2>&1 || { cat log; exit 1; }
    venv/bin/python - "$1" <<'PYTHON'
import re
import sys
from pathlib import Path

results, references = (re.sub(r"<[^>]+>", "", Path(f"book/_build/html/{name}.html").read_text())
                       for name in ("results", "references"))
(sentence,) = re.findall(r"see Fig.*\]", results)
papers = (f"{name} {year}" for name, year in re.findall(r"(\w+)\. On \w+\. Journal, (\d+)", references))
print(f"{sys.argv[1]}: {sentence} | references: {', '.join(papers)}")
PYTHON
}

{ printf '%s\n' '(method)=' '# Old title' ''; figure setup; figure speed; equation score; } > book/method.md
papers Smith 2001 > book/refs.bib
show built | tee output
{ printf '%s\n' '(method)=' '# New title' ''; figure idea; figure setup; figure speed; equation row; equation score; } \
    > book/method.md
show 'figure, equation and title changed' | tee -a output
echo 'By {cite:t}`abel`.' >> book/more.md
show 'another page cites Abel' | tee -a output
papers Smyth 2015 > book/refs.bib
show 'refs.bib changed' | tee -a output
show --all --all | tee -a output
diff output - <<'SEEN'
built: see Fig. 2, equation (1), Old title, Smith [2001] | references: Smith 2001
figure, equation and title changed: see Fig. 2, equation (1), Old title, Smith [2001] | references: Smith 2001
another page cites Abel: see Fig. 2, equation (1), Old title, Smith [2001] | references: Smith 2001
refs.bib changed: see Fig. 2, equation (1), Old title, Smith [2001] | references: Abel 1999, Smyth 2015
--all: see Fig. 3, equation (2), New title, Smyth [2015] | references: Abel 1999, Smyth 2015
SEEN
