# Two commands do all the setting up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow soak setup setup-dev lint clean

demo: setup
	$(BIN)/proud demo

test: setup-dev lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: setup-dev
	$(BIN)/python -m pytest -m slow

# kills, faults and hostile input in full size: about ten minutes; see docs/reliability.md
soak: setup-dev
	$(BIN)/python benchmarks/soak.py

lint: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "proud needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "Installing proud into $(VENV) (PyTorch is large: a few minutes and some 10 GB of disk the first time)"
	$(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo "Installing proud and its development tools into $(VENV) (PyTorch is large: a few minutes and some 10 GB of disk the first time)"
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
