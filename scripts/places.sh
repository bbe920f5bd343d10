#!/usr/bin/env bash
# Runs the tests that need servers. Go builds the S3 server once, in the virtual environment.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly server=github.com/versity/versitygw/cmd/versitygw@v1.8.0
readonly bin=$PWD/.venv/share/strandline/bin

if [[ ! -x $bin/versitygw ]]; then
    command -v go >/dev/null || { echo "places: Go is missing, which builds the S3 server; install Go 1.26 or newer" >&2; exit 1; }
    echo "places: building $server"
    GOBIN=$bin go install "$server"
fi
exec .venv/bin/python -m pytest tests -m places "$@"
