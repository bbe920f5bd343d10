"""Columns of the tables, as DDL text: `model` does not import Spark. The page of tables is generated from it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from strandline.model.tables import TableName

# Columns with statistics come first: delta-rs 1.6.6 ignores statistics of columns after a column of structs.
BRONZE_DDL: Final = """
batch BIGINT COMMENT 'batch number: 1, 2, 3… per source, used for fencing; null in rows of a snapshot',
epoch INT COMMENT 'last row of a batch: epoch number; an offset reset and a restored bronze table raise it',
position STRING COMMENT 'cluster time in hex, a colon, the data of the resume token; sorts in stream order',
op STRING
    COMMENT 'c insert, u update or replace, d delete, r read by a snapshot, oversize; others: not of a document',
operation_type STRING COMMENT 'operationType of the change event',
db STRING COMMENT 'database',
collection STRING COMMENT 'collection',
collection_uuid STRING COMMENT 'UUID of the collection (hex): a new one after a drop and a creation, or a move',
snapshot_id STRING
    COMMENT 'id of the snapshot; in signal rows: key of the signal; in the last row of a batch: running snapshot',
document_key STRING
    COMMENT 'documentKey as canonical Extended JSON; null unless capture.json_columns is stored',
key STRING COMMENT 'MERGE key: the normalised _id',
after STRING
    COMMENT 'document after the change, as JSON; null unless capture.json_columns is stored; other rows: details',
before STRING COMMENT 'document before the change (pre-image), as JSON; null unless capture.json_columns is stored',
update_description STRUCT<updated_fields: STRING, removed_fields: ARRAY<STRING>,
    truncated_arrays: ARRAY<STRUCT<field: STRING, new_size: INT>>, disambiguated_paths: STRING>
    COMMENT 'fields that an update changed, values as JSON; null unless capture.json_columns is stored',
source STRUCT<version: STRING, name: STRING, ts_ms: BIGINT, snapshot: STRING,
    ord: INT, lsid: STRING, txn_number: BIGINT, wall_time: BIGINT>
    COMMENT 'as in Debezium: version of Strandline, source, time, order in the second, transaction, wall clock',
cluster_time TIMESTAMP COMMENT 'cluster time of the event, for display; order by position instead',
captured_at TIMESTAMP COMMENT 'time at which capture received the event',
chunk INT COMMENT 'number of the snapshot chunk',
resume_token STRING COMMENT 'last row of a batch: resume token from which capture continues, as Extended JSON',
last_event STRING COMMENT 'last row of a batch: cluster time (hex) of the newest event so far; null: unknown',
ends_outside_transaction BOOLEAN
    COMMENT 'last row of a batch: true if the batch ends outside a transaction; false or null: unknown',
document_size INT
    COMMENT 'size of the whole document in the envelope, in bytes; null: the envelope holds no whole document',
envelope BINARY COMMENT 'change event, or document of a snapshot, as the server sent it (raw BSON)',
writer STRING COMMENT 'run that wrote the row: host, process id, start, and a hash of the machine, with / between them'
"""

JSON_COLUMNS: Final = ("document_key", "after", "before", "update_description")
"""Bronze columns that repeat content of the envelope. They are filled at capture or at read (``capture.json_columns``).
"""

SILVER_BOOKKEEPING_DDL: Final = """
_key STRING COMMENT 'MERGE key: two keys are equal if and only if MongoDB treats the two _ids as equal',
_position STRING COMMENT 'position of the newest change',
_base_position STRING
    COMMENT 'position of the change or read whose document the columns show; later updates are in _pending',
_op STRING COMMENT 'operation of the newest change: c insert, u update, d delete, r snapshot read',
_deleted BOOLEAN COMMENT 'true: tombstone of a deleted document',
_cluster_time TIMESTAMP COMMENT 'cluster time of the newest change',
_bronze_version BIGINT
    COMMENT 'bronze version with the newest change, or up to which a run read all of bronze, as a rebuild does',
_collection_uuid STRING COMMENT 'UUID of the collection at the newest change (hex); null with servers before 6.0',
_exact BOOLEAN
    COMMENT 'true: the document is exact at _base_position and lacks no later update; false: see _inexact_because',
_inexact_because STRING
    COMMENT 'reason why _exact is false: lookup, capped, path, oversize, waiting (strandline explain columns)',
_pending ARRAY<STRUCT<position: STRING, patch: BINARY>>
    COMMENT 'updates that are not applied yet, as the document before them is missing; patch null: it was too large',
