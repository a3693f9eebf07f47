# Two commands for a newcomer: `make demo` and `make test`. Each builds what it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test test-slow lint format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       train a small network on the digits and show its paths and kernels"
	@echo "make test       lint, types and the test suite"
	@echo "make test-slow  the long checks"
	@echo "make format     let ruff put the code in order"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch goes in first and by its exact version: a looser range may pull a build of several gigabytes.
$(VENV)/.user: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) $$(grep '^torch==' constraints.txt)
	$(PIP) --editable '.[report]'
	@touch $@

$(VENV)/.dev: $(VENV)/.user
	$(PIP) --editable '.[dev]'
	@touch $@

demo: $(VENV)/.user
	$(BIN)/neuralpath demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/pytest -m "not slow"

test-slow: $(VENV)/.dev
	$(BIN)/pytest -m slow

clean:
	rm -rf $(VENV) build dist demo
