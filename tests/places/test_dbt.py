"""DuckDB's own extension for Delta, and a dbt project on a lake in a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from plain_lake import build_plain_lake

from strandline.cli import app
from strandline.gold.graph import parse
from strandline.gold.view_files import duckdb_file

DBT: Final = Path(sys.prefix) / "share" / "strandline" / "dbt" / "bin"
DBT_COMMAND: Final = (DBT / "python", "-m", "dbt.cli.main")
"""Not the script ``dbt``: it names the folder in which the environment was made, before it was moved here."""
PROJECT: Final = {"name": "shop", "version": "1.0", "profile": "shop", "model-paths": ["models"]}
MODEL: Final = """{{ config(materialized="table") }}
SELECT o._id, o.total, o.customer.city AS city, o."Größe" AS size, s.orders
FROM {{ source("silver", "orders") }} o CROSS JOIN {{ source("gold", "sales") }} s WHERE NOT o._deleted
"""
QUESTION: Final = "import duckdb; print(duckdb.connect('dbt.duckdb').sql('FROM large').fetchall())"


@pytest.mark.parametrize("reader", ["delta_scan", "plugin"])
def test_dbt_reads_the_exported_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str], reader: str) -> None:
    assert (DBT / "dbt").exists(), "dbt is not there: make places fetches it"
    build_plain_lake(tmp_path / "la ke")
    (tmp_path / "base.yml").write_text(yaml.safe_dump({"lake": {"root": str(tmp_path / "la ke")}}), encoding="utf-8")
    app(["--conf", str(tmp_path), "export", "dbt-sources", "--reader", reader], standalone_mode=False)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "sources.yml").write_text(capsys.readouterr().out, encoding="utf-8")
    (tmp_path / "models" / "large.sql").write_text(MODEL, encoding="utf-8")
    (tmp_path / "dbt_project.yml").write_text(yaml.safe_dump(PROJECT), encoding="utf-8")
    output: dict[str, Any] = {"type": "duckdb", "path": "dbt.duckdb"}
    if reader == "plugin":
        output |= {"plugins": [{"module": "delta"}]}
    else:
        output |= {"extensions": ["delta"], "config_options": {"extension_directory": str(DBT.parent / "extensions")}}
    profile = {"shop": {"target": "dev", "outputs": {"dev": output}}}
    (tmp_path / "profiles.yml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    ran = run(tmp_path, *DBT_COMMAND, "build", "--profiles-dir", ".")
    assert "PASS=1" in ran
    assert run(tmp_path, DBT / "python", "-c", QUESTION) == "[(1, 2.5, 'Köln', 'XL', 1)]\n"


def test_duckdb_itself_runs_the_file_of_a_gold_view(tmp_path: Path) -> None:
    graph = parse({"live.sql": "SELECT total, customer.city FROM silver.orders WHERE NOT _deleted"})
    text = duckdb_file(build_plain_lake(tmp_path / "la ke"), graph, graph.nodes["live"], {})
    (tmp_path / "live.duckdb.sql").write_text(text, encoding="utf-8")
    folder = {"extension_directory": str(DBT.parent / "extensions")}
    asked = (
        f"import duckdb; con = duckdb.connect(config={folder!r}); con.execute('LOAD delta'); "
        "con.execute(open('live.duckdb.sql').read()); print(con.sql('FROM gold.live').fetchall())"
    )
    assert run(tmp_path, DBT / "python", "-c", asked) == "[(2.5, 'Köln')]\n"


def run(folder: Path, *command: str | Path) -> str:
    ran = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
