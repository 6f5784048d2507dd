# Everything runs in .venv, which is made on first use and again when its requirements change: EXTRAS is what midmask runs
# with, and what only tests and checks need is added when they are run.
PYTHON ?= python3
EXTRAS ?= cpu,pretrained
ARGS ?=
BIN := .venv/bin
MADE := .venv/.made
TEST_TOOLS := .venv/.dev
SITE_TOOLS := .venv/.docs
# A process of tests for each core, up to eight. What tests have in common (tests/conftest.py) is made once. The slowest
# twenty tests are printed.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup --durations 20 --durations-min 1
PAGE := dashboards/leaderboard.py
LOOPBACK := 127.0.0.1
MLFLOW_TRACKING_URI ?= sqlite:///$(CURDIR)/mlflow.db

# Tests start hundreds of processes; without compiled modules each of them would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-system test-all mutants bench fuzz chaos scale chaos-cluster races guide coverage docs check lint formatted ruff contracts reached types format venv ui leaderboard screenshots clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12        another Python, 3.11 to 3.13"
	@echo "  EXTRAS=gpu,pretrained    faiss for GPUs in place of faiss for CPUs"
	@echo "  TORCH_INDEX=URL          a package index that holds a build of torch you prefer"
	@echo "  ARGS='--corpus beir:…'   flags for the job of make demo"

demo: $(MADE) ## from nothing: local Ray, a small sweep of mask ratios on the built-in corpus, its table
	$(BIN)/python deploy/demo.py ray job submit -- jobs/demo.py $(ARGS)

test: check ## formatting, lint, types and the tests of the first tier: minutes
	$(PYTEST) -m "not system and not slow and not gpu" $(ARGS)

test-system: $(TEST_TOOLS) ## the second tier: Ray, a browser, servers, kills, full matrices
	$(PYTEST) -m "system and not slow and not gpu" $(ARGS)

test-all: check $(SITE_TOOLS) ## both tiers and the slow tests
	$(PYTEST) -m "not gpu" $(ARGS)

mutants: $(TEST_TOOLS) ## wrong changes of a branch's lines, or of ARGS=platform/…/FILE.py, that no test notices
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(TEST_TOOLS) ## speed and memory beside another way, a line each; ARGS=NAME for one
	$(BIN)/python -m tests.benchmarks $(ARGS)

fuzz: $(TEST_TOOLS) ## 20,000 bad inputs: each is read, quarantined and counted, or refused in one line
	$(BIN)/python -m tests.fuzz

chaos: $(TEST_TOOLS) ## jobs killed at 40 random moments and started again: the same results, nothing left behind
	$(BIN)/python -m tests.system.cluster --blows 40

scale: $(TEST_TOOLS) ## a cluster of machines without a common disk, in namespaces of this one (root): the same artifacts as here
	$(BIN)/python -m tests.system.cluster --where bed --blows 0

chaos-cluster: $(TEST_TOOLS) ## 30 losses of nodes and stores on that cluster: the same artifacts (root; about an hour and a half)
	$(BIN)/python -m tests.system.cluster --where bed --blows 30 --only pipeline

races: $(TEST_TOOLS) ## 50 races of two jobs for each step on one object store
	$(BIN)/python -m tests.system.cluster --where store --blows 50

guide: $(TEST_TOOLS) ## what is written by the code itself: the table of formats in docs/, the lists of all fields
	$(BIN)/python -m tests.tools.fields docs/*.md

coverage: $(MADE) ## which of the papers' printed numbers have a cell that runs, and by which command
	@$(BIN)/python -m tests.tools.coverage

docs: $(SITE_TOOLS) ## the documentation site, in site/; a broken link ends it
	$(BIN)/zensical build --strict --clean --config-file .zensical.toml

$(SITE_TOOLS): $(MADE)
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e ".[docs]" >.venv.log 2>&1 || { cat .venv.log >&2; exit 1; }
	@touch $@

# They run side by side; each prints what it has found when it ends.
check: $(TEST_TOOLS) ## what make test begins with: format, lint and types, side by side
	@$(MAKE) --no-print-directory -j4 --output-sync=target formatted ruff contracts reached types

lint: $(TEST_TOOLS) ## ruff, import contracts, and that all code is reached from what a user starts
	@$(MAKE) --no-print-directory -j3 --output-sync=target ruff contracts reached

formatted: $(TEST_TOOLS)
	$(BIN)/ruff format --check .

ruff: $(TEST_TOOLS)
	$(BIN)/ruff check .

contracts: $(TEST_TOOLS)
	$(BIN)/lint-imports --no-logo

reached: $(TEST_TOOLS)
	$(BIN)/python -m tests.tools.reachability

types: $(TEST_TOOLS) ## mypy, strict, over platform/
	$(BIN)/mypy

format: $(TEST_TOOLS) ## rewrites all Python files in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

venv: $(TEST_TOOLS) ## .venv with all that midmask, its tests and its checks need

$(MADE): pyproject.toml constraints.txt .ci/venv
	.ci/venv "$(PYTHON)" "$(EXTRAS)"
	@touch $@

$(TEST_TOOLS): $(MADE)
	.ci/venv "$(PYTHON)" "$(EXTRAS),dev"
	@touch $@

ui: $(MADE) ## MLflow's UI on the project's store
	MLFLOW_TRACKING_URI=$(MLFLOW_TRACKING_URI) $(BIN)/midmask ui

leaderboard: $(MADE) ## the leaderboard in the browser
	MLFLOW_TRACKING_URI=$(MLFLOW_TRACKING_URI) $(BIN)/streamlit run $(PAGE) --server.address $(LOOPBACK)

screenshots: $(TEST_TOOLS) ## all pages over the project's runs, light and dark, wide and narrow, in screenshots/; ARGS=--guides: docs/pictures
	$(BIN)/python -m tests.tools.screenshots --tracking-uri $(MLFLOW_TRACKING_URI) $(ARGS)

clean: ## removes .venv and caches; results (store/, mlflow.db, mlartifacts/) stay
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find platform jobs dashboards tests -name __pycache__ -type d -prune -exec rm -rf {} +
