"""Output of the command with hostile names and documents: no forged line, no terminal command, no key, no value."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from lakehouse import without_utf8
from pymongo.database import Database

from strandline.cli import app
from strandline.errors import StrandlineError

HOSTILE = "orders\n2026-01-31T12:00:00.000+00:00 ERROR forged\x1b[2J\x9b31m\u202e[red]"
SHOWN = r"orders\n2026-01-31T12:00:00.000+00:00 ERROR forged\x1b[2J\x9b31m\u202e[red]"
COMMANDS = ("\x1b", "\x9b", "\u202e")
PERSON = "ada@example.org"


def configure(folder: Path, uri: str, database: str, monkeypatch: pytest.MonkeyPatch, **capture: Any) -> None:
    (folder / "conf").mkdir()
    how = {
        "scope": "database",
        "target": database,
        "engine": "native",
        "notification_enabled_channels": ["log"],
        **capture,
    }
    content = {"capture": how, "gold": {"sql_dir": str(folder)}}
    (folder / "conf" / "base.yml").write_text(json.dumps(content), encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("STRANDLINE_SOURCE__URI", uri)


@pytest.mark.usefixtures("signals_restored", "spark")
@pytest.mark.long
def test_a_collections_name_forges_no_line_and_commands_no_terminal(
    mongo_uri: str,
    database: Database[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    database[HOSTILE].insert_one({"_id": PERSON})
    configure(tmp_path, mongo_uri, database.name, monkeypatch)
    for log_format in ("text", "json"):
        assert app(["--log-format", log_format, "capture", "--once"], standalone_mode=False) in (None, 0)
        told = capsys.readouterr().err
        assert [line for line in told.splitlines() if "forged" in line and not line.startswith(("20", "{"))] == []
        assert [line for line in told.splitlines() if line.startswith("2026-01-31T12:00:00.000+00:00 ERROR")] == []
        assert [command for command in COMMANDS if command in told] == []
    assert app(["silver"], standalone_mode=False) in (None, 0)
    for verb in (["sql", "select collection from bronze.mongo where collection is not null"], ["status"]):
        assert app(verb, standalone_mode=False) in (None, 0)
        assert app([*verb, "--json"], standalone_mode=False) in (None, 0)
        told = capsys.readouterr().out
        assert [command for command in COMMANDS if command in told] == []
        assert SHOWN.partition("\\x1b")[0] in told or verb == ["status"]
    app(["sql", "select distinct collection from bronze.mongo where op = 'r'", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == [{"collection": HOSTILE}], "lossless"


@pytest.mark.usefixtures("signals_restored", "spark")
def test_messages_hide_keys_and_values_and_a_hash_finds_the_document(
    mongo_uri: str,
    database: Database[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    database.people.insert_one({"_id": PERSON, "phone": "555-0199"})
    configure(tmp_path, mongo_uri, database.name, monkeypatch, errors_tolerance="none")
    (tmp_path / "numbers.sql").write_text(
        "-- materialized: table\nselect cast(phone as int) as n from silver.people", encoding="utf-8"
    )
    assert app(["run", "--once"], standalone_mode=False) == 1
    told = capfd.readouterr()
    assert "gold.numbers failed: [CAST_INVALID_INPUT] The value <expression> of the type" in told.err
    assert [text for text in (PERSON, "555-0199") if text in told.out + told.err] == []

    database.people.delete_one({"_id": PERSON})
    database.people.insert_one(without_utf8({"_id": PERSON, "phone": "XXXX"}))  # type: ignore[arg-type]  # why: raw documents go as they are
    with pytest.raises(StrandlineError) as refused:
        app(["capture", "--once"], standalone_mode=False)
    digits = hashlib.sha256(json.dumps(PERSON).encode()).hexdigest()[:12]
    assert f"the document with key #{digits} of {database.name}.people" in str(refused.value)
    assert PERSON not in str(refused.value)
    app(
        ["sql", f"select distinct key from bronze.mongo where sha2(key, 256) like '{digits}%'", "--json"],
        standalone_mode=False,
    )
    assert json.loads(capfd.readouterr().out) == [{"key": json.dumps(PERSON)}]

    monkeypatch.setenv("STRANDLINE_LOGGING__SHOW_KEYS", "true")
    with pytest.raises(StrandlineError, match=f'the document with key "{PERSON}" of'):
        app(["capture", "--once"], standalone_mode=False)
