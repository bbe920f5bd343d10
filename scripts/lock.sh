#!/usr/bin/env bash
# Compiles pyproject.toml into pinned requirements with hashes. Existing pins stay, unless UPGRADE=1.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=$(command -v uv || command -v .venv/bin/uv) || {
    echo "lock: uv not found; install uv, or run: make setup" >&2
    exit 1
}

compile() { # compile <file> <extra…>
    local file=requirements/$1.txt options=(${UPGRADE:+--upgrade})
    shift
    for name in "$@"; do options+=(--extra "$name"); done
    echo "lock: $file"
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
        --custom-compile-command "make lock" "${options[@]}" pyproject.toml -o "$file"
}

with_spark() { # with_spark <file> <minor version> <versions of delta-spark>
    local file=requirements/$1.txt
    echo "lock: $file"
    printf 'pyspark==%s.*\ndelta-spark%s\n' "$2" "$3" |
        "$uv" pip compile --quiet ${UPGRADE:+--upgrade} --universal --python-version 3.11 --generate-hashes \
            --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" - -o "$file"
}

compile runtime spark ui otel openlineage
compile demo demo
compile dev demo dev
# what scripts/spark_environment.py installs in place of dev.txt's Spark
with_spark spark-4.0 4.0 ">=4.4,<4.5"
with_spark spark-4.1 4.1 ">=4.4,<4.5"
# readers of tests/readers.yml: the Delta that was published with that Spark
with_spark reader-spark-3.5 3.5 ">=3.3,<3.4"
with_spark reader-spark-4.0 4.0 ">=4.0,<4.1"