_rescued VARIANT COMMENT 'values that do not fit their columns, by path; null: all values fit',
_document BINARY COMMENT 'whole document as raw BSON; null: deleted, or no whole document has come yet'
"""

BOOKKEEPING: Final = (
    "_key",
    "_position",
    "_base_position",
    "_op",
    "_deleted",
    "_cluster_time",
    "_bronze_version",
    "_collection_uuid",
    "_exact",
    "_inexact_because",
    "_pending",
    "_rescued",
    "_document",
)

HIDDEN: Final = tuple(name for name in BOOKKEEPING if name not in ("_key", "_rescued"))
"""Bookkeeping columns that people rarely need: a view of live documents leaves them out. ``_rescued`` has values."""


def has_bookkeeping(columns: Collection[str]) -> bool:
    """Return True if *columns* are those of a silver table."""
    return set(BOOKKEEPING) <= set(columns)


SILVER_HISTORY_DDL: Final = """
_key STRING COMMENT 'MERGE key: two keys are equal if and only if MongoDB treats the two _ids as equal',
_position STRING COMMENT 'position of the change that created this version',
_valid_to_position STRING COMMENT 'position of the change that ended this version; null: current version',
_valid_from TIMESTAMP
    COMMENT 'cluster time of _position; 1970-01-01: unknown, as the version is known from a pre-image only',
_valid_to TIMESTAMP COMMENT 'cluster time of _valid_to_position; null: current version',
_op STRING
    COMMENT 'c insert, u update, d delete, r snapshot read; b: known from the pre-image of the change that ended it',
_deleted BOOLEAN COMMENT 'true: the document was deleted and has no values',
_captured_at TIMESTAMP
    COMMENT 'time at which capture saw the version; null: no event (collection dropped, or missing in a snapshot)',
_collection_uuid STRING COMMENT 'UUID of the collection at the newest change (hex); null with servers before 6.0',
_exact BOOLEAN
    COMMENT 'true: document as it was at _position; false: maybe a later one, or an ambiguous path; null: no document',
_patch BINARY COMMENT 'updateDescription of an update without its document',
_confirmed ARRAY<STRUCT<position: STRING, captured_at: TIMESTAMP>>
    COMMENT 'snapshots that read the same document again',
_rescued VARIANT COMMENT 'values that do not fit their columns, by path; null: all values fit',
_document BINARY COMMENT 'whole document as raw BSON; null: deleted or unknown'
"""

HISTORY_BOOKKEEPING: Final = (
    "_key",
    "_position",
    "_valid_to_position",
    "_valid_from",
    "_valid_to",
    "_op",
    "_deleted",
    "_captured_at",
    "_collection_uuid",
    "_exact",
    "_patch",
    "_confirmed",
    "_rescued",
    "_document",
)

HISTORY_ACTION: Final = "_strandline_action"
"""Helper column of the source of the history MERGE. It is not stored."""

SKIPPED_BY: Final = ("batch", "epoch", "position", "op", "db", "collection", "snapshot_id")
"""Bronze columns with file statistics for data skipping. Statistics of long columns (token, envelope) would cost more.
"""

FEW_VALUES: Final = (
    *("batch", "op", "operation_type", "db", "collection", "collection_uuid", "cluster_time", "captured_at"),
    *("snapshot_id", "chunk", "epoch", "ends_outside_transaction", "writer"),
    *("source.version", "source.name", "source.ts_ms", "source.snapshot"),
)
"""Bronze columns with few distinct values in a data file. Nested columns by path. They are dictionary-encoded."""

CHANGE_OPS: Final = ("c", "u", "d", "r")
"""Values of ``op`` for rows with a document's state."""

DOCUMENT_OPS: Final = (*CHANGE_OPS, "oversize")
"""Values of ``op`` for rows of a change to a document, including changes whose document was left out."""

READ_CAPPED: Final = "read_capped"
"""``operation_type`` of a READ without snapshot reads (a capped collection, or MongoDB 4.4): the document may be newer.
"""

SCHEMA_CHANGES: Final = TableName("control", "schema_changes")
SCHEMA_CHANGES_DDL: Final = """
at TIMESTAMP COMMENT 'time of the change',
table STRING COMMENT 'silver table',
path STRING COMMENT 'path of the column',
before STRING COMMENT 'type before the change; empty: new column',
after STRING COMMENT 'type after the change',
bronze_version BIGINT COMMENT 'bronze version with the first value of the new type'
"""

