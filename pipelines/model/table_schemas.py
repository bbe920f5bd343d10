"""Columns that the layers share, as DDL: `model` does not import Spark. docs/tables.md explains each."""

from __future__ import annotations

from typing import Final

from pipelines.model.tables import TableName

BRONZE_DDL: Final = """
batch BIGINT COMMENT '1, 2, 3… per source for streamed rows, the fencing number; null for snapshot rows',
position STRING COMMENT 'cluster time in hex, a colon, the token: sorts as the stream does',
op STRING COMMENT 'c insert, u update or replace, d delete, r snapshot read; also heartbeat, offset, gap, snapshot, signal, ddl, oversize',
operation_type STRING COMMENT 'MongoDB''s own word',
db STRING COMMENT 'database',
collection STRING COMMENT 'collection',
collection_uuid STRING COMMENT 'which incarnation of the collection (hex)',
document_key STRING COMMENT 'canonical Extended JSON of documentKey',
key STRING COMMENT 'the MERGE key: the normalised _id',
after STRING COMMENT 'the document as canonical Extended JSON; of a control row: what it says, as JSON',
before STRING COMMENT 'the pre-image as canonical Extended JSON',
update_description STRUCT<updated_fields: STRING, removed_fields: ARRAY<STRING>,
    truncated_arrays: ARRAY<STRUCT<field: STRING, new_size: INT>>, disambiguated_paths: STRING>,
source STRUCT<version: STRING, name: STRING, ts_ms: BIGINT, snapshot: STRING,
    ord: INT, lsid: STRING, txn_number: BIGINT, wall_time: BIGINT>,
cluster_time TIMESTAMP COMMENT 'for people; never for ordering',
captured_at TIMESTAMP COMMENT 'when the writer saw it',
snapshot_id STRING COMMENT 'for r and snapshot rows; of a signal: its key; on the row that ends a batch: the snapshot that still runs',
chunk INT COMMENT 'which chunk of the snapshot',
resume_token STRING COMMENT 'on the row that ends a batch: the token to go on from, as Extended JSON',
lineage INT COMMENT 'on the row that ends a batch: which lineage of offsets; raised by a reset, and after bronze was restored',
last_event STRING COMMENT 'on the row that ends a batch: cluster time (hex) of the last event up to here; null where none is known',
ends_outside_transaction BOOLEAN
    COMMENT 'on the row that ends a batch: the stream up to here ends inside no transaction; false or null: that is not known',
document_size INT COMMENT 'bytes of the whole document that the envelope carries; null when it carries none',
envelope BINARY COMMENT 'the change event, or the snapshot''s document, as the server sent it: raw BSON',
writer STRING COMMENT 'the run that wrote it'
"""

JSON_COLUMNS: Final = ("document_key", "after", "before", "update_description")
"""Columns of bronze that hold nothing the envelope does not; filled at capture or when read (``capture.json_columns``)."""

SILVER_BOOKKEEPING_DDL: Final = """
_key STRING COMMENT 'MERGE key: equal exactly where MongoDB calls two _ids equal',
_position STRING COMMENT 'position of the newest change',
_base_position STRING COMMENT 'position of the document that the columns show',
_op STRING COMMENT 'c, u, d or r',
_deleted BOOLEAN COMMENT 'a tombstone: the document is gone',
_cluster_time TIMESTAMP COMMENT 'cluster time of the newest change',
_bronze_version BIGINT COMMENT 'version of the bronze table that brought it; in a table that is built anew: up to which it was read',
_collection_uuid STRING COMMENT 'which incarnation of the collection it belongs to (hex); null from servers before 6.0',
_exact BOOLEAN COMMENT 'the document is the one at _base_position and lacks no later update; false: _inexact_because tells why',
_inexact_because STRING COMMENT 'why _exact is false: lookup, capped, path, oversize, waiting (docs/columns.md)',
_pending ARRAY<STRUCT<position: STRING, patch: BINARY>>
    COMMENT 'updates that wait for a document they can be folded onto; one without a patch: its document was left out',
_rescued VARIANT COMMENT 'every value that does not fit its column, by path; null when all fit',
_document BINARY COMMENT 'the whole document as raw BSON'
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

SILVER_HISTORY_DDL: Final = """
_key STRING COMMENT 'equal exactly where MongoDB calls two _ids equal',
_position STRING COMMENT 'position of the change that made this version',
_valid_to_position STRING COMMENT 'position of the change that ended it; null: it is in force',
_valid_from TIMESTAMP COMMENT 'cluster time of _position; 1970-01-01 where only a pre-image tells of the version',
_valid_to TIMESTAMP COMMENT 'cluster time of _valid_to_position; null: it is in force',
_op STRING COMMENT 'c, u, d or r; b: known from the pre-image of the change that ended it',
_deleted BOOLEAN COMMENT 'the document is gone; there are no values',
_captured_at TIMESTAMP COMMENT 'when the capture first saw it; null: no event of its own (its collection ended, a snapshot met it no more)',
_collection_uuid STRING COMMENT 'which incarnation of the collection it belongs to (hex); null from servers before 6.0',
_exact BOOLEAN COMMENT 'the document is the one at _position; false: it may be newer, or a path had two readings; null: there is none',
_patch BINARY COMMENT 'the updateDescription, where the update came without its document',
_confirmed ARRAY<STRUCT<position: STRING, captured_at: TIMESTAMP>> COMMENT 'snapshots that read this very document again',
_rescued VARIANT COMMENT 'every value that does not fit its column, by path; null when all fit',
_document BINARY COMMENT 'the whole document as raw BSON; null where it is deleted or not known'
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
"""Stands beside a document's columns on the way into its history."""

