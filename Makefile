# The verbs of this repository; each prints what it runs. VENV=... takes another environment, PYTHON=... another interpreter.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
SHELL  := /bin/bash

# OpenMP's threads sleep while they wait, and leave the cores to others; set it to ACTIVE to have them spin.
export OMP_WAIT_POLICY ?= PASSIVE
# Two tests at a time, one thread each. JOBS=1 for one at a time.
JOBS   ?= 2
# The folder of the CS224N course's files, for make bench.
SOURCE ?= mini
# The plugin nbval takes seconds to load, in every worker; test_nbval.py starts a pytest that has it.
PYTEST  = $(BIN)/python -m pytest -n $(JOBS) -p no:nbval
UNITS   = tests/mmlkit tests/mmlcourse

.PHONY: walkthrough test quick test-random test-gpu gpu-check browser test-browser test-colab set-repo lint smoke wheel notebooks site test-site course data bench \
        install clean help

help:                           ## what each verb does
	@sed -n 's/^\([a-z-]*\):.*##/make \1\t/p' Makefile | expand -t 20

walkthrough: install            ## run every notebook headless on the profile fast, into runs/
	$(BIN)/mmlkit run all --profile fast --out runs

test: install lint              ## everything that must hold: unit tests, parity, faults, notebooks in a smoke size
	$(PYTEST) --dist load --maxschedchunk 2

quick: install lint             ## the tests for daily work, in 2 minutes
	$(PYTEST) --dist worksteal -m "not slow"

# FIRST=6 RUNS=5 goes on with the seeds 6 to 10.
FIRST ?= 1
RUNS  ?= 20
test-random: install            ## the unit tests RUNS times, each in another order and with another hash seed
	for seed in $$(seq $(FIRST) $$(($(FIRST) + $(RUNS) - 1))); do \
	    PYTHONHASHSEED=$$seed $(PYTEST) --dist worksteal -m "not slow" --random-order-seed=$$seed $(UNITS) || exit; done

test-gpu: install               ## what needs a GPU, one test at a time; measurements go to results/
	$(BIN)/python -m pytest -m "gpu and not notebook" -rs tests/gpu
	$(BIN)/python -m pytest -m "gpu and notebook" -rs tests/gpu

gpu-check: install              ## all that only a GPU can show, in 8 minutes, into results/gpu/; DRY=1 tries it on a CPU
	$(BIN)/python benchmarks/gpu/check.py $(if $(DRY),--dry)

browser: install                ## what tests/browser needs: Playwright in .venv, and Chromium (installed if you are root)
	$(BIN)/pip install -q -e ".[browser]"
	command -v chromium || command -v chromium-browser || { [ $$(id -u) = 0 ] && apt-get install -y -qq chromium; } || \
	    { echo "Chromium is missing: apt-get install chromium" >&2; exit 1; }

# MOVES=10 moves each slider ten times there and back.
MOVES ?= 1
test-browser: browser           ## every notebook in JupyterLab and Chromium: each slider moves, one notebook at a time
	MOVES=$(MOVES) $(BIN)/python -m pytest -m browser -rs --durations=0 --durations-min=1 tests/browser

test-colab:                     ## every notebook alone, from a wheel, on the versions that Colab ships, torch aside
	$(MAKE) install VENV=.venv-colab REQUIREMENTS=requirements-colab.txt
	.venv-colab/bin/python tests/helpers/colab.py --python .venv-colab/bin/python $(NOTEBOOKS)

set-repo: install               ## REPO=owner/name: the address in notebooks, README and metadata
	$(BIN)/python notebooks/stamp.py $(if $(REPO),--repo $(REPO))

lint: install                   ## style and unused names, notebooks included; the schema of workflows
	$(BIN)/ruff check . && $(BIN)/ruff format --check --quiet .
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml

smoke: install                  ## this machine, and one notebook, in two minutes
	$(BIN)/mmlkit doctor
	$(BIN)/mmlkit run 00 --profile fast --out runs