SOURCES: Final = TableName("control", "sources")
SOURCES_DDL: Final = """
number BIGINT COMMENT '1, 2, 3… per source; the row with the highest number is current',
source STRING COMMENT 'name of the source',
state STRING COMMENT 'requested state: running, paused, stopped or deleted',
at TIMESTAMP COMMENT 'time of the request',
by STRING COMMENT 'user who made the request',
why STRING COMMENT 'reason given by the user'
"""

SIGNALS: Final = TableName("control", "signals")
SIGNALS_DDL: Final = """
id STRING COMMENT 'id of the signal; a second row with the same id is ignored',
type STRING COMMENT 'execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log',
data STRING COMMENT 'parameters of the signal, as a JSON object',
at TIMESTAMP COMMENT 'time of sending; older signals are processed first',
by STRING COMMENT 'sender',
source STRING COMMENT 'name of the source that the signal is for; null: any source',
channel STRING
    COMMENT 'way on which the signal came: table (or null: a row of this table), file, or source (a collection)'
"""

NOTIFICATIONS: Final = TableName("control", "notifications")
NOTIFICATIONS_DDL: Final = """
id STRING COMMENT 'id of the signal that requested the snapshot; without a signal: id of the snapshot',
aggregate_type STRING COMMENT 'Initial, Incremental, Blocking or Scheduled Snapshot, or Signal',
type STRING COMMENT 'STARTED, IN_PROGRESS, TABLE_SCAN_COMPLETED, PAUSED, RESUMED, ABORTED, SKIPPED or COMPLETED',
additional_data STRING COMMENT 'details, as a JSON object',
timestamp TIMESTAMP COMMENT 'time of the event',
source STRING COMMENT 'name of the source'
"""

DEAD_LETTERS: Final = TableName("control", "dead_letters")
DEAD_LETTERS_DDL: Final = """
id STRING COMMENT 'hash of source, stage, collection, key and position; the same failure has the same id',
source STRING COMMENT 'name of the source',
stage STRING COMMENT 'failed stage: read (the server could not send the event, or it was too large), convert (silver)',
class STRING COMMENT 'class of the failure',
message STRING COMMENT 'error message, without values of the document',
position STRING COMMENT 'position of the event or document',
db STRING COMMENT 'database',
collection STRING COMMENT 'collection',
collection_uuid STRING COMMENT 'UUID of the collection (hex)',
key STRING COMMENT 'MERGE key of the document',
attempts INT COMMENT 'number of attempts',
at TIMESTAMP COMMENT 'time of the first failure',
status STRING COMMENT 'open, replayed (read again from the source), or gone (the source no longer has the document)',
replayed_at TIMESTAMP COMMENT 'time of the replay',
raw BINARY COMMENT 'raw BSON: the event without its large fields (read), or the document (convert)'
"""

RECONCILE: Final = TableName("control", "reconcile")
RECONCILE_DDL: Final = """
run_id STRING COMMENT 'id of the reconcile run',
at TIMESTAMP COMMENT 'start time of the run',
source STRING COMMENT 'name of the source',
db STRING COMMENT 'database',
collection STRING COMMENT 'collection',
kind STRING
    COMMENT 'missing (in silver), extra (not in the source), different; column, history: a wrong column (--typed)',
key STRING COMMENT 'MERGE key of the document',
identifier BINARY COMMENT 'raw BSON of {_id: value}',
position STRING COMMENT 'position of the row in silver or in the history; null: silver has no row',
paths ARRAY<STRING> COMMENT 'kinds column and history: the fields that are wrong',
compared_at STRING COMMENT 'position of the source at the first comparison',
confirmed BOOLEAN
    COMMENT 'true: a second comparison, at a later cluster time, found the difference again; false: it did not',
repaired_at TIMESTAMP COMMENT 'time at which the document, or its absence, was read again into bronze'
"""

