"""Checks of the source. Pure: each takes facts, and returns findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from strandline.jobs.doctor.findings import Check, Finding, doctor_check
from strandline.model.network import is_loopback
from strandline.model.resume_token import RESET_OR_HEAL
from strandline.model.source_clock import clock_jump
from strandline.model.support_dates import MONGODB, end_of_life
from strandline.source.deployment import Deployment
from strandline.source.oplog import OplogWindow

CONNECTION: Final = Check(
    "source.connection",
    "An answer of MongoDB to the configured user",
    why="without it nothing can be captured",
    fix="set STRANDLINE_SOURCE__URI=mongodb://…",
)
STREAM: Final = Check(
    "source.change_stream",
    "A change stream of the selection can be opened",
    why="it is what capture reads",
    fix="correct capture.cursor_pipeline, or the privileges of the user (strandline explain start)",
)
IDS: Final = Check(
    "source.ids",
    "`_id` is unique in every captured collection",
    why="silver has one row for each _id",
    fix="shard by _id, or set capture.sharded_ids_are_unique: true",
)
SNAPSHOTS: Final = Check(
    "source.snapshots",
    "How snapshots read documents",
    why="without snapshot reads, a document may be newer than the position of its row",
    fix="upgrade MongoDB to 5.0 or newer",
)
IMAGES: Final = Check(
    "source.images",
    "Pre- and post-images of the captured collections, as `capture.mode` asks for them",
    why="a collection without images cannot be captured in that mode",
    fix="run collMod with changeStreamPreAndPostImages for each collection (strandline explain start)",
)
_SOON_DAYS: Final = 180
_SHORT_OPLOG_HOURS: Final = 24
_CLOCK_SECONDS: Final = 1.0
_WRITES: Final = frozenset(
    {
        *("insert", "update", "remove", "bypassDocumentValidation", "createCollection", "createIndex", "collMod"),
        *("dropCollection", "dropDatabase", "dropIndex", "renameCollectionSameDB", "convertToCapped", "enableSharding"),
        *("createUser", "grantRole", "changePassword", "applyOps", "anyAction", "internal"),
    }
)
"""Actions of MongoDB that change something. Source: https://www.mongodb.com/docs/manual/reference/privilege-actions"""


@dataclass(frozen=True)
class Transport:
    """How the URI reaches the server.

    Args:
        hosts: Names without ports.
        tls: True: the connection is encrypted.
        verified: False: the URI turns off a check of the server's certificate.
        read_preference: MongoDB's name, such as ``primary``.
        direct: True: the driver talks to one member only.
    """

    hosts: tuple[str, ...]
    tls: bool
    verified: bool
    read_preference: str
    direct: bool


@dataclass(frozen=True)
class CommittedPosition:
    """The committed position, as far as it can be compared with the source.

    Args:
        batch: Number of the batch that it belongs to. None: nothing was ever captured.
        is_reset: True: an operator has reset it.
        window: The oplog, and the place of the position in it. None: there is no position.
    """

    batch: int | None = None
    is_reset: bool = False
    window: OplogWindow | None = None


def support(check: Check, product: str, version: str, last: date | None, today: date) -> Finding:
    if last is None:
        return check.info(f"{product} {version}; no end of life is known for it")
    if last < today:
        return check.warning(f"{product} {version}, whose end of life was {last}")
    if (last - today).days <= _SOON_DAYS:
        return check.info(f"{product} {version}, whose end of life is {last}", fix=check.fix)
    return check.ok(f"{product} {version}, supported until {last}")


@doctor_check(
    "source.version",
    "Version of MongoDB, and its end of life",
    why="a release after its end of life gets no security fixes",
    fix="upgrade MongoDB; strandline explain versions lists what each version can do",
)
def version(check: Check, deployment: Deployment, today: date) -> Finding:
    return support(check, "MongoDB", deployment.version, end_of_life(deployment.version, MONGODB), today)


