#!/usr/bin/env bash
# Every test that decides a release, in two processes side by side, each with a Spark session and a mongod of its own: what one session
# does for a handful of rows keeps a single core busy. Options go to both.
cd "$(dirname "$0")/.." || exit 1
readonly pytest=(.venv/bin/python -m pytest -m "not long")
readonly no_tests=5
readonly moved='tests/integration/test_s*.py' # to the other side, so that both take about as long

said=$(mktemp)
# shellcheck disable=SC2086
"${pytest[@]}" tests/unit tests/contract tests/spark tests/property tests/faults $moved "$@" >"$said" 2>&1 &
other=$!
trap 'kill "$other" 2>/dev/null; wait "$other"; cat "$said"; rm -f "$said"' EXIT

"${pytest[@]}" tests/integration --ignore-glob="$moved" "$@"
first=$?
wait "$other"
second=$?

[[ $first == "$no_tests" ]] && first=$second
[[ $second == "$no_tests" ]] && second=$first
exit $((first > second ? first : second))
