#!/usr/bin/env bash
# Compiles pyproject.toml into pinned, hashed requirements. Takes uv from the PATH, or installs it into .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=$(command -v uv || true)
if [[ -z $uv ]]; then
    [[ -x .venv/bin/uv ]] || .venv/bin/python -m pip install --disable-pip-version-check --quiet uv
    uv=.venv/bin/uv
fi

compile() { # compile <file> <extra…>
    local file=requirements/$1.txt extra=()
    shift
    for name in "$@"; do extra+=(--extra "$name"); done
    echo "lock: $file"
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --custom-compile-command "make lock" "${extra[@]}" pyproject.toml -o "$file"
}

compile runtime
compile demo demo
compile dev demo dev
