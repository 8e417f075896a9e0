# Two commands: `make book` renders the book from recorded measurements, `make test` runs the tests.
# On a machine with a GPU: `make gpu` does everything, and `make gpu CHECK=1` says what stands before it.
PYTHON3 ?= python3#             the Python (3.11, 3.12 or 3.13) that .venv is made with
CUDA    ?= auto#                13, 12 (drivers from 525 on), or auto: what .venv has, and at first what the driver takes
GPU     ?= nvidia-h100-80gb-hbm3#  whose measurements the book shows: a folder of data/measured/; given, also where to write
STUDY   ?= all#                 what `make measure` measures: all, or studies separated by commas
CHECK   ?=#                     CHECK=1: `make gpu` says what stands before measuring here
NEW_RUN ?=#                     NEW_RUN=1: `make measure` measures everything again
STRICT  ?=#                     STRICT=1: `make book` fails where a finding of the book does not hold
WHOLE   ?=#                     WHOLE=1: `make test-deep` runs in full the sweeps that it samples: hours
PORT    ?= 8000

# Names on the command line: those above, and papermill's, gpu and source. Another name would be ignored, so it is refused.
options := PYTHON3 CUDA GPU STUDY CHECK NEW_RUN STRICT WHOLE PORT gpu source
given   := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
$(foreach name,$(filter-out $(options),$(given)),$(error $(name): there is no such option; allowed are $(options)))
$(if $(filter source,$(given)),$(if $(filter-out recorded,$(source)),$(error source=$(source): make shows what is \
	recorded; make gpu measures the card at hand and says whose folder make book GPU=... is to show)))
$(if $(filter gpu,$(given)),$(eval GPU := $(gpu)))
$(if $(filter gpu,$(given)),$(if $(filter-out $(GPU),$(gpu)),$(error GPU=$(GPU) and gpu=$(gpu): name one card)))
# Python's settings of the shell's user that would hide this folder from it, or the documentation that the book shows.
unexport PYTHONSAFEPATH PYTHONOPTIMIZE PYTHONWARNINGS

python := .venv/bin/python
pip    := -m pip --disable-pip-version-check
card   := $(if $(filter gpu GPU,$(given)),--gpu $(GPU))# the folder that measuring writes to: by the card's name
run    := PATH="$(CURDIR)/.venv/bin:$$PATH" $(python)

.PHONY: environment book test test-deep gpu measure op claims \
	counts counters sanitize resources lint serve clean

environment: .venv/.stamp

book: .venv/.stamp
	$(run) -m analysis build --gpu $(GPU) $(if $(STRICT),--strict)

test: .venv/.stamp
	$(run) -m pytest -n 2

test-deep: .venv/.transformers
	$(run) -m pytest -n 2 --dist worksteal -m deep $(if $(WHOLE),--whole)
	$(run) -m pytest -m cards

gpu: .venv/.stamp
	$(run) -m analysis gpu --study $(STUDY) $(card) $(if $(CHECK),--check)

measure: .venv/.stamp
	$(run) -m analysis measure --study $(STUDY) $(card) $(if $(NEW_RUN),--new-run)

op: .venv/.stamp
	$(run) -m analysis op $(card) $(if $(NEW_RUN),--new-run)

claims: .venv/.stamp
	$(run) -m analysis claims

counts: .venv/.stamp
	$(run) -m analysis counts

counters: .venv/.stamp
	$(run) -m analysis counters $(card) $(if $(NEW_RUN),--new-run)

sanitize: .venv/.stamp
	$(run) -m analysis sanitize $(card)

resources: .venv/.stamp
	$(run) -m analysis resources

lint: .venv/.stamp
	$(run) -m ruff check .
	$(run) -m mypy

serve: .venv/.stamp
	$(run) -m http.server --directory _build/$(GPU)/html $(PORT)

clean:
	rm -rf _build build *.egg-info book/_build .pytest_cache .mypy_cache .ruff_cache

# The environment, for a release of CUDA. The script looks whether there is anything to do.
.PHONY: .venv/.stamp
.venv/.stamp:
	@$(PYTHON3) analysis/measure/environment.py $(CUDA)

# transformers beside the pins, which stay as they are: for tests/adapter alone.
lock = requirements$(if $(filter 12,$(file < .venv/.stamp)),-cuda12).txt
.venv/.transformers: tests/adapter/requirements.txt | .venv/.stamp
	$(python) $(pip) install --constraint $(lock) --requirement tests/adapter/requirements.txt
	@touch $@
