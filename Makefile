# Two commands for a newcomer: `make demo` and `make test`. Each builds what it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test test-all test-papers test-slow lint format docs clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       train a small network on the digits, show its paths and kernels, and write a page"
	@echo "make test       lint, types and the library's tests: about six minutes on two cores"
	@echo "make test-all   everything: make test, the reproduction of the papers, the manual, and the slow tests"
	@echo "make docs       build the manual into build/site"
	@echo "make format     format the code with ruff"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch goes in first and by its exact version: a looser range may pull a build of several gigabytes.
$(VENV)/.user: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) $$(grep '^torch==' constraints.txt)
	$(PIP) --editable '.[report,scale]'
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

# What is not the library itself: the reproduction of the papers, the manual and the examples.
BEYOND := tests/papers tests/docs tests/examples src/neuralpath/papers
# Two processes with one thread each: the tests are small, and threads of two processes would compete for two cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" --numprocesses 2 --dist loadfile

test: lint
	$(PYTEST) $(addprefix --ignore=,$(BEYOND))

test-papers: $(VENV)/.dev
	$(PYTEST) $(BEYOND)

# One process: these tests use the whole machine by themselves.
test-slow: $(VENV)/.dev
	$(BIN)/pytest -m slow

test-all: test test-papers test-slow

# The manual has no remote parts; the variable keeps mkdocs-material from advertising.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the manual is build/site/index.html"

clean:
	rm -rf $(VENV) build dist demo
