"""Virtual environments with other versions of Spark: ``.venv-spark-4.0`` and so on. Everything else is as in ``.venv``.

``python -m scripts.spark_environment 4.0`` creates or updates one, and prints the path of its Python.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
_REQUIREMENTS: Final = ROOT / "requirements"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_STAMP: Final = ".strandline-setup"


def with_another_spark(locked: str, spark: str) -> str:
    """Return *locked* with the packages of *spark* in place of its own. Both are requirements with hashes."""
    over = {_name(entry): entry for entry in _entries(spark)}
    kept = [entry for entry in _entries(locked) if _name(entry) not in over]
    return "\n".join([*kept, *over.values(), ""])


def _entries(text: str) -> list[str]:
    """Return each requirement with its hashes."""
    lines = [line for line in text.splitlines() if not line.strip().startswith("#")]
    return [entry for entry in re.split(r"\n(?=\S)", "\n".join(lines)) if entry.strip()]


def _name(entry: str) -> str:
    found = _NAME.match(entry)
    return found[0].lower() if found else ""


def versions() -> list[str]:
    """Return the versions that have an environment of their own. I/O: lists ``requirements``."""
    return sorted(file.stem.removeprefix("spark-") for file in _REQUIREMENTS.glob("spark-*.txt"))


def environment(version: str) -> Path:
    """Return the Python of the environment for a version of Spark. I/O: creates the environment, with pip."""
    folder = ROOT / f".venv-spark-{version}"
    python, stamp = folder / "bin" / "python", folder / _STAMP
    locked = [(_REQUIREMENTS / name).read_text("utf-8") for name in ("dev.txt", f"spark-{version}.txt")]
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    wanted = hashlib.sha256("\0".join([*locked, project, sys.version, str(ROOT)]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text("utf-8") == wanted:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(with_another_spark(*locked))
        file.flush()
        subprocess.run([*pip, "--require-hashes", "-r", file.name], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return python


if __name__ == "__main__":
    print(environment(sys.argv[1]))  # noqa: T201  # why: a script
