#!/usr/bin/env bash
# Runs every test that decides a release; -m long, -m sweep, -m places and -m versions select the other tests.
# Four processes share one JVM (tests/support/shared_jvm.py). Each has its own Spark session and mongod.
cd "$(dirname "$0")/.." && exec .venv/bin/python -m pytest tests -m "not long and not sweep and not places and not versions" -n 4 --dist worksteal "$@"
