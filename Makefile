# Two commands: `make book` renders the book from recorded measurements, `make test` runs the tests.
# On a machine with a GPU: `make gpu` does everything, and `make gpu CHECK=1` says what stands before it.
PYTHON3 ?= python3#             the Python (3.11, 3.12 or 3.13) that .venv is made with
CUDA    ?= auto#                13, 12 (drivers from 525 on), or auto: what .venv has, and at first what the driver takes
GPU     ?= nvidia-h200#         whose measurements the book shows: a folder of data/measured/; given, also where to write
STUDY   ?= all#                 what `make measure` measures: all, or studies separated by commas
CHECK   ?=#                     CHECK=1: `make gpu` says what stands before measuring here, `make archive` what would go
NEW_RUN ?=#                     NEW_RUN=1: `make measure` measures everything again
PYTHON  ?= 3.12#                the Python of the machine that `make wheels` collects for; CUDA: of that machine's torch
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
card   := $(if $(filter command,$(origin GPU)),--gpu $(GPU))# the folder that measuring writes to: by the card's name
run    := PATH="$(CURDIR)/.venv/bin:$$PATH" $(python)

.PHONY: environment cluster book test test-deep test-cards test-gpu gpu measure tune op status archive claims compare \
	counts counters sanitize resources mutations browse pdf wheels lint serve clean

environment: .venv/.stamp

book: .venv/.stamp
	$(run) -m analysis build --gpu $(GPU) $(if $(STRICT),--strict)

test: .venv/.stamp
	$(run) -m pytest -n 2

test-deep: .venv/.cluster
	$(run) -m pytest -n 2 --dist worksteal -m deep

cluster: .venv/.cluster

test-cards: .venv/.stamp
	$(run) -m pytest -m cards

test-gpu: .venv/.stamp
	$(run) -m pytest tests/gpu -m gpu --no-header -v -p no:cacheprovider

gpu: .venv/.stamp
	$(run) -m analysis gpu --study $(STUDY) $(card) $(if $(CHECK),--check)

measure: .venv/.stamp
	$(run) -m analysis measure --study $(STUDY) $(card) $(if $(NEW_RUN),--new-run)

tune: .venv/.stamp
	$(run) -m analysis tune $(card) $(if $(NEW_RUN),--new-run)

op: .venv/.stamp
	$(run) -m analysis op $(card) $(if $(NEW_RUN),--new-run)

status: .venv/.stamp
	$(run) -m analysis measure --status

archive: .venv/.stamp
	$(run) -m analysis archive $(card) $(if $(CHECK),--check)

claims: .venv/.stamp
	$(run) -m analysis claims

compare: .venv/.stamp
	$(run) -m analysis compare $(GPUS) $(if $(TIMER),--timer $(TIMER))

counts: .venv/.stamp
	$(run) -m analysis counts

counters: .venv/.stamp
	$(run) -m analysis counters $(card) $(if $(NEW_RUN),--all)

sanitize: .venv/.stamp
	$(run) -m analysis sanitize $(card) $(if $(LOGS),--logs $(LOGS))

resources: .venv/.stamp
	$(run) -m analysis resources

mutations: .venv/.stamp
	$(run) -m analysis mutations

browse: .venv/.stamp
	$(run) -m analysis browse --gpu $(GPU) $(if $(AXE),--axe $(AXE))

pdf: book
	$(run) -m analysis pdf --gpu $(GPU)

lint: .venv/.stamp
	$(run) -m ruff check .
	$(run) -m mypy

serve: .venv/.stamp
	$(run) -m http.server --directory _build/$(GPU)/html $(PORT)

clean:
	rm -rf _build build *.egg-info book/_build wheels .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Which CUDA the environment is for: the wheels' where it comes from a folder of them. Its stamp says what it was made for.
made := $(if $(wildcard .venv/.stamp),$(or $(strip $(file < .venv/.stamp)),13))
ifneq ($(WHEELS),)
cuda := $(shell sed -n 's/^cuda-bindings==\([0-9]*\).*/\1/p' $(WHEELS)/requirements.txt)
else ifneq ($(CUDA),auto)
cuda := $(CUDA)
else
cuda := $(or $(made),$(shell $(PYTHON3) analysis/measure/driver.py))
endif
lock := $(if $(WHEELS),$(WHEELS)/requirements.txt,$(if $(filter 12,$(cuda)),requirements-cuda12.txt,requirements.txt))
$(if $(filter-out 12 13 auto,$(CUDA)),$(error CUDA=$(CUDA): allowed are 12, 13 and auto))

