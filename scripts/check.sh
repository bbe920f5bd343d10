#!/usr/bin/env bash
# Runs the unit tests but slow ones, and the tests elsewhere that have the marker `check`, in two processes that share
# one JVM. Properties are tried with fewer examples than in scripts/test.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t marked < <(grep -rl --include='test_*.py' 'pytest.mark.check' tests)
exec .venv/bin/python -m pytest tests/unit "${marked[@]}" -m "check and not long" --hypothesis-profile=quick -n 2 --dist worksteal "$@"
