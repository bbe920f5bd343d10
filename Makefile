.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

bin := .venv/bin
pytest := $(bin)/python -m pytest
code := pipelines tests $(wildcard bench scripts/*.py)

.PHONY: help setup demo test test-long lint format typecheck contracts unit spark integration property faults bench docs lock clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Virtual environment, locked dependencies, Delta's JARs (once; every target calls it)
	@scripts/setup.sh

demo: setup ## Real flights through MongoDB, bronze, silver and gold; ends with the proof
	@$(bin)/strandline demo $(ARGS)

test: lint typecheck contracts ## Everything but the long tests
	@$(pytest) tests -m "not long" $(ARGS)

test-long: setup ## The tests that take minutes
	@$(pytest) tests -m long $(ARGS)

lint: setup ## Style of the code
	@$(bin)/ruff check $(code)
	@$(bin)/ruff format --check --quiet $(code)

format: setup ## Put the code into that style
	@$(bin)/ruff check --fix $(code)
	@$(bin)/ruff format $(code)

typecheck: setup ## mypy --strict on the package
	@$(bin)/mypy

contracts: setup ## Who may import whom
	@$(bin)/lint-imports --no-logo --quiet 2>/dev/null || $(bin)/lint-imports

unit: setup ## Tests without a JVM
	@$(pytest) tests/unit $(ARGS)

spark: setup ## Tests with a Spark session
	@$(pytest) tests/spark $(ARGS)

integration: setup ## Tests with a real mongod
	@$(pytest) tests/integration tests/contract -m "not long" $(ARGS)

property: setup ## Random histories: silver equals the source
	@$(pytest) tests/property -m "not long" $(ARGS)

faults: setup ## Kills, cuts and failpoints
	@$(pytest) tests/faults -m "not long" $(ARGS)

bench: setup ## Throughput against the limits of this machine
	@$(bin)/python -m bench $(ARGS)

docs: setup ## Write conf/README.md and docs/tables.md anew, from the code
	@$(bin)/python -m scripts.reference

lock: setup ## Compile requirements/*.txt anew
	@scripts/lock.sh

clean: ## Remove what was made here (the virtual environment, too)
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