# A wheelhouse for a Linux x86_64 machine with no network: copy the checkout and wheels/ there, then WHEELS=wheels.
# What that machine's own torch and CUDA serve is left out. pip reads markers of the Python it runs on, not of the
# one it collects for, so they are taken off: a wheel too many does no harm.
tags      := 2014 2010 1 $(foreach minor,28 27 26 25 24 23 22 21 20 19 18 17 12 5,_2_$(minor))
platforms := $(tags:%=--platform manylinux%_x86_64)
left_out  := ^(\#|$$$(if $(FULL),,|torch=|cuda-toolkit=|nvidia-cu|nvidia-nv))

wheels: | $(python)
	mkdir -p wheels
	grep -vE '$(left_out)' $(lock) | sed 's/ *;.*//' > wheels/requirements.txt
	$(python) $(pip) download $(if $(FULL),,--no-deps) --only-binary=:all: --python-version $(PYTHON) --implementation cp \
		$(platforms) --dest wheels --requirement wheels/requirements.txt
	@echo "[wheels] `ls wheels/*.whl | wc -l` wheels for Python $(PYTHON), `du -sh wheels | cut -f1`"

# The environment. Made once; made again only when the pins change or CUDA names another release: in the folder of one
# release, pip would leave compilers of the other.
create  = $(PYTHON3) -m venv $(if $(WHEELS),--without-pip)
another := $(if $(made),$(filter-out $(made),$(cuda)))

.PHONY: another
another: | $(python)
	@echo "[environment] .venv is for CUDA $(made): emptying it for CUDA $(cuda)"
	$(create) --clear .venv

.venv/.stamp: $(lock) $(if $(another),another) | $(python)
ifeq ($(WHEELS),)
	@echo "[environment] installing the packages pinned in $(lock): about a minute, several with the CUDA build of torch"
	$(python) $(pip) install --requirement $(lock)
else
	@echo "[environment] installing from $(WHEELS)/, with no network"
	@rm -f .venv/lib/python*/site-packages/this_machine.pth  # pip would take the machine's packages for its own
	$(PYTHON3) $(pip) --python $(python) install --no-index --find-links $(WHEELS) --requirement $(lock) \
		$(if $(shell grep '^torch=' $(lock)),,--no-deps) \
		|| { echo "[environment] $(WHEELS)/ does not fit `$(python) --version`: collect it with make wheels PYTHON=3.x"; exit 1; }
	@$(PYTHON3) -c '$(this_machine)' > "`$(python) -c 'import sysconfig; print(sysconfig.get_path("purelib"))'`/this_machine.pth"
	@$(python) -m analysis.measure.compilers
endif
	@echo $(cuda) > $@

# What .venv takes of the machine that it is installed on with WHEELS: packages that are not its own, and the CUDA toolkit.
ifneq ($(WHEELS),)
export CUDA_HOME ?= /usr/local/cuda
endif
this_machine := import sys; print(*[p for p in sys.path if p.endswith("-packages")], sep="\n"); \
	print("import os; os.environ.setdefault(\"CUDA_HOME\", \"$(CUDA_HOME)\")")

# Snakemake beside the pins, which stay as they are: for workflow/Snakefile and its tests alone.
.venv/.cluster: workflow/requirements.txt .venv/.stamp
	$(python) $(pip) install --constraint $(lock) --requirement workflow/requirements.txt
	@touch $@

wanted := import sys; v = sys.version_info; sys.exit(None if (3, 11) <= v[:2] <= (3, 13) else \
	"[environment] Python 3.11, 3.12 or 3.13 is needed; $(PYTHON3) is %d.%d. Name one: make PYTHON3=python3.12" % v[:2])

$(python):
	@$(PYTHON3) -c '$(wanted)'
	@echo "[environment] creating .venv with $(PYTHON3)"
	$(create) .venv
