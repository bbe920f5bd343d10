#!/usr/bin/env bash
# Runs the tests that need servers, then the same suites in each place. Go builds the S3 server and Maven fetches HDFS and
# YARN, once, into the virtual environment. apt-get installs Chromium, which opens the web page.
# `scripts/places.sh s3` runs one place only: servers, s3 or hdfs.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly share=$PWD/.venv/share/strandline
readonly s3=github.com/versity/versitygw/cmd/versitygw@v1.8.0
readonly compose=github.com/compose-spec/compose-go/v2/cmd@v2.16.2
readonly hadoop=(
    org.apache.hadoop:hadoop-client-minicluster:3.5.0
    # what its classes of tests need
    org.junit.jupiter:junit-jupiter-api:5.10.2 org.junit.platform:junit-platform-commons:1.10.2 junit:junit:4.13.2
    org.opentest4j:opentest4j:1.3.0 org.apiguardian:apiguardian-api:1.1.2 org.mockito:mockito-core:4.11.0
    net.bytebuddy:byte-buddy:1.14.10 org.objenesis:objenesis:3.3 org.assertj:assertj-core:3.25.3
    # what YARN's resource manager needs
    org.bouncycastle:bcprov-jdk18on:1.82 org.bouncycastle:bcpkix-jdk18on:1.82 org.bouncycastle:bcutil-jdk18on:1.82
)
# dbt-core 1.12 needs a file that is in no package registry
readonly dbt=("dbt-core==1.11.16" "dbt-duckdb==1.11.1" "duckdb==1.5.5" "duckdb-extension-delta==1.5.5" "deltalake==1.6.6" pyarrow)
readonly suites=(
    tests/integration/test_{pipeline,small_batches,offsets,rebuild,reconcile,purge,signals}.py
    tests/faults/test_kills.py
)
readonly s3_suites=(tests/integration/test_{erase,restore,proof}.py tests/property/test_years_converge.py)

need() { # need <program> <what for>
    command -v "$1" >/dev/null || { echo "places: $1 is missing, which $2; install it" >&2; exit 1; }
}

fetch_servers() {
    if [[ ! -x $share/bin/versitygw ]]; then
        need go "builds the S3 server"
        echo "places: building $s3"
        GOBIN=$share/bin go install "$s3"
    fi
    if [[ ! -x $share/bin/compose-go ]]; then
        echo "places: building $compose"
        folder=$(mktemp -d)
        GOBIN=$folder go install "$compose"
        install "$folder/cmd" "$share/bin/compose-go"
    fi
    if [[ ! -x $share/bin/promtool ]]; then
        need apt-get "fetches promtool"
        echo "places: fetching Debian's package prometheus"
        (cd "$(mktemp -d)" && apt-get download prometheus && dpkg -x prometheus_*.deb . && install usr/bin/promtool "$share/bin/")
    fi
    if [[ ! -x $share/dbt/bin/dbt ]]; then
        echo "places: fetching dbt-duckdb"
        .venv/bin/python -m venv "$share/dbt.part"
        "$share/dbt.part/bin/python" -m pip install -q "${dbt[@]}"
        fetched=$(echo "$share"/dbt.part/lib/python*/site-packages/duckdb_extension_delta/extensions)
        for version in "$fetched"/*; do
            install -D "$version/delta.duckdb_extension" -t "$share/dbt.part/extensions/$(basename "$version")/linux_amd64"
        done
        mv "$share/dbt.part" "$share/dbt"
    fi
    for spark in 3.5 4.0; do
        folder=$share/reader-spark-$spark
        [[ -x $folder/bin/python ]] && continue
        echo "places: fetching PySpark $spark and its Delta"
        .venv/bin/python -m venv --clear "$folder.part"
        "$folder.part/bin/python" -m pip install -q --require-hashes -r "requirements/reader-spark-$spark.txt"
        mv "$folder.part" "$folder"
    done
    if ! command -v chromium chromium-browser google-chrome >/dev/null; then
        need apt-get "installs Chromium"
        echo "places: installing Debian's package chromium"
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends chromium
    fi
    # a folder that was fetched for HDFS alone lacks this file
    if [[ ! -e $share/hadoop/bcprov-jdk18on-1.82.jar ]]; then
        need mvn "fetches HDFS and YARN"
        echo "places: fetching ${hadoop[0]}"
        for artifact in "${hadoop[@]}"; do
            mvn -q dependency:copy -Dartifact="$artifact" -DoutputDirectory="$share/hadoop.part"
        done
        rm -rf "$share/hadoop"
        mv "$share/hadoop.part" "$share/hadoop"
    fi
}

run() { # run <place>
    echo "places: $1"
    if [[ $1 == servers ]]; then
        .venv/bin/python -m pytest tests -m places
    else
        local files=("${suites[@]}")
        [[ $1 == s3 ]] && files+=("${s3_suites[@]}")
        TEST_PLACE=$1 .venv/bin/python -m pytest "${files[@]}" -m "not long and not sweep and not places" -n 2 --dist worksteal
    fi
}

fetch_servers
failed=()
for place in "${@:-servers s3 hdfs}"; do
    for one in $place; do run "$one" || failed+=("$one"); done
done
[[ ${#failed[@]} -eq 0 ]] || { echo "places: failed in ${failed[*]}" >&2; exit 1; }
