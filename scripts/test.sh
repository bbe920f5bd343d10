#!/usr/bin/env bash
# Every test that decides a release (or, with -m long or -m sweep, the others), in three processes that share one JVM (tests/shared_jvm.py): each has a session and a mongod of its own.
cd "$(dirname "$0")/.." && exec .venv/bin/python -m pytest tests -m "not long and not sweep" -n 3 --dist worksteal "$@"