WHEEL := .venv-wheel
wheel:                          ## wheel and sdist into dist/, and the wheel alone in an empty environment; CPU=1
	rm -rf dist build/lib build/bdist.* $(WHEEL)
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/pip install -q build
	$(WHEEL)/bin/python -m build
	$(PYTHON) -m venv --clear $(WHEEL)
	$(WHEEL)/bin/pip install -q torch==2.13.0 $(if $(CPU),--index-url https://download.pytorch.org/whl/cpu)
	$(WHEEL)/bin/pip install -q "$$(echo dist/*.whl)[minilm]"
	$(WHEEL)/bin/python tests/helpers/alone.py dist/*.whl

notebooks: install              ## rebuild the committed notebooks from notebooks/src/
	$(BIN)/python notebooks/build.py

# The site has an environment of its own. Only these two commands need node and npm.
DOCS := .venv-docs
SITE := build/site
site: $(DOCS)/.installed $(SITE)/node_modules/katex     ## the documentation site, into build/site/html
	$(DOCS)/bin/python docs/build_site.py

test-site: $(DOCS)/.installed $(SITE)/node_modules/katex $(SITE)/node_modules/axe-core  ## its tests; some need Chromium
	$(DOCS)/bin/python -m pytest -rs --confcutdir tests/site tests/site

$(DOCS)/.installed: requirements-docs.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install -q -r requirements-docs.txt
	touch $@

# KaTeX gives formulas their style sheet and fonts. It has the version that sphinxcontrib-katex bundles.
$(SITE)/node_modules/katex:    PACKAGE := katex@0.16.22
$(SITE)/node_modules/axe-core: PACKAGE := axe-core@4.14.1
$(SITE)/node_modules/katex $(SITE)/node_modules/axe-core:
	mkdir -p $(SITE)
	npm install --silent --no-package-lock --prefix $(SITE) $(PACKAGE)

# COURSE= (empty) writes the default edition into assignments/student/. RESULTS=no leaves out the experiments, 20 minutes.
COURSE ?= assignments/course.toml
OUT    ?= ../course
course: install                 ## notebooks and answers of a course, outside the repository: COURSE=../course.toml OUT=...
	$(BIN)/python assignments/course.py $(if $(COURSE),$(COURSE) --out $(OUT) $(if $(filter no,$(RESULTS)),--no-results))

data: install                   ## the measured table of data/README.md
	$(BIN)/python data/measure.py

bench: install                  ## speed beside transformers, on SOURCE, for the table of the guide
	$(BIN)/python benchmarks/speed.py --source $(SOURCE) --only step heads start --out results/speed.json
	$(BIN)/python benchmarks/speed.py --source $(SOURCE) --only predict --out results/speed_predictions.json
	$(BIN)/python benchmarks/speed_table.py
	$(BIN)/python benchmarks/multiverse.py --out results/multiverse_cost.json
	$(BIN)/python benchmarks/step_profile.py --source $(SOURCE) --only step --out results/step_profile.json
	$(BIN)/python benchmarks/step_profile.py --source $(SOURCE) --only prediction --out results/prediction_profile.json
	$(BIN)/mmlkit report results --readme

# CPU=1 takes torch's build without CUDA, which is 2 GB smaller.
REQUIREMENTS ?= requirements.txt
install: $(VENV)/.installed     ## the environment in .venv; CPU=1 for a machine without a GPU
$(VENV)/.installed: $(REQUIREMENTS) pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q torch==2.13.0 $(if $(CPU),--index-url https://download.pytorch.org/whl/cpu)
	$(BIN)/pip install -q -r $(REQUIREMENTS)
	$(BIN)/pip install -q --no-deps -e .
	$(BIN)/python -m compileall -q mmlkit mmlcourse   # pip does this for packages without -e
	touch $@

clean:                          ## remove the environment and what was run
	rm -rf $(VENV) $(WHEEL) .venv-colab $(DOCS) $(SITE) runs
