# make demo | make test | make lab-test | make check | make docs | make results | make bench | make setup
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCUMENTED := $(VENV)/.documented
WORKERS ?= 2

.PHONY: demo test lab-test check docs results setup bench clean

demo: setup  ## train the default encoder on the built-in task and show the difference
	@$(BIN)/pairtune demo

test: setup  ## the whole test suite
	$(BIN)/python -m pytest -n $(WORKERS)

lab-test: setup  ## the tests of the lab, which reproduces the paper
	$(BIN)/python -m pytest lab/tests

check: setup  ## style, types, import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

docs: $(DOCUMENTED)  ## the documentation, into site/
	@$(BIN)/python -m typer pairtune.cli utils docs --name pairtune --title 'Command line' --output docs/reference/cli.md
	@$(BIN)/pairtune recipes --markdown > docs/reference/settings.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

results: setup  ## lab/results.md, lab/evidence.md and lab/own.md, from the records in lab/results
	@$(BIN)/python -m lab tables --markdown > lab/results.md.part
	@mv lab/results.md.part lab/results.md
	@$(BIN)/python -m lab evidence > lab/evidence.md.part
	@mv lab/evidence.md.part lab/evidence.md
	@$(BIN)/python -m lab own > lab/own.md.part
	@mv lab/own.md.part lab/own.md

bench: setup  ## the benchmarks, at sizes that take a few minutes on two cores
	$(BIN)/python benchmarks/loss.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/encode.py
	$(BIN)/python benchmarks/mining.py --pairs 500
	$(BIN)/python benchmarks/ordering.py
	$(BIN)/python benchmarks/shuffle.py
	$(BIN)/python benchmarks/serve.py

setup: $(INSTALLED)  ## .venv with everything that is needed

# torch first and pinned: an open range would pull gigabytes of CUDA packages onto a machine without a GPU
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pairtune needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	@echo "setting up $(VENV): about 2 GB of packages, a few minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(INSTALLED)

$(DOCUMENTED): $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	@touch $(DOCUMENTED)

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