CHANGE_FEED: Final = ("_change_type", "_commit_version", "_commit_timestamp")
"""Delta's own, in the change feed of every table: it refuses a column of such a name."""

SKIPPED_BY: Final = ("batch", "lineage", "position", "op", "db", "collection", "snapshot_id")
"""Columns of bronze by whose smallest and largest value data files are skipped: for long ones (token, envelope) it would cost more."""

CHANGE_OPS: Final = ("c", "u", "d", "r")
"""Values of ``op`` that carry a document's state; all others are control rows."""

DOCUMENT_OPS: Final = (*CHANGE_OPS, "oversize")
"""Values of ``op`` of rows that tell of a change to a document, also where the document was left out."""

READ_CAPPED: Final = "read_capped"
"""``operation_type`` of a READ of a capped collection: no server reads the past of one, so the document may be newer than its position."""

SCHEMA_CHANGES: Final = TableName("control", "schema_changes")
SCHEMA_CHANGES_DDL: Final = """
at TIMESTAMP COMMENT 'when the column was changed',
table STRING COMMENT 'the silver table',
path STRING COMMENT 'names down to the column',
before STRING COMMENT 'its type before; empty: it is new',
after STRING COMMENT 'its type now',
bronze_version BIGINT COMMENT 'version of bronze that brought the first such value'
"""

SOURCES: Final = TableName("control", "sources")
SOURCES_DDL: Final = """
number BIGINT COMMENT '1, 2, 3… per source: the highest holds',
source STRING COMMENT 'the source',
state STRING COMMENT 'running, paused, stopped or deleted',
at TIMESTAMP COMMENT 'since when',
by STRING COMMENT 'who asked for it',
why STRING COMMENT 'the reason that was given'
"""

SIGNALS: Final = TableName("control", "signals")
SIGNALS_DDL: Final = """
id STRING COMMENT 'names the signal: whatever comes again under it is the same one',
type STRING COMMENT 'execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log',
data STRING COMMENT 'what it says, as a JSON object',
at TIMESTAMP COMMENT 'when it was sent: the oldest comes first',
by STRING COMMENT 'who sent it',
source STRING COMMENT 'the source that is meant; null: any',
channel STRING COMMENT 'how it came: table (or null), file or source'
"""

NOTIFICATIONS: Final = TableName("control", "notifications")
NOTIFICATIONS_DDL: Final = """
id STRING COMMENT 'the signal that asked for it; else the snapshot',
aggregate_type STRING COMMENT 'Initial Snapshot, Incremental Snapshot, Blocking Snapshot or Signal',
type STRING COMMENT 'STARTED, IN_PROGRESS, TABLE_SCAN_COMPLETED, PAUSED, RESUMED, ABORTED, SKIPPED or COMPLETED',
additional_data STRING COMMENT 'more about it, as a JSON object',
timestamp TIMESTAMP COMMENT 'when it happened',
source STRING COMMENT 'the source'
"""

