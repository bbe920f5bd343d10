"""Rule of silver's MERGE: which of two rows of a key gives which columns. Pure.

Each row holds the key's newest change and its newest document, each with its own position. The larger position wins,
for the change and for the document separately. This is a join semilattice: the order, batching and repetition of rows
do not matter.

* A late READ below a tombstone fills in the tombstone's last values. It never restores the document.
* A row never mixes two lives of the name: a change of another life replaces the whole row or nothing.
* A key that the table lacks is not inserted below the purge watermark.
* A pending patch is kept, whatever its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from strandline.model.merge_rule import MergeRule

Deletes = Literal["soft", "hard"]

CHANGE_COLUMNS: Final = (
    "_position",
    "_op",
    "_deleted",
    "_cluster_time",
    "_bronze_version",
    "_collection_uuid",
    "_pending",
)
"""Columns that belong to a row's newest change. All others but the key belong to its newest document."""
_INEXACTNESS: Final = {
    name: f"CASE WHEN s._base_position IS NULL THEN coalesce(s.{name}, t.{name}) ELSE t.{name} END"
    for name in ("_exact", "_inexact_because")
}
"""Values for a row that keeps its document: a change without a document updates only the reasons for inexactness."""
_ON_KEY: Final = MergeRule(("_key",))


def merge_rule(columns: Sequence[str], *, deletes: Deletes, watermark: str, same_life: str = "true") -> MergeRule:
    """Return the rule of a MERGE of rows with these *columns*.

    Args:
        columns: Columns of `typed_rows`.
        deletes: ``hard`` clears the values of deleted documents; ``soft`` keeps the last ones.
        watermark: Purge watermark of the table.
        same_life: SQL: true if two rows belong to one life of the collection's name.
    """
    return _inserting(update_rule(columns, deletes=deletes, same_life=same_life), columns, watermark)


def insert_rule(columns: Sequence[str], *, watermark: str) -> MergeRule:
    """Return the rule of a MERGE that skips keys which the table holds."""
    return _inserting(_ON_KEY, columns, watermark)


def update_rule(columns: Sequence[str], *, deletes: Deletes, same_life: str = "true") -> MergeRule:
    """Return the rule of a MERGE that skips keys which the table lacks."""
    document = [name for name in columns if name not in (*CHANGE_COLUMNS, "_key")]
    newer, newer_document = "s._position > t._position", "s._base_position > coalesce(t._base_position, '')"
    alive = "true" if deletes == "soft" else "NOT t._deleted"
    rule, whole = _ON_KEY, [*document, *CHANGE_COLUMNS]
    if deletes == "hard":
        rule = rule.update(whole, when=f"{newer} AND s._deleted")
    rule = rule.update(whole, when=f"{newer} AND ({newer_document} OR NOT {same_life})")
    rule = rule.update(CHANGE_COLUMNS, _INEXACTNESS, when=newer)
    rule = rule.update([*document, "_pending"], when=f"{newer_document} AND {same_life} AND {alive}")
    return _waiting(rule, f"{same_life} AND {alive}")


def refused_rule(*, deletes: Deletes, same_life: str = "true") -> MergeRule:
    """Return the rule of a MERGE of rows that a constraint of the table refuses as new rows.

    A stored row keeps its document, which meets the constraint. It is deleted where it must lose the document.
    """
    newer, is_hard = "s._position > t._position", deletes == "hard"
    is_emptied = f"NOT {same_life}" + (" OR s._deleted" if is_hard else "")
    rule = _ON_KEY.delete(when=f"{newer} AND ({is_emptied})").update(CHANGE_COLUMNS, _INEXACTNESS, when=newer)
    return _waiting(rule, same_life + (" AND NOT t._deleted" if is_hard else ""))


def _waiting(rule: MergeRule, condition: str) -> MergeRule:
    """Add the clause of a late patch below the newest change."""
    waits = "cardinality(s._pending) > coalesce(cardinality(t._pending), 0)"
    return rule.update(["_pending"], _INEXACTNESS, when=f"{waits} AND {condition}")


def _inserting(rule: MergeRule, columns: Sequence[str], watermark: str) -> MergeRule:
    return rule.insert(columns, when=f"s._position >= '{watermark}'")  # positions hold no quote and no backslash
