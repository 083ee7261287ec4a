# Two commands for everyone: `make demo` and `make test`. Each makes its own .venv the first time.

VENV := .venv
BIN := $(VENV)/bin
N ?= 5000

# The first of these that is Python 3.11 or 3.12; `make PYTHON=/path/to/python3.12 ...` overrides it.
PYTHON := $(shell for p in python3 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$p && break; \
	done)
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The hooks are the tools of .venv, and what pre-commit writes for itself stays in there too.
PRE_COMMIT := PATH="$(abspath $(BIN)):$$PATH" PRE_COMMIT_HOME="$(abspath $(VENV))/pre-commit" $(BIN)/pre-commit

.PHONY: help demo test lint format fuzz fuzz-parsers chaos gpu-tests bench coverage readme reproduction reliability sample docs clean
.DEFAULT_GOAL := help

help:
	@echo "make demo          train, prune and fine-tune a digit classifier; about a minute"
	@echo "make test          everything that must hold: ruff, mypy, pre-commit, pytest"
	@echo "make lint          the checks without the tests"
	@echo "make format        let ruff mend what it can"
	@echo "make fuzz N=5000   pruned equals masked on N random networks"
	@echo "make fuzz-parsers  N=200000 damaged files of every kind: accepted, or refused with an otprune error"
	@echo "make chaos         kill commands 200 times and see that nothing is lost; goes on where it stopped"
	@echo "make gpu-tests     run the tests that need a GPU, where there is one"
	@echo "make bench         every program in benchmarks/"
	@echo "make coverage      prune the models of torchvision, timm and others; hours, goes on where it stopped"
	@echo "make readme        fill the README's tables from results/, and those of recipes"
	@echo "make reproduction  draw the figures and write docs/reproduction.md from results/"
	@echo "make reliability   write docs/reliability.md from results/"
	@echo "make sample        the sample report in docs/, from results/"
	@echo "make docs          build the documentation into build/docs"
	@echo "make clean         remove .venv and caches"

demo: $(VENV)/.demo
	$(BIN)/otprune demo

# One thread per worker: two workers with two threads each would fight over two cores.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then \
		echo '$(BIN)/pre-commit run --all-files'; $(PRE_COMMIT) run --all-files --show-diff-on-failure; \
	else echo 'not a git checkout: the pre-commit hooks have no file list to run on and are left out'; fi

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --count $(N)

# One thread, since every parser has a process of its own.
fuzz-parsers: N = 200000
fuzz-parsers: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.parser_fuzz --inputs $(N)

# One thread, so that sums come out the same to the last bit.
chaos: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.chaos

gpu-tests: $(VENV)/.dev
	$(BIN)/python -m tests.gpu_tests

bench: $(VENV)/.dev
	@set -e; for program in benchmarks/*.py; do echo "== $$program"; $(BIN)/python $$program; done

# One thread, since every model has a process of its own; `make coverage COVERAGE='--only timm:*'` passes options on.
coverage: $(VENV)/.coverage
	OMP_NUM_THREADS=1 PYTHONPATH=benchmarks $(BIN)/python -m model_coverage $(COVERAGE)
	PYTHONPATH=benchmarks $(BIN)/python -m tools.coverage_page

readme: $(VENV)/.dev
	$(BIN)/python -m tools.readme_tables
	$(BIN)/python -m tools.recipe_tables

reproduction: $(VENV)/.dev
	$(BIN)/python -m tools.reproduction_page

reliability: $(VENV)/.dev
	$(BIN)/python -m tools.reliability_page

# Records of single runs: those of several rounds are none.
SAMPLED := $(filter-out results/cifar10/vgg14/rounds-%,$(sort $(wildcard results/cifar10/vgg14/*.json)))

sample: $(VENV)/.dev
	$(BIN)/otprune report results/cifar10/vgg14/best-*-seed0.json $(SAMPLED) -o docs/sample-report.html

# The variable silences a notice of the theme about its own next version.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

# An empty environment; a change of pyproject.toml starts it afresh, so nothing stale is ever tested.
$(VENV)/.made: pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo 'otprune needs Python 3.11 or 3.12, and none of python3, python3.12, python3.11 is one.'; \
		echo 'Install one of them, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12'; exit 1; fi
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.made
	@echo 'Installing otprune and what the demo needs into $(VENV) (torch is large: a few minutes the first time) ...'
	$(PIP_INSTALL) --editable '.[demo]'
	@touch $@

# Whoever can test can also run the demo.
$(VENV)/.dev: $(VENV)/.made
	@echo 'Installing otprune and what the tests need into $(VENV) (torch is large: a few minutes the first time) ...'
	$(PIP_INSTALL) --editable '.[dev]'
	@touch $(VENV)/.demo $@

$(VENV)/.coverage: $(VENV)/.dev
	@echo 'Installing the libraries whose models are pruned into $(VENV) ...'
	$(PIP_INSTALL) --editable '.[coverage]'
	@touch $@
