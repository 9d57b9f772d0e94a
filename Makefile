# fut: `make help` lists the commands.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
# Files of tests side by side, each with a thread; a file's tests share what they set up, so they stay together.
SIDE_BY_SIDE := -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# Nothing that is run here asks for an account or a key.
export WANDB_SILENT := true

.DEFAULT_GOAL := help
.PHONY: help setup run quick plan test coverage lint bench clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv and install the project at its tested versions

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "fut needs Python 3.11 or newer, this is %s; name another one: make PYTHON=python3.12 …" % sys.version.split()[0])'
	@echo 'Installing into .venv; this takes a few minutes.'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.dvc/config.local:
	@if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then :; else \
	    printf '[core]\n    no_scm = true\n' > $@; \
	    echo 'No git repository here: the pipeline runs, but `dvc exp` (experiments) is not available.'; \
	fi

run: $(READY) .dvc/config.local ## Run the studies of params.yaml to tables and pictures (dvc repro)
	$(BIN)/dvc repro
	@$(BIN)/python -m pipeline.summary

quick: $(READY) ## Run the study `quick` to its picture, in the folder quick/
	@$(BIN)/python -m pipeline.quick

plan: $(READY) ## Say what `make run` would do: cells, trials, core-hours
	@$(BIN)/python -m pipeline.plan

test: $(READY) ## Run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE)

coverage: $(READY) ## Run the tests, and say which lines and branches none of them reaches
	$(BIN)/python -m coverage erase
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest $(SIDE_BY_SIDE)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

lint: $(READY) ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) ## Measure how fast things are, and compare with the recorded figures
	@$(BIN)/python -m benchmarks

clean: ## Delete what the pipeline made, never the trial store
	rm -rf artifacts results quick dvc.lock .pytest_cache .hypothesis .coverage* .ruff_cache .mypy_cache
