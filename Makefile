# The verbs of this repository; each prints what it runs. VENV=... takes another environment, PYTHON=... another interpreter.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
SHELL  := /bin/bash

.PHONY: walkthrough test test-colab lint notebooks data bench install clean

walkthrough: install            ## run every notebook headless on the fast profile, into runs/
	$(BIN)/mmlkit run all --profile fast --out runs --limit 10

test: install lint              ## everything that must hold: unit tests, parity, faults, notebooks, nbval
	$(BIN)/python -m pytest -m "not notebook"
	$(BIN)/python -m pytest -m notebook
	$(BIN)/python -m pytest --nbval-lax --nbval-cell-timeout 120 --timeout 300 notebooks/00_*.ipynb notebooks/01_*.ipynb

test-colab:                     ## the suite on the versions that Colab ships, torch aside
	$(MAKE) test VENV=.venv-colab REQUIREMENTS=requirements-colab.txt

lint: install                   ## style and unused names, notebooks included
	$(BIN)/ruff check .

notebooks: install              ## rebuild the committed notebooks from notebooks/src/
	$(BIN)/python notebooks/build.py

data: install                   ## the measured table of data/README.md
	$(BIN)/python data/measure.py

bench: install                  ## a training step against transformers' Trainer
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/multiverse.py

REQUIREMENTS ?= requirements.txt
install: $(VENV)/.installed
$(VENV)/.installed: $(REQUIREMENTS) pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q torch==2.13.0
	$(BIN)/pip install -q -r $(REQUIREMENTS)
	$(BIN)/pip install -q --no-deps -e .
	touch $@

clean:                          ## remove the environment and what was run
	rm -rf $(VENV) .venv-colab runs