@doctor_check(
    "source.features",
    "What the version of MongoDB can do for change streams and snapshots",
    why="an older server sends less, and Strandline goes other ways",
    fix="upgrade MongoDB to 6.0.9 or newer; strandline explain versions lists what each version can do",
)
def features(check: Check, deployment: Deployment) -> Finding:
    lacks = {
        "snapshot reads (5.0)": deployment.has_snapshot_reads,
        "pre- and post-images (6.0)": deployment.records_images,
        "UUIDs of collections in events (6.0)": deployment.shows_expanded_events,
        "splitting of large events (6.0.9)": deployment.splits_large_events,
    }
    missing = [name for name, has in lacks.items() if not has]
    return check.info(f"the server lacks {', '.join(missing)}", fix=check.fix) if missing else check.ok("all")


@doctor_check(
    "source.topology",
    "Replica set or sharded cluster, and its members",
    why="change streams need a majority of members that hold data",
    fix="add members that hold data (rs.add)",
    unknown="warning",
)
def topology(check: Check, deployment: Deployment, hello: Mapping[str, Any]) -> Finding:
    if deployment.sharded:
        return check.ok("sharded cluster")
    holding, arbiters = len(hello.get("hosts", ())) + len(hello.get("passives", ())), len(hello.get("arbiters", ()))
    what = f"replica set {deployment.set_name}, {holding} members that hold data, {arbiters} arbiters"
    if holding == 1:
        return check.info(f"{what}: nothing is captured while this one is away", fix=check.fix)
    if arbiters and holding <= 2:
        return check.warning(f"{what}: while one is away, no event reaches a change stream")
    return check.ok(what)


@doctor_check(
    "source.identity",
    "The id of the deployment",
    why="with it, Strandline refuses another deployment that has the same name",
    fix="grant the role clusterMonitor",
)
def identity(check: Check, deployment: Deployment) -> Finding:
    if "/" in deployment.identity:
        return check.ok("known")
    return check.info("the user may not read the id of the deployment", fix=check.fix)


@doctor_check(
    "source.privileges",
    "Privileges of the user",
    why="Strandline only reads; a stolen password should not be able to write",
    fix="use a user with the role read on the captured database only (strandline explain start)",
    unknown="warning",
)
def privileges(check: Check, status: Mapping[str, Any]) -> Finding:
    users = [f"{user.get('user')}@{user.get('db')}" for user in status.get("authenticatedUsers", ())]
    if not users:
        return check.warning(
            "the connection has no user: everybody who reaches the server may read and write",
            fix="start mongod with --auth and a user (strandline explain start)",
        )
    allowed = {
        action for privilege in status.get("authenticatedUserPrivileges", ()) for action in privilege.get("actions", ())
    }
    if writes := sorted(allowed & _WRITES):
        more = f" and {len(writes) - 3} more" if len(writes) > 3 else ""
        return check.warning(f"{', '.join(users)} may write: {', '.join(writes[:3])}{more}")
    return check.ok(f"{', '.join(users)} may only read")


@doctor_check(
    "source.clock",
    "Clock of this machine against MongoDB's",
    why="lags, ages and the times of control tables are measured with both clocks",
    fix="synchronize both clocks (chrony, systemd-timesyncd)",
)
def clock(check: Check, ahead: float | None, problem: str) -> Finding:
    if ahead is None:
        return check.info(f"not known: {problem or 'pymongo is not installed'}")
    text = f"this machine's clock is {abs(ahead):,.1f} s {'ahead of' if ahead > 0 else 'behind'} MongoDB's"
    return check.warning(text) if abs(ahead) > _CLOCK_SECONDS else check.ok(text)


@doctor_check(
    "source.cluster_time",
    "Cluster time of the source, which is in every event, against this machine's clock",
    why="after the clock of a member jumped ahead, lags and ages are too small, and tombstones are kept for longer",
    fix="synchronize the clocks of all members; the cluster time itself never goes back",
    unknown="warning",
)
def cluster_time(check: Check, newest: int, now: float) -> Finding:
    jump = clock_jump(newest, now)
    return check.ok("not ahead of this machine's clock") if jump is None else check.warning(jump)


