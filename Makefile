# What a user and what the checks run. Each target does the set-up it needs; done before, that takes a moment.
#
#   make demo      watch an agent work, sleep and wake                 make bench     ratios against bare parts
#   make test      all tests (ARGS="-k name" for some)                 make nightly   the slow tests too
#   make check     format, lint, types, imports                        make soak      stress-ng and fio on a mount
#   make mutants   whether the tests of each row notice a broken product (ARGS="S2.14 S3" for some)
#   make cluster   faults of machines under load for MINUTES=20; SEED=7 for the faults of a run before (root)
#   make cluster-trial   a tour of the Helm chart's pods as processes on this machine (root); ARGS="--stay" until Ctrl-C
#   make browser   the page of podium up --ui in headless Chromium (apt-get install chromium)
#   make docs      write the reference from the code    make clean     remove what these made

.DEFAULT_GOAL := help
.PHONY: help setup setup-tests demo test browser check format docs bench nightly mutants soak cluster cluster-trial clean
BIN := .venv/bin
# Helm as a library, 75 MB that only the chart needs.
with_helm = $(BIN)/python -c "import helm_python, yaml" 2>/dev/null || \
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[k8s]" --config-settings editable_mode=compat
# A second type checker with a Node.js of its own, 300 MB that only the check needs.
with_pyright = $(BIN)/python -c "import basedpyright" 2>/dev/null || \
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[pyright]" --config-settings editable_mode=compat
ARGS ?=
MINUTES ?=
SEED ?=
export PYTHON

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

setup:
	@tools/setup

setup-tests:
	@tools/setup --tests

demo: setup
	@$(BIN)/python examples/demo.py $(ARGS)

# One worker more than the cores of the least machine: the tests that start Ray wait for a third of their time.
test: setup-tests
	$(BIN)/python -m pytest -n 3 --no-loadscope-reorder -m "not slow" $(ARGS)

# Apart from the other tests, because a browser is 300 MB that not every system has as a package.
browser: setup-tests
	$(BIN)/python -m pytest -n 0 tests/browser $(ARGS)

# Its models run for minutes, so a dump of their stacks after 590 s says nothing, and has ended a run.
nightly: setup-tests
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -o faulthandler_timeout=0 $(ARGS)

mutants: setup-tests
	@$(BIN)/python -m tools.mutants $(ARGS)

soak:
	@tools/setup --soak
	$(BIN)/python -m tests.soak $(ARGS)

# The test has no limit of its own: it runs for MINUTES, with faults in the order that SEED gives.
cluster: setup-tests
	MINUTES="$(MINUTES)" SEED="$(SEED)" $(BIN)/python -m pytest -o faulthandler_timeout=0 -s -m slow tests/cluster/test_faults.py $(ARGS)

cluster-trial: setup-tests
	@$(with_helm) && $(BIN)/python -m tests.k8s.tour $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(with_pyright) && $(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/import_circles.py
	$(BIN)/python -m tools.reference --check
	$(BIN)/python tools/links.py
	$(with_helm) && $(BIN)/python -m tools.chart --check
	$(BIN)/python tools/import_without.py podium.agent ray pyfuse3 sqlite3 psycopg httpx openai anthropic
	$(BIN)/python tools/import_without.py podium.models.scripted ray httpx httpx2 openai anthropic

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup
	$(BIN)/python -m tools.reference
	$(with_helm) && $(BIN)/python -m tools.chart
	$(BIN)/python tools/links.py

bench: setup
	@$(BIN)/python -c "import langgraph.checkpoint.sqlite, agents, dbos" 2>/dev/null || { \
		$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[bench]" && \
		$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt --no-deps openai-agents; }
	@$(BIN)/python -m tests.benchmarks $(ARGS)

# .venv stays: it is slow to make. `rm -rf .venv` if it is to go too.
clean:
	rm -rf .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .mutants build dist ./*.egg-info
	find . -path ./.venv -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
