# Every command of the project. `make demo` and `make test` need Python and make, and do all set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VOTES ?= 100000
WORKERS ?= 2
STREAMS ?= 1
SEEDS ?= 1000
SEED ?=
ROUNDS ?= 30
JOBS ?= 2
ARGS ?=

.PHONY: setup demo run test infra-tools deploy plan destroy scale lint lint-all clean simulate mutants coverage bench bench-celery chaos

setup: $(VENV)/installed

$(VENV)/installed: requirements.txt tests/requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

demo: setup
	$(BIN)/python -m emulator.demo --votes $(VOTES) --workers $(WORKERS) --streams $(STREAMS) $(ARGS)

run: setup
	$(BIN)/python -m emulator.run --streams $(STREAMS) $(ARGS)

# Side by side, as much of it is waiting; each job starts emulators of its own. JOBS=0: one after the other, for --pdb.
test: setup
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal $(ARGS)

# What tests/infra needs beside: Terraform's stand-in provider and the policy scanner, each in a venv of its own.
infra-tools: .venv-tf/installed .venv-checkov/installed

.venv-tf/installed .venv-checkov/installed: tests/infra/requirements-tf.txt tests/infra/requirements-checkov.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r tests/infra/requirements-$(patsubst .venv-%/installed,%,$@).txt
	touch $@

# A deployment: make deploy PROJECT=… [REGION=…] [VARS=infra/terraform/examples/evening.tfvars]; see infra/terraform.
REGION ?= us-central1
VARS ?= infra/terraform/examples/smallest.tfvars

deploy plan destroy:
	$(PYTHON) -m infra.deploy $@ --project "$(PROJECT)" --region "$(REGION)" --variables "$(VARS)" $(ARGS)

scale:
	$(PYTHON) -m infra.deploy scale --project "$(PROJECT)" --region "$(REGION)" \
	  $(if $(filter-out file,$(origin WORKERS)),--workers "$(WORKERS)") $(ARGS)

bench: setup
	$(BIN)/python -m tests.bench $(ARGS)

# What its section `celery` needs beside redis-server.
bench-celery: .venv-celery/installed

.venv-celery/installed: tests/bench/requirements-celery.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

simulate: setup
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos: setup
	$(BIN)/python -m tests.chaos --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

# One small change at a time to the code that counts, for each of which a unit test must fail. Takes ten minutes.
mutants: .venv-mutants/installed
	.venv-mutants/bin/python -m tests.mutants $(ARGS)

.venv-mutants/installed: requirements.txt tests/requirements.txt tests/mutants/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r tests/mutants/requirements.txt
	touch $@

# Branch coverage of the vote pipeline by its unit tests, and the few lines that are left out of it.
coverage: export COVERAGE_RCFILE = tests/coverage.toml
coverage: setup
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q tests/unit/votes tests/unit/web tests/unit/cli
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	$(BIN)/python -m tests.marks

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The unit tests on every supported Python that is here.
lint-all: lint
	for version in 3.11 3.12 3.13; do \
	  python$$version -c '' 2>/dev/null || { echo "lint-all: no python$$version here"; continue; }; \
	  $(MAKE) --no-print-directory setup VENV=.venv-$$version PYTHON=python$$version && \
	  .venv-$$version/bin/python -m pytest -q tests/unit || exit 1; \
	done

clean:
	rm -rf $(VENV) .venv-* .mutants .mypy_cache .pytest_cache .ruff_cache .hypothesis .tally build dist
	find . -name __pycache__ -o -name '*.egg-info' | xargs rm -rf