PROOF: Final = TableName("control", "proof")
PROOF_DDL: Final = """
source STRING COMMENT 'name of the source',
db STRING COMMENT 'database',
collection STRING COMMENT 'collection',
number BIGINT COMMENT 'number of the _id range in its collection: 0, 1, 2…',
lower BINARY COMMENT 'raw BSON of {_id: value}: first _id of the range; null: no lower bound',
upper BINARY COMMENT 'raw BSON of {_id: value}: first _id after the range; null: no upper bound',
planned_at TIMESTAMP COMMENT 'time at which the collection was divided into these ranges',
documents BIGINT COMMENT 'documents of the source at the newest comparison; null: not compared yet',
compared_at TIMESTAMP COMMENT 'time of the newest comparison; null: the range is compared next',
position STRING COMMENT 'newest position at which silver was equal to the source in this range; null: never',
cluster_time TIMESTAMP COMMENT 'cluster time of position, for display',
proven_at TIMESTAMP COMMENT 'time of the comparison at position',
differences BIGINT COMMENT 'differences that the newest comparison found',
run_id STRING COMMENT 'these differences are in control.reconcile under this run_id; null: there are none'
"""

CUTS: Final = TableName("control", "cuts")
CUTS_DDL: Final = """
cut BIGINT COMMENT 'number of the cut: 1, 2, 3… per bronze table',
bronze STRING COMMENT 'id of the bronze table',
bronze_version BIGINT COMMENT 'bronze version up to which all silver tables are complete',
position STRING COMMENT 'position of the newest event in the tables; null: only a snapshot so far',
read_position STRING COMMENT 'newest position at which a snapshot read',
cluster_time TIMESTAMP COMMENT 'cluster time of position, for display',
published_at TIMESTAMP COMMENT 'end of the silver run',
exact BOOLEAN COMMENT 'true: all tables show the source as it was at position',
inexact_reasons ARRAY<STRING>
    COMMENT 'reasons why exact is false: snapshot, gap, ahead, lookup; for single rows: oversize, path, waiting',
tables ARRAY<STRUCT<name: STRING, version: BIGINT>> COMMENT 'silver tables of the cut, each with the version to read'
"""


QUALITY: Final = TableName("control", "quality")
QUALITY_DDL: Final = """
run_id STRING COMMENT 'id of the quality run, replay or gate',
ran_at TIMESTAMP COMMENT 'time of the check',
table STRING COMMENT 'checked table',
table_id STRING COMMENT 'Delta table id; a table that was created again has another id',
table_version BIGINT COMMENT 'checked version of the table',
scope STRING COMMENT 'checked rows: all, changed, or quarantine (replay)',
version_from BIGINT COMMENT 'scope changed: rows changed after this version are checked',
position_from STRING COMMENT 'scope changed: oldest position of the checked rows',
position_to STRING COMMENT 'newest position of the checked rows',
suite STRING COMMENT 'name of the file in conf/quality',
suite_hash STRING COMMENT 'hash of the content of the suite',
expectation STRING COMMENT 'type of the expectation',
column STRING COMMENT 'checked column; null: the expectation is about the whole table',
kwargs STRING COMMENT 'arguments of the expectation, as JSON',
success BOOLEAN COMMENT 'true: outcome is passed',
outcome STRING COMMENT 'passed, failed, or error (the check itself failed)',
observed STRING COMMENT 'observed values, as JSON; failing rows by key, under rows',
unexpected_count BIGINT COMMENT 'number of rows that failed',
on_failure STRING COMMENT 'warn, quarantine or block'
"""

ERASURES: Final = TableName("control", "erasures")
ERASURES_DDL: Final = """
id STRING COMMENT 'id of the erasure; one row per document',
source STRING COMMENT 'name of the source',
db STRING COMMENT 'database',
collection STRING COMMENT 'collection',
key_hash STRING COMMENT 'HMAC-SHA-256 of the MERGE key; its key is the property strandline.erasure_key of this table',
names STRING COMMENT 'names of the collection before and after renames, as JSON: the erasure is for all of them',
position STRING COMMENT 'position of the source at the erasure: a capture leaves out events up to it',
requested_at TIMESTAMP COMMENT 'time of the request',
by STRING COMMENT 'user who made the request',
why STRING COMMENT 'reason given by the user',
hidden_at TIMESTAMP COMMENT 'time from which no table shows the document; null: the erasure was interrupted',
tables STRING COMMENT 'tables that may have held the document, each with its first version without it, as JSON',
gone_at TIMESTAMP COMMENT 'time from which no older version, file or log holds the document; null: some still may',
again_at TIMESTAMP COMMENT 'time at which maintain saw that the source had brought the document again; null: it has not'
"""


def bronze_table(source: str) -> TableName:
    return TableName("bronze", source)


CONTROL_TABLES: Final = (SOURCES, SIGNALS, NOTIFICATIONS, DEAD_LETTERS, CUTS, SCHEMA_CHANGES, ERASURES)
"""Control tables that commands without Spark read or write."""
