# Two commands do all the setting up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-oldest test-newest soak planted lock licences setup setup-dev lint docs clean

demo: setup
	$(BIN)/proud demo

test: setup-dev lint docs
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: setup-dev
	$(BIN)/python -m pytest -m slow

# kills, faults and hostile input in full size: about an hour; see docs/internals/reliability.md
soak: setup-dev
	$(BIN)/python benchmarks/soak.py

# bugs planted one by one in a copy: how many of them the tests notice; see docs/internals/reliability.md
planted: setup-dev
	$(BIN)/python benchmarks/planted.py

# slow: the whole suite with the oldest and with the newest versions of the dependencies, each in a .venv of its own
test-oldest test-newest: test-%:
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --upgrade pip packaging
	$(if $(filter oldest,$*),.venv-$*/bin/python .ci/dependencies.py oldest,:) > .venv-$*/constraints.txt
	.venv-$*/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager -c .venv-$*/constraints.txt -e '.[dev]'
	.venv-$*/bin/python -m pytest -n 2

lock: setup-dev
	$(BIN)/python .ci/dependencies.py lock

licences: setup-dev
	$(BIN)/python .ci/dependencies.py licences

lint: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# the site, build/site/index.html: a broken link, an unknown reference or a missing docstring is an error
docs: setup-dev
	$(BIN)/python -m sphinx -W --keep-going -n -q -E docs build/site

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
	rm -rf $(VENV) .venv-oldest .venv-newest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
