.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

bin := .venv/bin
pytest := $(bin)/python -m pytest
# A folder without tests is not an error.
run = $(if $(wildcard $(addsuffix /test_*.py,$(1))),$(pytest) $(wildcard $(1)) -m "not long and not sweep and not places and not versions" $(ARGS),echo "no tests in $(1) yet")
code := pipelines tests hatch_build.py $(wildcard bench scripts/*.py)

.PHONY: help setup demo check test test-long property-long lint format typecheck contracts unit spark integration property faults sweep places test-mongo test-against test-spark bench docs site pictures lock clean

help: ## List all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Create .venv with locked dependencies and Delta's JARs (every target runs it first)
	@scripts/setup.sh

demo: setup ## Copy real flights through MongoDB, bronze, silver and gold; compare at the end
	@$(bin)/strandline demo $(ARGS)

check: setup ## Run the checks and tests of every change, in three minutes
	@$(MAKE) -j 3 --output-sync lint typecheck contracts
	@scripts/check.sh $(ARGS)

test: lint typecheck contracts site ## Run all checks and tests except the long ones
	@scripts/test.sh $(ARGS)

test-long: setup ## Run the tests that take minutes
	@scripts/test.sh -m long --ignore=tests/property $(ARGS)

property-long: setup ## Run thousands of random histories
	@$(pytest) tests/property -m long -n 4 --dist worksteal $(ARGS)

lint: setup ## Check the style of the code
	@$(bin)/ruff check $(code)
	@$(bin)/ruff format --check --quiet $(code)
	@$(bin)/zizmor --offline --quiet --no-progress .github

format: setup ## Correct the style of the code
	@$(bin)/ruff check --fix $(code)
	@$(bin)/ruff format $(code)

typecheck: setup ## Check types with mypy --strict
	@$(bin)/mypy

contracts: setup ## Check the import rules between layers
	@said=$$($(bin)/lint-imports --no-logo 2>&1) && tail -n 1 <<<"$$said" || { echo "$$said"; exit 1; }

unit: setup ## Run tests that need no JVM
	@$(call run,tests/unit)

spark: setup ## Run tests with a Spark session
	@$(call run,tests/spark)

integration: setup ## Run tests with a real mongod
	@$(call run,tests/integration tests/contract)

property: setup ## Run random histories; silver must equal the source
	@$(call run,tests/property)

faults: setup ## Run tests with kills, lost connections and failpoints
	@$(call run,tests/faults)

sweep: setup ## Kill the whole pipeline before and after each of its commits
	@scripts/test.sh -m sweep $(ARGS)

places: setup ## Run tests on real servers: S3, HDFS, catalogs, a cluster (needs Go and Maven)
	@scripts/places.sh $(ARGS)

test-mongo: setup ## Run tests on MongoDB 4.4, 5.0 and two releases of 6.0 (fetches the servers)
	@scripts/mongo.sh $(ARGS)

test-against: setup ## Run tests on a MongoDB of your own: make test-against URI=mongodb://…
	@scripts/against.sh "$(URI)" $(ARGS)

test-spark: setup ## Run the suites that need Spark with another version of it: SPARK=4.0
	@$(bin)/python -m scripts.test_spark $(SPARK) $(ARGS)

bench: setup ## Measure throughput and the limits of this machine
	@$(bin)/python -m bench $(ARGS)

docs: setup ## Write the reference pages from the code
	@$(bin)/python -m scripts.reference

site: setup ## Build the documentation site (no network needed)
	@$(bin)/python -m scripts.site
	@NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict --quiet

pictures: setup ## Make docs/pictures from a run of the demo
	@$(bin)/python -m scripts.pictures $(ARGS)

lock: setup ## Compile requirements/*.txt
	@scripts/lock.sh

clean: ## Remove all generated files, including .venv
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse .site site
