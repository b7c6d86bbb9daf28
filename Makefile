# `make` lists the targets. A machine with make and Python >= 3.11 needs nothing else: the first target that is run
# builds the environment in $(VENV), and it is built anew only when the lock or pyproject.toml changes.

VENV ?= .venv
# Newest jax instead of the locked one: `make test-newest` sets it.
NEWEST :=
# Set PYTHON to choose the interpreter the environment is made with; else the newest of VERSIONS that is installed.
PYTHON ?=
VERSIONS ?= 3.13 3.12 3.11
# Two workers: more would make tests that compile compete for the cores. Each takes half of the tests as they stand, so
# that what the tests of a module share is made once, and the first to end takes over half of what the other has left.
PYTEST_FLAGS ?= -n 2 --dist worksteal

BIN := $(VENV)/bin
READY := $(VENV)/.installed

# Prints the interpreters of version $$version that run, one a line. Being on the path is not enough: version managers put
# in stubs that fail, so their own folders are looked at too.
INTERPRETERS = for python in "python$$version" /usr/bin/python$$version /usr/local/bin/python$$version \
		/opt/homebrew/bin/python$$version "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python \
		"$$HOME"/.local/share/uv/python/cpython-$$version.*/bin/python python3 python; do \
	"$$python" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')" \
		2>/dev/null && echo "$$python"; \
done

.PHONY: help venv demo test test-all test-newest lint types pytest serial parallel bench lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(READY) ## build the environment in .venv (the other targets do it when needed)

demo: $(READY) ## see the optimizer at work on a few programs
	@$(BIN)/graphopt demo

# Types are checked beside the tests, which leave a core idle here and there; not beside the serial ones.
test: lint serial ## everything that must pass: lint, types, tests
	@$(MAKE) --no-print-directory -j 2 types parallel

# An environment per version, beside the usual one: .venv-3.13 and so on.
test-all: ## the same on every Python of VERSIONS that is installed
	@tested=; failed=; for version in $(VERSIONS); do \
		python=$$($(INTERPRETERS)); python=$$(echo "$$python" | head -n 1); \
		[ -n "$$python" ] || { echo "Python $$version: not installed"; continue; }; \
		echo "Python $$version: $$python"; \
		$(MAKE) --no-print-directory VENV=.venv-$$version PYTHON="$$python" test || failed="$$failed $$version"; \
		tested="$$tested $$version"; \
	done; \
	echo "tested on:$${tested:- no Python of $(VERSIONS)}"; \
	[ -z "$$failed" ] || echo "failed on:$$failed" >&2; \
	[ -n "$$tested" ] && [ -z "$$failed" ]

# In an environment of its own, too; delete .venv-newest when a newer jax is out.
test-newest: ## the same with the newest jax there is
	@$(MAKE) --no-print-directory VENV=.venv-newest NEWEST=yes test

lint: $(READY) ## style and formatting
	@echo "ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "ruff format --check"
	@$(BIN)/ruff format --check --quiet .

types: $(READY) ## static types
	@echo "mypy"
	@$(BIN)/mypy

pytest: serial parallel

# The serial tests go first and alone, so that nothing else disturbs their timings. Only files that have some are
# collected: importing all of them takes as long as a hundred tests.
serial: $(READY)
	@files=$$(grep -rl --include='test_*.py' 'mark\.serial' tests); \
	[ -z "$$files" ] || $(BIN)/pytest -q -m serial $$files

parallel: $(READY)
	@$(BIN)/pytest -q -m "not serial" $(PYTEST_FLAGS)

bench: $(READY) ## measure on this machine
	@$(BIN)/graphopt bench

.PHONY: docs dist results
# Not --quiet: warnings that are not shown do not fail.
docs: $(READY) ## build the site of the documents into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

dist: $(READY) ## build the packages into dist/ and check them
	@$(BIN)/python -m pip install -qq --disable-pip-version-check "build" "twine"
	@rm -rf dist && $(BIN)/python -m build --quiet --outdir dist .
	@$(BIN)/python -m twine check --strict dist/*

results: $(READY) ## render tables and plots of docs/results from docs/data
	@$(BIN)/python -m benchmarks.results render

# Needs only the interpreter, not the packages: it must work while the lock does not match pyproject.toml.
lock: $(BIN)/python ## pin the newest versions that pyproject.toml allows
	@$(BIN)/python -m pip install -qq --disable-pip-version-check uv
	@$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --output-file requirements.lock --upgrade \
		--universal --python-version 3.11 --fork-strategy requires-python \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
	@echo "requirements.lock: $$(grep -c '==' requirements.lock) packages"

clean: ## remove caches and build outputs (the environment stays; delete $(VENV) to be rid of it)
	@rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -path './.venv*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@found="$(PYTHON)"; for version in $(VERSIONS); do [ -n "$$found" ] || found=$$($(INTERPRETERS)); done; \
	found=$$(echo "$${found:-python3}" | head -n 1); \
	"$$found" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "$$found is no Python >= 3.11 with the venv module;" \
		"install one, or run: make PYTHON=/path/to/python" >&2; exit 1; }; \
	echo "creating $(VENV) with $$("$$found" --version)"; \
	"$$found" -m venv $(VENV)

$(READY): requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing the locked packages into $(VENV)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-build-isolation --no-deps -e .
	@[ -z "$(NEWEST)" ] || $(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade jax jaxlib
	@touch $@
