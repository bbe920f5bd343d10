"""All checks of `strandline doctor`, by name. The page of doctor lists them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from strandline.io.spark.older_wheel import REMEDY
from strandline.jobs.doctor.findings import Check

_CONFIGURATION: Final = (
    Check(
        "configuration.settings",
        "Files of conf, environment and options: unknown keys, wrong types, contradictions",
        "a misspelt setting would otherwise have no effect, and nobody would see it",
        "correct the named keys; strandline explain settings lists every one",
    ),
    Check(
        "configuration.files",
        "A conf folder with a file for the target",
        "in a wrong folder the defaults would begin a new lake",
        "change to the project's folder, or name its conf folder with --conf",
    ),
    Check(
        "configuration.package",
        "An older wheel of strandline, whose package was `pipelines`",
        "it hides modules of that name, also of other projects",
        REMEDY,
    ),
    Check(
        "configuration.unused",
        "Settings that are set and have no effect beside the other settings",
        "somebody expects an effect that does not come",
        "remove the setting, or set the one that it belongs to",
    ),
    Check(
        "configuration.names",
        "Collections that settings of silver and snapshots name are captured",
        "a misspelt name makes the setting apply to nothing",
        "correct the name; it is database.collection",
    ),
    Check(
        "configuration.risk",
        "Settings that lose events, show data, or open a port",
        "each is right for somebody, and should be set on purpose",
        "remove the setting, unless it is set on purpose",
    ),
)
_SOURCE: Final = (
    Check(
        "source.connection",
        "An answer of MongoDB to the configured user",
        "without it nothing can be captured",
        "set STRANDLINE_SOURCE__URI=mongodb://…",
    ),
    Check(
        "source.version",
        "Version of MongoDB, and its end of life",
        "a release after its end of life gets no security fixes",
        "upgrade MongoDB; strandline explain versions lists what each version can do",
    ),
    Check(
        "source.features",
        "What the version of MongoDB can do for change streams and snapshots",
        "an older server sends less, and Strandline goes other ways",
        "upgrade MongoDB to 6.0.9 or newer; strandline explain versions lists what each version can do",
    ),
    Check(
        "source.topology",
        "Replica set or sharded cluster, and its members",
        "change streams need a majority of members that hold data",
        "add members that hold data (rs.add)",
    ),
    Check(
        "source.identity",
        "The id of the deployment",
        "with it, Strandline refuses another deployment that has the same name",
        "grant the role clusterMonitor",
    ),
    Check(
        "source.privileges",
        "Privileges of the user",
        "Strandline only reads; a stolen password should not be able to write",
        "use a user with the role read on the captured database only (strandline explain start)",
    ),
    Check(
        "source.change_stream",
        "A change stream of the selection can be opened",
        "it is what capture reads",
        "correct capture.cursor_pipeline, or the privileges of the user (strandline explain start)",
    ),
    Check(
        "source.selection",
        "Captured collections, and filters and field rules without effect",
        "most filters that select nothing are typing errors",
        "correct the filters of capture (strandline explain capture)",
    ),
    Check(
        "source.guardrail",
        "Number of captured collections against `capture.guardrail_collections_max`",
        "a filter that is too wide captures more than anybody wants to pay for",
        "narrow capture.collection_include_list, or raise the limit",
    ),
    Check(
        "source.ids",
        "`_id` is unique in every captured collection",
        "silver has one row for each _id",
        "shard by _id, or set capture.sharded_ids_are_unique: true",
    ),
    Check(
        "source.snapshots",
        "How snapshots read documents",
        "without snapshot reads, a document may be newer than the position of its row",
        "upgrade MongoDB to 5.0 or newer",
    ),
    Check(
        "source.images",
        "Pre- and post-images of the captured collections, as `capture.mode` asks for them",
        "a collection without images cannot be captured in that mode",
        "run collMod with changeStreamPreAndPostImages for each collection (strandline explain start)",
    ),
    Check(
        "source.oplog",
        "Time that the oplog covers, in hours",
        "capture may be away no longer than this",
        "enlarge the oplog: db.adminCommand({replSetResizeOplog: 1, minRetentionHours: 72})",
    ),
    Check(
        "source.position",
        "The committed position, and the time until the oplog drops it",
        "a position that the oplog has dropped is a gap in bronze",
        "start capture, or enlarge the oplog",
    ),
    Check(
        "source.clock",
        "Clock of this machine against MongoDB's",
        "lags, ages and the times of control tables are measured with both clocks",
        "synchronize both clocks (chrony, systemd-timesyncd)",
    ),
    Check(
        "source.cluster_time",
        "Cluster time of the source, which is in every event, against this machine's clock",
        "after the clock of a member jumped ahead, lags and ages are too small, and tombstones are kept for longer",
        "synchronize the clocks of all members; the cluster time itself never goes back",
    ),
    Check(
        "source.read_preference",
        "Read preference, and a direct connection to one member",
        "it decides which member serves snapshots, and if capture survives an election",
        "name all members and the replica set; readPreference=secondaryPreferred reads from secondaries",
    ),
    Check(
        "source.tls",
        "TLS of the connection",
        "without it, documents and the password can be read on the way",
        "add tls=true to the URI (strandline explain authentication)",
    ),
)
_LAKE: Final = (
    Check(
        "lake.open",
        "The lake can be opened, and where it is",
        "in a wrong place a new lake would begin",
        "correct lake.root or lake.catalog",
    ),
    Check(
        "lake.bronze",
        "Bronze is there, and the state that an operator has set",
        "a stopped source is not captured, and its position grows old",
        "strandline start",
    ),
    Check(
        "lake.transactions",
        "How long Delta remembers which batches of bronze were committed",
        "a capture that slept for longer could commit a batch that another one has committed",
        "remove the property: ALTER TABLE … UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')",
    ),
    Check(
        "lake.format",
        "Format of the tables",
        "a table of a preview or of a newer release is not read or written",
        "strandline explain upgrades",
    ),
    Check("lake.writable", "The lake can be written", "every batch is a commit", "correct the rights, or lake.root"),
    Check(
        "lake.space",
        "Free space on the disk of a local lake",
        "a full disk stops capture, and the oplog goes on",
        "free space, or run strandline maintain",
    ),
    Check(
        "lake.log_store",
        "A second writer cannot replace a commit",
        "two captures at once must not destroy each other's batches",
        "strandline explain runbook: a lake on S3",
    ),
    Check(
        "lake.files",
        "Tables with many small files",
        "each file costs every reader and every MERGE",
        "strandline maintain",
    ),
    Check(
        "lake.maintenance",
        "Time since the last `strandline maintain`",
        "without it, files, logs and tombstones grow",
        "run strandline maintain every day (strandline explain start)",
    ),
    Check(
        "lake.retention",
        "Retention of the logs against the time that capture or silver may be away",
        "a silver that was away longer than the log of bronze reads all of bronze",
        "raise maintenance.log_retention_hours",
    ),
    Check(
        "lake.columns",
        "Silver tables that few readers can read, because of a field's name",
        "a portable table should be readable by everybody (strandline explain readers)",
        "set silver.field_name_adjustment_mode: avro_unicode, then strandline stop, rebuild and start",
    ),
    Check(
        "lake.catalog",
        "What the catalog can do: schemas and views",
        "without views, there are no live views and gold views are files",
        "strandline explain catalogs",
    ),
)
_SPARK: Final = (
    Check(
        "spark.session",
        "A Spark session can be started",
        "silver and gold need it",
        "install a JDK 17 or newer and let JAVA_HOME name it",
    ),
    Check(
        "spark.version",
        "Version of Spark, and its end of life",
        "a release after its end of life gets no fixes",
        "use Spark 4.1 or 4.2 (strandline explain spark-versions)",
    ),
    Check(
        "spark.delta",
        "JARs of Delta for this Spark",
        "the first start fetches them, and needs the network for it",
        "start once where there is a network, or install Delta with the image",
    ),
    Check(
        "spark.memory",
        "Memory of the driver against this machine's",
        "the system ends a process that takes more memory than there is",
        "set spark.driver.memory in spark.conf",
    ),
    Check(
        "spark.workers",
        "Each worker of a cluster: packages, TLS files, MongoDB, clock (`--workers`)",
        "workers read snapshots and parse large batches",
        "correct the problem on that worker, then run strandline doctor --workers",
    ),
)
_FILES: Final = (
    Check("gold.files", "SQL files of gold", "a file with a mistake stops gold", "correct the named lines"),
    Check("gold.cases", "Cases of `gold test`", "a case that is not read tests nothing", "correct the named file"),
    Check(
        "gold.names",
        "Tables that SQL files read exist",
        "gold skips what lacks an input",
        "correct the name; strandline status lists the tables",
    ),
    Check(
        "gold.orphans",
        "Gold tables that no SQL file makes",
        "their rows are old, and stay",
        "strandline gold drop NAME removes one",
    ),
    Check(
        "quality.files",
        "Suites of expectations",
        "a suite with a mistake stops the quality gate",
        "correct the named file",
    ),
    Check(
        "quality.names",
        "Tables and columns that suites check exist",
        "an expectation about a column that is not there fails",
        "correct the name; strandline schema show lists the columns",
    ),
)
CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {check.name: check for check in (*_CONFIGURATION, *_SOURCE, *_LAKE, *_SPARK, *_FILES)}
)
