#!/usr/bin/env bash
# Runs the tests of capture, snapshots and silver on a MongoDB of the user's own: scripts/against.sh URI [pytest's
# arguments]. They create databases named t_<hex> and drop them. Tests that break the server's answers are skipped.
# MONGODB_MOVES=yes also moves collections between the shards of a disposable cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly uri=${1:-}
readonly suites=(
    tests/versions/test_{features,silver_on_versions,cluster_moves}.py
    tests/integration/test_{pipeline,namespace_events,reply_streams,chunk_plan,filters,offsets,snapshot_modes}.py
)
[[ $uri == mongodb* ]] || { echo "against: no URI; run: make test-against URI=mongodb://user:password@host:27017/" >&2; exit 2; }
MONGODB_URI=$uri exec .venv/bin/python -m pytest "${suites[@]}" -m "not long and not sweep and not places" "${@:2}"
