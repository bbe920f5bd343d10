#!/usr/bin/env bash
# Runs every test that decides a release; -m long, -m sweep and -m places select the other tests.
# Four processes share one JVM (tests/shared_jvm.py). Each has its own Spark session and mongod.
cd "$(dirname "$0")/.." && exec .venv/bin/python -m pytest tests -m "not long and not sweep and not places" -n 4 --dist worksteal "$@"
