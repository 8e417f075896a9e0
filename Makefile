# Two commands: `make book` renders the book from recorded measurements, `make test` runs the tests.
# On a machine with a GPU: `make measure`, then `make book GPU=<the slug it prints>`.
PYTHON3 ?= python3#             the Python (3.11, 3.12 or 3.13) that .venv is made with
GPU     ?= nvidia-h200#         whose measurements the book shows: a folder of data/measured/
STUDY   ?= all#                 what `make measure` measures: all, or studies separated by commas
NEW_RUN ?=#                     NEW_RUN=1: `make measure` measures everything again
PYTHON  ?= 3.12#                the Python of the machine that `make wheels` collects for
FULL    ?=#                     FULL=1: `make wheels` also collects torch and the CUDA components (gigabytes)
STRICT  ?=#                     STRICT=1: `make book` fails where a finding of the book does not hold
GPUS    ?=#                     what `make compare` compares: published and folders of data/measured/; all, if empty
TIMER   ?=#                     TIMER=as-timed: `make compare` takes the authors' way of timing
LOGS    ?=#                     LOGS=folder: `make sanitize` keeps the tools' logs there
AXE     ?=#                     AXE=axe.min.js: `make browse` also asks axe-core, in that file, for accessibility faults
WHEELS  ?=#                     WHEELS=wheels: install from that folder, with no network, over this machine's own torch
PORT    ?= 8000

python := .venv/bin/python
pip    := -m pip --disable-pip-version-check
run    := PATH="$(CURDIR)/.venv/bin:$$PATH" $(python)

.PHONY: book test test-deep test-gpu measure tune op status claims compare counts counters sanitize resources \
	mutations browse wheels lint serve clean

book: .venv/.stamp
	$(run) -m analysis build --gpu $(GPU) $(if $(STRICT),--strict)

test: .venv/.stamp
	$(run) -m pytest -n 2

test-deep: .venv/.stamp
	$(run) -m pytest -n 2 -m deep

test-gpu: .venv/.stamp
	$(run) -m pytest -m gpu --no-header -v -p no:cacheprovider

measure: .venv/.stamp
	$(run) -m analysis measure --study $(STUDY) $(if $(NEW_RUN),--new-run)

tune: .venv/.stamp
	$(run) -m analysis tune $(if $(NEW_RUN),--new-run)

op: .venv/.stamp
	$(run) -m analysis op $(if $(NEW_RUN),--new-run)

status: .venv/.stamp
	$(run) -m analysis measure --status

claims: .venv/.stamp
	$(run) -m analysis claims

compare: .venv/.stamp
	$(run) -m analysis compare $(GPUS) $(if $(TIMER),--timer $(TIMER))

counts: .venv/.stamp
	$(run) -m analysis counts

counters: .venv/.stamp
	$(run) -m analysis counters $(if $(NEW_RUN),--all)

sanitize: .venv/.stamp
	$(run) -m analysis sanitize $(if $(LOGS),--logs $(LOGS))

resources: .venv/.stamp
	$(run) -m analysis resources

mutations: .venv/.stamp
	$(run) -m analysis mutations

browse: .venv/.stamp
	$(run) -m analysis browse --gpu $(GPU) $(if $(AXE),--axe $(AXE))

lint: .venv/.stamp
	$(run) -m ruff check .
	$(run) -m mypy

serve: .venv/.stamp
	$(run) -m http.server --directory _build/$(GPU)/html $(PORT)

clean:
	rm -rf _build build *.egg-info book/_build wheels .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A wheelhouse for a Linux x86_64 machine with no network: copy the checkout and wheels/ there, then WHEELS=wheels.
# What that machine's own torch and CUDA serve is left out. pip reads markers of the Python it runs on, not of the
# one it collects for, so they are taken off: a wheel too many does no harm.
tags      := 2014 2010 1 $(foreach minor,28 27 26 25 24 23 22 21 20 19 18 17 12 5,_2_$(minor))
platforms := $(tags:%=--platform manylinux%_x86_64)
left_out  := $(if $(FULL),^\#,^(\#|torch=|cuda-toolkit=|nvidia-))

wheels: | $(python)
	mkdir -p wheels
	grep -vE '$(left_out)' requirements.txt | sed 's/ *;.*//' > wheels/requirements.txt
	$(python) $(pip) download $(if $(FULL),,--no-deps) --only-binary=:all: --python-version $(PYTHON) --implementation cp \
		$(platforms) --dest wheels --requirement wheels/requirements.txt
	@echo "[wheels] `ls wheels/*.whl | wc -l` wheels for Python $(PYTHON), `du -sh wheels | cut -f1`"

# The environment. Made once; made again only when the pins change.
ifeq ($(WHEELS),)
.venv/.stamp: requirements.txt | $(python)
	@echo "[environment] installing the pinned packages: about a minute, several with the CUDA build of torch"
	$(python) $(pip) install --requirement requirements.txt
	@touch $@
else
export CUDA_HOME ?= /usr/local/cuda
.venv/.stamp: requirements.txt | $(python)
	@echo "[environment] installing from $(WHEELS)/, with no network"
	$(PYTHON3) $(pip) --python $(python) install --no-index --find-links $(WHEELS) --requirement $(WHEELS)/requirements.txt \
		|| { echo "[environment] $(WHEELS)/ does not fit `$(python) --version`: collect it with make wheels PYTHON=3.x"; exit 1; }
	@$(PYTHON3) -c 'import sys; print(*[p for p in sys.path if p.endswith("-packages")], sep="\n")' \
		> "`$(python) -c 'import sysconfig; print(sysconfig.get_path("purelib"))'`/this_machine.pth"
	@$(python) -c 'import numba.cuda, torch; print("[environment] torch", torch.__version__, "from", torch.__path__[0])'
	@touch $@
endif

wanted := import sys; v = sys.version_info; sys.exit(None if (3, 11) <= v[:2] <= (3, 13) else \
	"[environment] Python 3.11, 3.12 or 3.13 is needed; $(PYTHON3) is %d.%d. Name one: make PYTHON3=python3.12" % v[:2])

$(python):
	@$(PYTHON3) -c '$(wanted)'
	@echo "[environment] creating .venv with $(PYTHON3)"
	$(PYTHON3) -m venv $(if $(WHEELS),--without-pip) .venv
