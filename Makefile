PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt

.PHONY: help setup train test test-slow test-all lint docs format bench clean

help:  ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(VENV)/dev  ## Create .venv with the package and the development tools.

# Install torch first, so that all other packages use its pinned build.
$(VENV)/runtime: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) "setuptools>=77" torch
	$(INSTALL) --no-build-isolation --editable .
	touch $@

$(VENV)/dev: $(VENV)/runtime
	$(INSTALL) --no-build-isolation --editable ".[dev]"
	touch $@

train: $(VENV)/runtime  ## Train on the built-in digits and write a report to runs/digits-small.
	$(BIN)/spdnet train digits-small

test: setup  ## Run the tests (minutes on two cores).
	$(BIN)/pytest -n $(JOBS) -m "not slow"

test-slow: setup  ## Run only the slow tests.
	$(BIN)/pytest -n $(JOBS) -m slow

test-all: test test-slow  ## Run all tests.

lint: setup  ## Check style, types and spelling.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell

docs: setup  ## Build the documentation in build/docs; warnings are errors.
	$(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going docs build/docs

bench: setup  ## Time a training step, also of other installed libraries.
	$(BIN)/python benchmarks/how_fast_is_a_training_step.py --seconds 8 --out benchmarks/step.json

format: setup  ## Format the code.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Remove .venv and caches.
	rm -rf $(VENV) build dist docs/_made docs/gallery .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
