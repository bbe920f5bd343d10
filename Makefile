.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

bin := .venv/bin
pytest := $(bin)/python -m pytest
# A folder without tests is not an error.
run = $(if $(wildcard $(addsuffix /test_*.py,$(1))),$(pytest) $(wildcard $(1)) -m "not long and not sweep" $(ARGS),echo "no tests in $(1) yet")
code := pipelines tests $(wildcard bench scripts/*.py)

.PHONY: help setup demo test test-long lint format typecheck contracts unit spark integration property faults sweep bench docs site pictures lock clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Virtual environment, locked dependencies, Delta's JARs (once; every target calls it)
	@scripts/setup.sh

demo: setup ## Real flights through MongoDB, bronze, silver and gold; ends with the proof
	@$(bin)/strandline demo $(ARGS)

test: lint typecheck contracts site ## Everything but the long tests
	@scripts/test.sh $(ARGS)

test-long: setup ## The tests that take minutes
	@scripts/test.sh -m long $(ARGS)

lint: setup ## Style of the code
	@$(bin)/ruff check $(code)
	@$(bin)/ruff format --check --quiet $(code)
	@$(bin)/zizmor --offline --quiet --no-progress .github

format: setup ## Put the code into that style
	@$(bin)/ruff check --fix $(code)
	@$(bin)/ruff format $(code)

typecheck: setup ## mypy --strict on the package
	@$(bin)/mypy

contracts: setup ## Who may import whom
	@said=$$($(bin)/lint-imports --no-logo 2>&1) && tail -n 1 <<<"$$said" || { echo "$$said"; exit 1; }

unit: setup ## Tests without a JVM
	@$(call run,tests/unit)

spark: setup ## Tests with a Spark session
	@$(call run,tests/spark)

integration: setup ## Tests with a real mongod
	@$(call run,tests/integration tests/contract)

property: setup ## Random histories: silver equals the source
	@$(call run,tests/property)

faults: setup ## Kills, cuts and failpoints
	@$(call run,tests/faults)

sweep: setup ## End the whole way at each of its commits, one by one
	@scripts/test.sh -m sweep $(ARGS)

bench: setup ## Throughput against the limits of this machine
	@$(bin)/python -m bench $(ARGS)

docs: setup ## Write the reference pages anew, from the code
	@$(bin)/python -m scripts.reference

site: setup ## Build the documentation site, without network
	@$(bin)/python -m scripts.site
	@NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict --quiet

pictures: setup ## Make docs/pictures anew, from a run of the demo
	@$(bin)/python -m scripts.pictures $(ARGS)

lock: setup ## Compile requirements/*.txt anew
	@scripts/lock.sh

clean: ## Remove what was made here (the virtual environment, too)
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse .site site