@doctor_check(
    "source.read_preference",
    "Read preference, and a direct connection to one member",
    why="it decides which member serves snapshots, and if capture survives an election",
    fix="name all members and the replica set; readPreference=secondaryPreferred reads from secondaries",
)
def routing(check: Check, transport: Transport) -> Finding:
    text = f"readPreference={transport.read_preference}"
    if transport.direct:
        return check.warning(f"{text}; directConnection=true: capture ends with this member")
    if transport.read_preference == "primary":
        return check.info(f"{text}: snapshots read from the primary")
    return check.ok(text)


@doctor_check(
    "source.tls",
    "TLS of the connection",
    why="without it, documents and the password can be read on the way",
    fix="add tls=true to the URI (strandline explain authentication)",
)
def tls(check: Check, transport: Transport) -> Finding:
    if transport.tls and not transport.verified:
        return check.warning(
            "TLS is used, and the server's certificate is not checked",
            fix="remove tlsInsecure, tlsAllowInvalidCertificates and tlsAllowInvalidHostnames from the URI",
        )
    if transport.tls:
        return check.ok("TLS is used")
    if all(map(is_loopback, transport.hosts)):
        return check.ok("no TLS; the server is on this machine")
    return check.warning("no TLS")


@doctor_check(
    "source.oplog",
    "Time that the oplog covers, in hours",
    why="capture may be away no longer than this",
    fix="enlarge the oplog: db.adminCommand({replSetResizeOplog: 1, minRetentionHours: 72})",
)
def oplog(check: Check, window: OplogWindow, *, heartbeat_ms: int) -> Finding:
    if window.oldest is None:
        return check.ok("it has not dropped anything yet")
    covered = max(0, window.present - window.oldest)
    hours = covered / 3600
    if covered * 1000 < 2 * heartbeat_ms:
        return check.warning(
            f"it covers {hours:.1f} hours, and an idle stream commits its position every {heartbeat_ms / 3.6e6:.1f}",
            fix=f"set a shorter capture.heartbeat_interval_ms, or {check.fix}",
        )
    if hours < _SHORT_OPLOG_HOURS:
        return check.warning(f"it covers {hours:.1f} hours: an outage of a day would lose events")
    return check.ok(f"it covers {hours:,.0f} hours")


@doctor_check(
    "source.position",
    "The committed position, and the time until the oplog drops it",
    why="a position that the oplog has dropped is a gap in bronze",
    fix="start capture, or enlarge the oplog",
)
def position(check: Check, committed: CommittedPosition, *, on_lost: str, warn_minutes: int) -> Finding:
    """Return the finding for the committed position.

    Args:
        on_lost: Action of capture if the oplog does not hold the position.
        warn_minutes: ``capture.headroom_warning_minutes``.
    """
    window = committed.window
    if committed.batch is None:
        return check.ok("none yet")
    if committed.is_reset or window is None:
        return check.info("reset: the next capture starts at the present")
    if window.why_lost is not None:
        text = f"the position of batch {committed.batch}: {window.why_lost}"
        if on_lost == "fail":
            return check.error(text, fix=RESET_OR_HEAL, exit_code=3)
        return check.warning(f"{text}; the next capture goes on by capture.on_history_lost ({on_lost})")
    text, headroom = f"of batch {committed.batch}: the source still has the history behind it", window.headroom_seconds
    if headroom is None:
        return check.ok(text)
    left = f"{text}, for {headroom / 3600:,.1f} hours more at the present rate of writes"
    return check.warning(left) if headroom < warn_minutes * 60 else check.ok(left)


@doctor_check(
    "source.selection",
    "Captured collections, and filters and field rules without effect",
    why="most filters that select nothing are typing errors",
    fix="correct the filters of capture (strandline explain capture)",
)
def selection(check: Check, collections: int, warnings: Sequence[str]) -> Iterator[Finding]:
    yield check.ok(f"{collections} collections")
    yield from map(check.warning, warnings)


@doctor_check(
    "source.guardrail",
    "Number of captured collections against `capture.guardrail_collections_max`",
    why="a filter that is too wide captures more than anybody wants to pay for",
    fix="narrow capture.collection_include_list, or raise the limit",
)
def guardrail(check: Check, warnings: Sequence[str], most: int) -> Finding:
    if warnings:
        return check.warning("; ".join(warnings))
    return check.ok(f"at most {most} collections" if most else "none")
