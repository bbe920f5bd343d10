"""Checks of the source. Pure: each takes facts, and returns findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from strandline.jobs.doctor.catalogue import CHECKS
from strandline.jobs.doctor.findings import Check, Finding
from strandline.model.network import is_loopback
from strandline.model.resume_token import RESET_OR_HEAL
from strandline.model.source_clock import clock_jump
from strandline.model.support_dates import MONGODB, end_of_life
from strandline.source.deployment import Deployment
from strandline.source.oplog import OplogWindow

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
class Position:
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
    """Return the finding for a release whose last day of support is *last*."""
    if last is None:
        return check.info(f"{product} {version}; no end of life is known for it")
    if last < today:
        return check.warning(f"{product} {version}, whose end of life was {last}")
    if (last - today).days <= _SOON_DAYS:
        return check.info(f"{product} {version}, whose end of life is {last}", fix=check.fix)
    return check.ok(f"{product} {version}, supported until {last}")


def version(found: Deployment, today: date) -> Finding:
    return support(CHECKS["source.version"], "MongoDB", found.version, end_of_life(found.version, MONGODB), today)


def features(found: Deployment) -> Finding:
    check = CHECKS["source.features"]
    lacks = {
        "snapshot reads (5.0)": found.has_snapshot_reads,
        "pre- and post-images (6.0)": found.records_images,
        "UUIDs of collections in events (6.0)": found.shows_expanded_events,
        "splitting of large events (6.0.9)": found.splits_large_events,
    }
    missing = [name for name, has in lacks.items() if not has]
    return check.info(f"the server lacks {', '.join(missing)}", fix=check.fix) if missing else check.ok("all")


def topology(found: Deployment, hello: Mapping[str, Any]) -> Finding:
    """Return the finding for the members that ``hello`` lists."""
    check = CHECKS["source.topology"]
    if found.sharded:
        return check.ok("sharded cluster")
    holding, arbiters = len(hello.get("hosts", ())) + len(hello.get("passives", ())), len(hello.get("arbiters", ()))
    what = f"replica set {found.set_name}, {holding} members that hold data, {arbiters} arbiters"
    if holding == 1:
        return check.info(f"{what}: nothing is captured while this one is away", fix=check.fix)
    if arbiters and holding <= 2:
        return check.warning(f"{what}: while one is away, no event reaches a change stream")
    return check.ok(what)


def identity(found: Deployment) -> Finding:
    check = CHECKS["source.identity"]
    if "/" in found.identity:
        return check.ok("known")
    return check.info("the user may not read the id of the deployment", fix=check.fix)


def privileges(status: Mapping[str, Any]) -> Finding:
    """Return the finding for ``authInfo`` of ``connectionStatus`` with ``showPrivileges``."""
    check = CHECKS["source.privileges"]
    users = [f"{user.get('user')}@{user.get('db')}" for user in status.get("authenticatedUsers", ())]
    if not users:
        return check.warning(
            "the connection has no user: everybody who reaches the server may read and write",
            fix="start mongod with --auth and a user (strandline explain start)",
        )
    allowed = {action for each in status.get("authenticatedUserPrivileges", ()) for action in each.get("actions", ())}
    if writes := sorted(allowed & _WRITES):
        more = f" and {len(writes) - 3} more" if len(writes) > 3 else ""
        return check.warning(f"{', '.join(users)} may write: {', '.join(writes[:3])}{more}")
    return check.ok(f"{', '.join(users)} may only read")


def clock(ahead: float | None, problem: str) -> Finding:
    check = CHECKS["source.clock"]
    if ahead is None:
        return check.info(f"not known: {problem or 'pymongo is not installed'}")
    text = f"this machine's clock is {abs(ahead):,.1f} s {'ahead of' if ahead > 0 else 'behind'} MongoDB's"
    return check.warning(text) if abs(ahead) > _CLOCK_SECONDS else check.ok(text)


def cluster_time(newest: int, now: float) -> Finding:
    """Return the finding for the newest cluster time, in seconds since the epoch."""
    check, jump = CHECKS["source.cluster_time"], clock_jump(newest, now)
    return check.ok("not ahead of this machine's clock") if jump is None else check.warning(jump)


def routing(found: Transport) -> Finding:
    check = CHECKS["source.read_preference"]
    text = f"readPreference={found.read_preference}"
    if found.direct:
        return check.warning(f"{text}; directConnection=true: capture ends with this member")
    if found.read_preference == "primary":
        return check.info(f"{text}: snapshots read from the primary")
    return check.ok(text)


def tls(found: Transport) -> Finding:
    check = CHECKS["source.tls"]
    if found.tls and not found.verified:
        return check.warning(
            "TLS is used, and the server's certificate is not checked",
            fix="remove tlsInsecure, tlsAllowInvalidCertificates and tlsAllowInvalidHostnames from the URI",
        )
    if found.tls:
        return check.ok("TLS is used")
    if all(map(is_loopback, found.hosts)):
        return check.ok("no TLS; the server is on this machine")
    return check.warning("no TLS")


def oplog(window: OplogWindow, *, heartbeat_ms: int) -> Finding:
    """Return the finding for the time that the oplog covers."""
    check = CHECKS["source.oplog"]
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


def position(found: Position, *, on_lost: str, warn_minutes: int) -> Finding:
    """Return the finding for the committed position.

    Args:
        on_lost: Action of capture if the oplog does not hold the position.
        warn_minutes: ``capture.headroom_warning_minutes``.
    """
    check, window = CHECKS["source.position"], found.window
    if found.batch is None:
        return check.ok("none yet")
    if found.is_reset or window is None:
        return check.info("reset: the next capture starts at the present")
    if window.why_lost is not None:
        text = f"the position of batch {found.batch}: {window.why_lost}"
        if on_lost == "fail":
            return check.error(text, fix=RESET_OR_HEAL, exit_code=3)
        return check.warning(f"{text}; the next capture goes on by capture.on_history_lost ({on_lost})")
    text, headroom = f"of batch {found.batch}: the source still has the history behind it", window.headroom_seconds
    if headroom is None:
        return check.ok(text)
    left = f"{text}, for {headroom / 3600:,.1f} hours more at the present rate of writes"
    return check.warning(left) if headroom < warn_minutes * 60 else check.ok(left)


def selection(collections: int, warnings: Sequence[str]) -> Iterator[Finding]:
    check = CHECKS["source.selection"]
    yield check.ok(f"{collections} collections")
    yield from map(check.warning, warnings)


def guardrail(warnings: Sequence[str], most: int) -> Finding:
    check = CHECKS["source.guardrail"]
    if warnings:
        return check.warning("; ".join(warnings))
    return check.ok(f"at most {most} collections" if most else "none")