DEAD_LETTERS: Final = TableName("control", "dead_letters")
DEAD_LETTERS_DDL: Final = """
id STRING COMMENT 'made of source, stage, collection, key and position: the same failure has it again',
source STRING COMMENT 'the source',
stage STRING COMMENT 'where it failed: read (the server could not send it, or it was too large to be wanted), convert (silver)',
class STRING COMMENT 'kind of the failure',
message STRING COMMENT 'what happened, without the document''s values',
position STRING COMMENT 'of the event or of the document',
db STRING COMMENT 'database',
collection STRING COMMENT 'collection',
collection_uuid STRING COMMENT 'which incarnation of the collection (hex)',
key STRING COMMENT 'the MERGE key of the document',
attempts INT COMMENT 'how often it was tried',
at TIMESTAMP COMMENT 'when it was noted first',
status STRING COMMENT 'open, replayed (read again from the source), or gone (the source has the document no more)',
replayed_at TIMESTAMP COMMENT 'when it was read again',
raw BINARY COMMENT 'raw BSON: the event without its heavy parts (read), or the document (convert)'
"""

RECONCILE: Final = TableName("control", "reconcile")
RECONCILE_DDL: Final = """
run_id STRING COMMENT 'one call of reconcile',
at TIMESTAMP COMMENT 'when it began',
source STRING COMMENT 'the source',
db STRING COMMENT 'database',
collection STRING COMMENT 'collection',
kind STRING COMMENT 'missing (the source has it, silver not), extra (the other way round), or different',
key STRING COMMENT 'the MERGE key of the document',
identifier BINARY COMMENT 'raw BSON: the document {_id: value}',
position STRING COMMENT 'of the row in silver; null where there is none',
compared_at STRING COMMENT 'position of the source at the first look',
confirmed BOOLEAN COMMENT 'the second look, at a later cluster time, found the same; false: it passed',
repaired_at TIMESTAMP COMMENT 'when the document, or its absence, was read again into bronze'
"""

CUTS: Final = TableName("control", "cuts")
CUTS_DDL: Final = """
cut BIGINT COMMENT '1, 2, 3… per bronze table',
bronze STRING COMMENT 'id of the bronze table',
bronze_version BIGINT COMMENT 'the version up to which all tables are complete',
position STRING COMMENT 'the newest event in them; null: a snapshot alone',
read_position STRING COMMENT 'the newest position at which a snapshot read',
cluster_time TIMESTAMP COMMENT 'of position, for people',
published_at TIMESTAMP COMMENT 'when the silver run ended',
exact BOOLEAN COMMENT 'the tables show the source as it was at position, all of them',
inexact_reasons ARRAY<STRING> COMMENT 'why it is not exact: snapshot, gap, lookup; and of single rows: oversize, path, waiting',
tables ARRAY<STRUCT<name: STRING, version: BIGINT>> COMMENT 'each silver table, and the version of it to read'
"""


QUALITY: Final = TableName("control", "quality")
QUALITY_DDL: Final = """
run_id STRING COMMENT 'one call of quality run or replay, or one gate in front of gold',
ran_at TIMESTAMP COMMENT 'when it ran',
table STRING COMMENT 'the table that was checked',
table_id STRING COMMENT 'tells it from one that was made anew under its name',
table_version BIGINT COMMENT 'the version that was checked',
scope STRING COMMENT 'all rows, changed ones, or those in quarantine (replay)',
version_from BIGINT COMMENT 'changed: since this version, exclusive',
position_from STRING COMMENT 'changed: oldest position among the rows checked',
position_to STRING COMMENT 'newest position among the rows checked',
suite STRING COMMENT 'name of the file in conf/quality',
suite_hash STRING COMMENT 'differs when the suite says something else',
expectation STRING COMMENT 'its name',
column STRING COMMENT 'the column it is about, where it is about one',
kwargs STRING COMMENT 'its arguments as JSON',
success BOOLEAN COMMENT 'outcome is passed',
outcome STRING COMMENT 'passed, failed, or error: the check itself broke',
observed STRING COMMENT 'what was seen, as JSON; failing rows by key under rows',
unexpected_count BIGINT COMMENT 'rows that failed',
on_failure STRING COMMENT 'warn, quarantine or block'
"""


def bronze_table(source: str) -> TableName:
    return TableName("bronze", source)
