PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt

.PHONY: help setup train test test-slow test-all lint docs format bench clean

help:  ## Show these targets.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(VENV)/dev  ## Make .venv with the package and everything it is developed with.

# torch by itself and first, so that its pinned build is the one that everything else meets
$(VENV)/runtime: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) "setuptools>=77" torch
	$(INSTALL) --no-build-isolation --editable .
	touch $@

$(VENV)/dev: $(VENV)/runtime
	$(INSTALL) --no-build-isolation --editable ".[dev]"
	touch $@

train: $(VENV)/runtime  ## Train on the embedded data; the report is in the folder that it names.
	$(BIN)/spdnet train digits

test: setup  ## Run the tests, minutes on two cores.
	$(BIN)/pytest -n $(JOBS) -m "not slow"

test-slow: setup  ## Run the slow tests only.
	$(BIN)/pytest -n $(JOBS) -m slow

test-all: test test-slow  ## Run all tests.

lint: setup  ## Check style, types and spelling.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell

docs: setup  ## Build the site, without a network, in build/docs; warnings are errors.
	$(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going docs build/docs

bench: setup  ## Time a training step beside the peers that are installed.
	$(BIN)/python benchmarks/how_fast_is_a_training_step.py --seconds 8 --out benchmarks/step.json

format: setup  ## Lay out the code.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Remove .venv and caches.
	rm -rf $(VENV) build dist docs/_made docs/gallery .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
