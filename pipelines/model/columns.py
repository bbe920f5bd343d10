"""Columns that the layers share, as DDL: `model` does not import Spark. docs/tables.md explains each."""

from __future__ import annotations

from typing import Final

from pipelines.model.tables import TableName

BRONZE_DDL: Final = """
batch BIGINT COMMENT '1, 2, 3… per source for streamed rows, the fencing number; null for snapshot rows',
position STRING COMMENT 'cluster time in hex, a colon, the token: sorts as the stream does',
op STRING COMMENT 'c insert, u update or replace, d delete, r snapshot read; control rows: heartbeat, offset, gap, snapshot, ddl, oversize',
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
transaction STRUCT<id: STRING, total_order: BIGINT, data_collection_order: BIGINT>,
cluster_time TIMESTAMP COMMENT 'for people; never for ordering',
captured_at TIMESTAMP COMMENT 'when the writer saw it',
snapshot_id STRING COMMENT 'for r and snapshot rows; on the row that ends a batch: the snapshot that still runs',
chunk INT COMMENT 'which chunk of the snapshot',
resume_token STRING COMMENT 'on the row that ends a batch: the token to go on from, as Extended JSON',
lineage INT COMMENT 'on the row that ends a batch: which lineage of offsets; raised by a reset, and after bronze was restored',
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
_bronze_version BIGINT COMMENT 'version of the bronze table that brought it',
_collection_uuid STRING COMMENT 'which incarnation of the collection it belongs to (hex); null from servers before 6.0',
_exact BOOLEAN COMMENT 'the document is the one at _base_position; false: it was looked up later and may be newer',
_pending ARRAY<STRUCT<position: STRING, patch: BINARY>> COMMENT 'updates that wait for a document they can be folded onto',
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
    "_pending",
    "_rescued",
    "_document",
)

CHANGE_OPS: Final = ("c", "u", "d", "r")
"""Values of ``op`` that carry a document's state; all others are control rows."""


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
state STRING COMMENT 'running, paused or stopped',
at TIMESTAMP COMMENT 'since when',
by STRING COMMENT 'who asked for it',
why STRING COMMENT 'the reason that was given'
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

SILVER_PROGRESS: Final = TableName("control", "silver_progress")
SILVER_PROGRESS_DDL: Final = """
bronze STRING COMMENT 'id of the bronze table',
db STRING COMMENT 'database',
collection STRING COMMENT 'collection',
own_version BIGINT COMMENT 'progress that the silver table itself had noted',
through_version BIGINT COMMENT 'no row of the collection stands in bronze between the two: the table is complete up to here',
came ARRAY<STRING> COMMENT 'UUIDs that came to the collection by a rename: their late rows bear an older name'
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
