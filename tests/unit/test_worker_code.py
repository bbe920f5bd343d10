"""The zip of this package that the executors of a cluster get."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import strandline
from strandline.io.spark.worker_code import write_zip
from strandline.source.uri import tls_files

_IMPORTED = "strandline.jobs.snapshot.chunk_task, strandline.silver.decode.rows, strandline.silver.batch_profile"


def test_it_holds_every_file_and_the_same_package_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        write_zip(tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    root = Path(strandline.__file__).parent
    files = {str(file.relative_to(root.parent)) for file in root.rglob("*") if file.is_file()}
    with zipfile.ZipFile(tmp_path / "a.zip") as found:
        held = set(found.namelist())
    assert held - {f"{name}c" for name in files} == {name for name in files if "__pycache__" not in name}


@pytest.mark.slow
def test_a_process_without_this_package_imports_it_from_the_zip(tmp_path: Path) -> None:
    write_zip(tmp_path / "code.zip")
    code = f"import sys; sys.path.insert(1, sys.argv[1]); import {_IMPORTED}; print(strandline.__file__)"
    command = [sys.executable, "-P", "-c", code, str(tmp_path / "code.zip")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={"PATH": ""})
    assert done.stdout.strip() == str(tmp_path / "code.zip" / "strandline" / "__init__.pyc")


def test_the_files_of_tls_are_read_from_the_uri() -> None:
    uri = "mongodb://ada:s3cret@host/?tls=true&tlsCAFile=/etc/my%20ca.pem&TLSCERTIFICATEKEYFILE=key.pem"
    assert tls_files(uri) == ["/etc/my ca.pem", "key.pem"]
    assert tls_files("mongodb://host") == []
