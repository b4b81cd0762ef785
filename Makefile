# Everything a developer types. `make test` needs nothing but Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # or each of the many processes that tests start would compile everything again
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install test lint types types-torch types-docs imports unit test-left-out reproduce demo-flower docs coverage dist screenshots bench clean

# By file, on every core: the tests of a file share what they compile.
PYTEST := $(BIN)/pytest -n logical --dist loadfile
HAS_TORCH := $(BIN)/python -c 'from importlib.util import find_spec; raise SystemExit(not find_spec("torch"))'

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-13s %s\n", $$1, $$2}'

install: $(STAMP)  ## set up .venv (done once; again when pyproject.toml changes)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "guerdon needs Python >= 3.11, got %s; try make PYTHON=python3.12" % sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet 'pip>=25.1'
	$(BIN)/pip install --quiet --editable '.[all]' --group dev
	@touch $@

test: lint types imports unit  ## lint, type-check, check imports, run every quick test

lint: $(STAMP)  ## ruff: lint and format check
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)  ## basedpyright, strict; says so where code is left out because its package is not installed
	$(BIN)/basedpyright
	@if $(HAS_TORCH); then $(MAKE) --no-print-directory types-torch; else \
	echo "types: examples/paid-torch, served_torch.py and torch_loop.py are left out: PyTorch is not installed ($(BIN)/pip install torch==2.13.0)"; fi

types-torch: $(STAMP)  ## basedpyright on the code that needs PyTorch
	$(BIN)/basedpyright examples/paid-torch examples/served_torch.py examples/torch_loop.py

types-docs: $(STAMP)  ## basedpyright on the code that builds the site (needs Sphinx: make docs)
	$(BIN)/basedpyright docs/*.py

imports: $(STAMP)  ## import-linter: who may import whom
	$(BIN)/lint-imports

unit: $(STAMP)  ## pytest: tests, doctests, README examples
	$(PYTEST)

test-left-out: $(STAMP)  ## what `make test` left out here: the full-size tests, and those it skipped
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder --left-out --durations=25  # four: many wait for something

reproduce: $(STAMP)  ## every experiment of the paper at full size; writes results/report.html
	$(BIN)/guerdon reproduce --out results

demo-flower: $(STAMP)  ## paid rounds on a real Flower deployment on this machine (PyTorch where installed)
	@if $(HAS_TORCH); then app=paid-torch; else app=paid-numpy; fi; \
	$(BIN)/python -m examples.demo_flower --app $$app

docs: $(STAMP)  ## build the site into docs/_build/html; a warning is an error
	$(BIN)/pip install --quiet --group docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -b html docs docs/_build/html

screenshots: $(STAMP)  ## draw the dashboard's pictures and README's in docs/images again (needs Chromium)
	$(BIN)/python -m tools.pictures
	$(BIN)/python -m tools.screenshots

bench: $(STAMP)  ## speed and memory, as ratios against a peer in the same run
	$(BIN)/python -m benchmarks

coverage: $(STAMP)  ## run the quick tests; list the lines that none of them runs, and fail where they are too many
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n logical --dist loadfile
	$(BIN)/python -m coverage combine --quiet && $(BIN)/python -m coverage report

dist:  ## build what is released into dist/, and check it as PyPI would; publishes nothing
	rm -rf dist .venv-release && $(PYTHON) -m venv .venv-release
	.venv-release/bin/pip install --quiet 'pip>=25.1' && .venv-release/bin/pip install --quiet --group release
	.venv-release/bin/python -m build --quiet
	.venv-release/bin/twine check --strict dist/*
	.venv-release/bin/check-wheel-contents dist/*.whl
	.venv-release/bin/sp-repo-review .
	.venv-release/bin/zizmor --offline --quiet --config .github/zizmor.yml .github/workflows

clean:  ## remove .venv and caches
	rm -rf .venv .venv-release dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
