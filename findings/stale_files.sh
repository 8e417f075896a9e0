#!/usr/bin/env bash
# jupyter-book 1.0.4.post1 (Sphinx 7.4.7).
# Guess: Files of html_extra_path and the style sheet in _static are copied at each build. They are no pages, so Sphinx
# need not know whether they changed.
# Behaviour: They are copied only if at least one page is written. If nothing but such a file changed, the build says
# that no targets are out of date, succeeds with -W, and leaves the old file in the site. The next build that writes
# some page brings it up to date. An image that a page includes is tracked, and copied. It matters where figures are
# published under fixed names by html_extra_path: drawn again, they do not reach the site, though the build says that it
# succeeded. `jupyter-book build --all`, or a fresh folder, copies them.
# Output seen:
#   built: extra one, style one, included one
#   extra file changed: extra one, style one, included one
#   style sheet changed: extra one, style one, included one
#   included image changed: extra two, style two, included two
#   extra file changed again: extra two, style two, included two
#   --all: extra three, style two, included two
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jupyter-book==1.0.4.post1 sphinx==7.4.7
cd "$folder"
mkdir -p book/extra book/_static
cat > book/_config.yml <<'YAML'
title: Book
execute:
  execute_notebooks: "off"
exclude_patterns: [extra]
sphinx:
  config:
    html_extra_path: [extra]
YAML
printf '%s\n' 'format: jb-book' 'root: intro' > book/_toc.yml
printf '%s\n' '# Introduction' '' '![included](included.svg)' > book/intro.md

plot() { echo "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\"><title>$1</title></svg>"; }
show() {  # NAME OPTION...
    venv/bin/jupyter-book build -W "${@:2}" book > log 2>&1 || { cat log; exit 1; }
    word() { grep -ho 'one\|two\|three' "$@"; }
    (cd book/_build/html && echo "$1: extra $(word plot.svg), style $(word _static/own.css)," \
        "included $(word _images/included.svg)")
}

plot one > book/extra/plot.svg
plot one > book/included.svg
echo '/* one */' > book/_static/own.css
show built | tee output
plot two > book/extra/plot.svg
show 'extra file changed' | tee -a output
echo '/* two */' > book/_static/own.css
show 'style sheet changed' | tee -a output
plot two > book/included.svg
show 'included image changed' | tee -a output
plot three > book/extra/plot.svg
show 'extra file changed again' | tee -a output
show --all --all | tee -a output
diff output - <<'SEEN'
built: extra one, style one, included one
extra file changed: extra one, style one, included one
style sheet changed: extra one, style one, included one
included image changed: extra two, style two, included two
extra file changed again: extra two, style two, included two
--all: extra three, style two, included two
SEEN
