#!/usr/bin/env bash
# Creates .venv with the locked dependencies, this package and Delta's JARs. Ends at once if nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly venv=.venv
readonly stamp=$venv/.strandline-setup
readonly lock=requirements/dev.txt
log=""

stop() { # prints one line: what happened; why; what to do
    printf 'setup: %s\n' "$1" >&2
    exit 1
}

finish() { # removes the log of the steps
    local code=$?
    [[ -z $log ]] || rm -f "$log"
    exit "$code"
}
trap finish EXIT

quietly() { # quietly <what failed> <what to do> <command…>
    local what=$1 remedy=$2
    shift 2
    "$@" >"$log" 2>&1 && return
    if grep -qiE 'name resolution|name or service not known|network is unreachable|NewConnectionError|UnknownHostException|ConnectTimeout|connection (refused|timed out)|max retries exceeded|\(from versions: none\)' "$log"; then
        stop "$what: no network; check the connection or the proxy settings (HTTPS_PROXY, pip's configuration), then run: make setup"
    fi
    tail -n 25 "$log" >&2
    stop "$what; $remedy"
}

supported() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; }

find_python() {
    local candidate
    if [[ -n ${PYTHON:-} ]]; then
        supported "$PYTHON" || stop "PYTHON=$PYTHON is not a Python from 3.11 to 3.13, which Spark needs; set PYTHON to such an interpreter"
        printf '%s\n' "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python; do
        if supported "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    stop "no Python from 3.11 to 3.13 found (python3 is $(python3 -V 2>/dev/null || echo missing)); install one, or run: PYTHON=/path/to/python3.11 make setup"
}

check_java() {
    local java=java version
    [[ -z ${JAVA_HOME:-} ]] || java=$JAVA_HOME/bin/java
    command -v "$java" >/dev/null || stop "no Java found (${JAVA_HOME:+JAVA_HOME=$JAVA_HOME, }'$java' does not exist); Spark needs a JDK 17 or newer; install one (Debian: openjdk-17-jdk-headless) or set JAVA_HOME"
    version=$("$java" -version 2>&1 | sed -nE 's/.*version "([0-9]+)(\.([0-9]+))?.*/\1 \3/p' | head -n 1) || true
    [[ $version == 1\ * ]] && version=${version#1 } # "1.8.0" is Java 8
    version=${version%% *}
    [[ ${version:-0} -ge 17 ]] || stop "Java ${version:-of an unknown version} is too old; Spark needs a JDK 17 or newer; install one or set JAVA_HOME to it"
}

hash_of() { "$1" -c 'import hashlib, sys; print(hashlib.sha256(b"\0".join(open(f, "rb").read() for f in sys.argv[1:])).hexdigest())' "${@:2}"; }

usable() { # false if .venv belongs to another Python, was moved (its commands contain their folder), or is incomplete
    [[ $("$venv/bin/python" -c 'import sys; print(sys.version)' 2>/dev/null) == "$("$python" -c 'import sys; print(sys.version)')" ]] &&
        grep -qsF "$PWD/$venv/bin/" "$venv/bin/pip"
}

check_java
python=$(find_python)
wanted="$(hash_of "$python" "$lock" pyproject.toml hatch_build.py java/src/io/strandline/*.java) $("$python" -c 'import sys; print(sys.version)' | tr '\n' ' ') $PWD"
[[ -f $stamp && -x $venv/bin/python && $(<"$stamp") == "$wanted" ]] && exit 0

log=$(mktemp)
printf 'setup: virtual environment in %s (%s)\n' "$venv" "$("$python" -V)"
if ! usable; then
    rm -rf "$venv"
    quietly "the virtual environment could not be created" "install Python's venv module (Debian: python3-venv)" "$python" -m venv "$venv"
fi
rm -f "$stamp"
printf 'setup: locked dependencies from %s (about 1 GB; a minute or two)\n' "$lock"
quietly "the locked dependencies could not be installed" "read the lines above" \
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --require-hashes -r "$lock"
printf 'setup: this package\n'
quietly "this package could not be installed" "read the lines above" \
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
printf "setup: Delta's JARs, kept in %s\n" "$venv/share/strandline/ivy"
quietly "Delta's JARs could not be fetched" "Maven Central must be reachable, or an Ivy cache must hold them" \
    "$venv/bin/python" -c 'from strandline.io.spark.delta_jars import cached_jars
from strandline.io.spark.session import build_session
build_session("strandline-setup", master="local[1]").range(1).count()
assert cached_jars(), "Ivy kept no JARs"'
printf '%s\n' "$wanted" >"$stamp"
printf 'setup: done\n'
