"""Tables of a lake, under the hands of several writers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pipelines.io.tables import Tables, schema_of
from pipelines.model.tables import TableName


def test_a_table_that_many_create_at_once_is_created_once(tables: Tables) -> None:
    schema = schema_of("a INT")
    for number in range(4):
        table = TableName("control", f"t{number}")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _, name=table: tables.create(name, schema), range(4)))  # type: ignore[misc]  # why: a default binds the loop's name
        assert tables.version(table) == 0
