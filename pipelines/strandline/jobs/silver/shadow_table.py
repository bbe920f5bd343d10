"""Shadow tables: a rebuild fills a new one, and checks that it is complete before rows of silver are replaced."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from strandline.errors import ConfigurationError, ContractError
from strandline.io.tables.table_store import TableStore
from strandline.io.tables.table_swap import discard
from strandline.model.tables import TableName
from strandline.silver.rebuild_diff import Differences

_log = logging.getLogger("strandline.rebuild")


@contextmanager
def new_shadow(tables: TableStore, table: TableName) -> Iterator[TableName]:
    """Provide the unique name of a shadow table, and drop the table at the end.

    I/O: first drops shadow tables that killed rebuilds of *table* have left.

    Effects on failure:
        A shadow table that cannot be dropped stays in ``control``. No later rebuild reads it.
    """
    for name in tables.names("control"):
        if name.shadow_of == table.name:
            _remove(tables, name)
    shadow = table.new_shadow()
    try:
        yield shadow
    finally:
        _remove(tables, shadow)


def _remove(tables: TableStore, shadow: TableName) -> None:
    try:
        discard(tables, shadow)
    except ConfigurationError as error:
        _log.warning("%s", error)


class Shadow(Protocol):
    """The work on a shadow table whose rows are complete."""

    def lacking_keys(self) -> int:
        """I/O: returns the number of keys that bronze has and the shadow lacks."""

    def leave_out_refused(self, *, records: bool) -> None:
        """I/O: removes the rows that break a constraint of the table. *records*: writes dead letters, too."""

    def differences(self) -> Differences:
        """I/O: compares the table with the shadow."""

    def replace_table(self) -> None:
        """I/O: one commit replaces the content of the table by the shadow's; another one enables the change feed.

        Raises:
            OvertakenError: Another commit came first. Nothing was replaced.
        """


def require_all_keys(shadow: Shadow, table: TableName) -> None:
    """Require that the shadow table has every key of bronze, before its rows replace rows of *table*.

    I/O: reads the shadow and bronze.

    Raises:
        ContractError: The shadow lacks a key. Nothing was replaced.
    """
    if count := shadow.lacking_keys():
        raise ContractError(
            f"the rebuilt {table} lacks {count} keys that bronze has, so {table} stays as it is",
            next_step=f"strandline rebuild {table} --dry-run; if it says the same, report it as a defect",
        )
