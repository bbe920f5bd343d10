"""Classifier of MongoDB errors: a pure function over a commented table of error codes."""

from __future__ import annotations

from typing import Literal

from pymongo import errors as mongo

from strandline.errors import ConfigurationError, ResumePointLost, RetriableError, StrandlineError
from strandline.model.resume_token import RESET_OR_HEAL

Verdict = Literal[
    "retriable", "history_lost", "event_missing", "invalid_token", "oversize", "configuration", "terminal"
]
Phase = Literal["opening", "resuming", "reading", "scanning"]
"""Step that failed. *scanning*: a read of documents, which Strandline gives the longest time limit that there is."""

_SNAPSHOT_TOO_OLD = 239

# code: verdict. Measured on 6.0.5 (docs/decisions) and from mongo/src/mongo/base/error_codes.yml.
CODES: dict[int, Verdict] = {
    6: "retriable",  # HostUnreachable
    7: "retriable",  # HostNotFound
    43: "retriable",  # CursorNotFound: the server forgot the cursor; reopen from the token
    50: "retriable",  # MaxTimeMSExpired
    63: "retriable",  # StaleShardVersion
    89: "retriable",  # NetworkTimeout
    91: "retriable",  # ShutdownInProgress
    133: "retriable",  # FailedToSatisfyReadPreference
    134: "retriable",  # ReadConcernMajorityNotAvailableYet
    136: "retriable",  # CappedPositionLost: the oplog overtook the cursor; reopening gives 286 if the token is gone
    150: "retriable",  # StaleEpoch
    175: "retriable",  # QueryPlanKilled: the collection was dropped or renamed under the plan
    189: "retriable",  # PrimarySteppedDown
    202: "retriable",  # NetworkInterfaceExceededTimeLimit
    211: "retriable",  # KeyNotFound: signing keys are not there yet
    216: "retriable",  # ElectionInProgress
    234: "retriable",  # RetryChangeStream
    237: "retriable",  # CursorKilled
    _SNAPSHOT_TOO_OLD: "retriable",  # read again at a new cluster time
    246: "retriable",  # SnapshotUnavailable
    262: "retriable",  # ExceededTimeLimit
    317: "retriable",  # ConnectionPoolExpired
    9001: "retriable",  # SocketException
    10107: "retriable",  # NotWritablePrimary
    11600: "retriable",  # InterruptedAtShutdown
    11601: "retriable",  # Interrupted: killOp of whatever the server was doing for us
    11602: "retriable",  # InterruptedDueToReplStateChange
    13388: "retriable",  # StaleConfig
    13435: "retriable",  # NotPrimaryNoSecondaryOk
    13436: "retriable",  # NotPrimaryOrSecondary
    280: "event_missing",  # ChangeStreamFatalError: this stream does not show the token's event
    7182504: "event_missing",  # the token's event is split now, and was not when the token was made
    286: "history_lost",  # ChangeStreamHistoryLost: the oplog has moved on
    9: "invalid_token",  # FailedToParse: the token is garbled; without one, a stage or a query is
    15: "invalid_token",  # Overflow: the token is cut off
    207: "invalid_token",  # InvalidUUID: the token holds no valid collection UUID
    260: "invalid_token",  # InvalidResumeToken
    6189503: "invalid_token",  # the token belongs to no event
    10334: "oversize",  # BSONObjectTooLarge: the event exceeds 16 MiB
    13: "configuration",  # Unauthorized
    18: "configuration",  # AuthenticationFailed
    8000: "configuration",  # AtlasError: "bad auth" (github.com/AbirHasan2005/PyroFilesStoreBot/issues/48)
    40573: "configuration",  # $changeStream is only supported on replica sets
}


# Codes of the server's checks of a token and of the KeyString inside it. Measured with 6,000 randomly damaged tokens:
# every rejection had one of these codes or one of the table above.
_DAMAGED = [
    *range(40646, 40650),
    *range(50788, 50798),
    *range(50806, 50836),
    50854,
    50855,
    50870,
    50872,
    *range(51055, 51058),
]
CODES |= dict.fromkeys(_DAMAGED, "invalid_token")

# Codes of 7.0 to 9.0, from the list of error codes of the documentation (2026-11-28). Not seen here: no such server.
# 249 StaleDbVersion, 365 TemporarilyUnavailable, 407 a connection pool, 433 AdmissionQueueOverflow, 442
# RetryMultiPlanning, 449 RateLimitExceeded, 450 PooledConnectionAcquisitionRejected, 453 and 471 a critical section of
# the cluster, 462 IngressRequestRateLimitExceeded, 10045600 a change of the feature compatibility version.
_SINCE_7 = (249, 355, 365, 379, 407, 433, 442, 445, 449, 450, 453, 462, 465, 471, 91331, 10045600)
CODES |= dict.fromkeys(_SINCE_7, "retriable")
CODES[464] = "history_lost"  # ShardRemovedError: the events of the removed shard are gone

_OVERLOAD = ("SystemOverloadedError", "RetryableError")
"""Labels of an overloaded server (8.0.20 and newer). It refuses a command before it reads it, so no code decides."""
_PASSING = "ResumableChangeStreamError"
_TIME_LIMIT = 50  # MaxTimeMSExpired
UNAUTHORIZED = 13
NOT_ALLOWED = (UNAUTHORIZED, 59, 8000)
"""Unauthorized, CommandNotFound, AtlasError: the same answer comes every time."""
_WHY_LOST: dict[Verdict, str] = {
    "history_lost": "the source no longer has the history behind the committed token",
    "event_missing": (
        "the source does not have the event of the committed token: it was restored to an earlier time, "
        "or it is another deployment"
    ),
    "invalid_token": "the server cannot read the committed token",
}
NOT_ON_VIEW = 166  # CommandNotSupportedOnView
_UNREADABLE = (2, 9)  # BadValue (such as an unknown operator), FailedToParse
_UNKNOWN_TO_SERVER = (40324, 40415, 40575)  # a stage, a field of $changeStream, a value of fullDocument
_DECISIVE = ("history_lost", "event_missing", "oversize", "configuration")


class NoAnswer(RetriableError):
    """No server was reached, or the connection broke. Nothing was lost; calling again is safe."""


class SnapshotExpired(RetriableError):
    """The server no longer has the state at the cluster time of a read. Reading at a later time may succeed."""


class CredentialsRefused(ConfigurationError):
    """MongoDB refused user, password, certificate or a privilege: wrong, expired, or replaced. Nothing was written.

    A user that is dropped loses the privileges of its open connections first.
    """


class TlsFileMissing(CredentialsRefused):
    """A file that the URI names is not there: it is being replaced, or a Spark worker does not have it."""


class ServerChanged(ConfigurationError):
    """MongoDB does not know a stage or an option. If the stream was open before, the server is older than it was."""


def classify(error: mongo.PyMongoError, phase: Phase = "opening") -> Verdict:
    """Return the verdict on an error and its causes.

    Lost history, an oversize event or a wrong configuration wins, even as the cause of a broken connection. An unknown
    code without the label `_PASSING` is terminal: the error would repeat for ever.

    Args:
        phase: Step that failed. A code means a bad token only when a stream is opened at a token (*resuming*).
    """
    verdicts = [_judge(cause, phase) for cause in _with_causes(error)]
    return next((verdict for verdict in verdicts if verdict in _DECISIVE), verdicts[0])


def is_overload(error: mongo.PyMongoError) -> bool:
    """Return True if the server refused a command because it has too much to do."""
    return any(map(error.has_error_label, _OVERLOAD))


def _with_causes(error: mongo.PyMongoError) -> list[mongo.PyMongoError]:
    causes: list[mongo.PyMongoError] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        if isinstance(cause, mongo.PyMongoError):
            causes.append(cause)
        cause = cause.__cause__
    return causes


def _judge(error: mongo.PyMongoError, phase: Phase) -> Verdict:
    if isinstance(error, mongo.ConfigurationError):
        return "configuration"
    if isinstance(error, mongo.OperationFailure) and error.code is not None:
        if is_overload(error):
            return "retriable"
        if error.code == _TIME_LIMIT and phase == "scanning":
            return "configuration"
        verdict = CODES.get(error.code)
        if verdict == "invalid_token" and phase != "resuming":
            return "terminal"
        if verdict is not None:
            return verdict
        return "retriable" if error.has_error_label(_PASSING) else "terminal"
    return (
        "retriable"
        if isinstance(error, mongo.ConnectionFailure | mongo.ExecutionTimeout | mongo.CursorNotFound)
        else "terminal"
    )


def as_strandline_error(error: mongo.PyMongoError, *, doing: str, phase: Phase = "opening") -> StrandlineError:
    """Return the error that a user reads, in one line. It quotes neither the server's text nor the URI."""
    verdict = classify(error, phase)
    code = next((number for cause in _with_causes(error) if (number := getattr(cause, "code", None)) is not None), None)
    refusal = f"MongoDB refused {doing}" + (f" (code {code})" if code else "")
    if verdict == "configuration":
        return _configuration_error(code, refusal, error)
    if verdict in _WHY_LOST:
        return ResumePointLost(f"{refusal}: {_WHY_LOST[verdict]}", next_step=RESET_OR_HEAL)
    if code == _SNAPSHOT_TOO_OLD:
        return SnapshotExpired(
            f"the snapshot history expired during {doing} (code {code})",
            next_step=(
                "set the server's minSnapshotHistoryWindowInSeconds higher, "
                "or lower capture.snapshot_chunk_size and start the snapshot again"
            ),
        )
    if verdict == "retriable":
        kind = NoAnswer if isinstance(error, mongo.ConnectionFailure) else RetriableError
        code_text = f", code {code}" if code else ""
        if any(map(is_overload, _with_causes(error))):
            return kind(f"{refusal}: it has too much to do", next_step="wait, or give the server less to do")
        return kind(
            f"MongoDB did not answer while {doing} ({type(error).__name__}{code_text})",
            next_step="check the URI and that it is up",
        )
    return _terminal_error(verdict, code, refusal, error)


def _terminal_error(verdict: Verdict, code: int | None, refusal: str, error: mongo.PyMongoError) -> ConfigurationError:
    if verdict == "oversize":
        return ConfigurationError(
            f"{refusal}: a change event exceeds 16 MiB, the largest that MongoDB can send",
            next_step="set capture.cursor_oversize_handling_mode: skip (or split, with MongoDB 6.0.9 or newer)",
        )
    if code == NOT_ON_VIEW:
        return ConfigurationError(
            f"{refusal}: it is a view or a time-series collection, and MongoDB has no change stream for these",
            next_step="read it by schedule (capture.scheduled), or capture the collection that the view reads",
        )
    if code in _UNKNOWN_TO_SERVER:
        return ServerChanged(
            f"{refusal}: the server does not know a stage or an option",
            next_step="correct capture.cursor_pipeline; strandline explain versions lists what each version can do",
        )
    if code in _UNREADABLE:
        return ConfigurationError(
            f"{refusal}: it cannot read a stage or a query",
            next_step="correct capture.cursor_pipeline, or capture.snapshot_collection_filter_overrides",
        )
    return ConfigurationError(f"{refusal}: {type(error).__name__}", next_step="strandline doctor")


def _configuration_error(code: int | None, refusal: str, error: mongo.PyMongoError) -> ConfigurationError:
    if code == 40573:
        return standalone_error()
    if code == _TIME_LIMIT:
        return ConfigurationError(
            f"{refusal}: it reached a time limit of the server's own",
            next_step="raise the limit (cluster parameter defaultMaxTimeMS, or the query settings of this query shape)",
        )
    if code == 8000 and _is_not_allowed(error):
        return ConfigurationError(
            f"{refusal}: this Atlas cluster does not allow the command",
            next_step="use a dedicated cluster (M10 or larger): strandline explain versions",
        )
    if code in (18, 8000):
        return CredentialsRefused(
            f"MongoDB refused the credentials (code {code}): they are wrong, expired or replaced",
            next_step="check STRANDLINE_SOURCE__URI and its authSource, or the files that hold the credentials",
        )
    if code == 13:
        return CredentialsRefused(
            f"{refusal}: a privilege is missing",
            next_step="grant the user 'read' on the captured databases (find, changeStream, listCollections)",
        )
    return ConfigurationError(f"{refusal}: {type(error).__name__}", next_step="strandline doctor")


def _is_not_allowed(error: mongo.PyMongoError) -> bool:
    """Return True if Atlas refuses a command itself. It gives the same code for wrong credentials: only its text tells.

    Source: https://www.mongodb.com/docs/atlas/unsupported-commands/
    """
    texts = (str(cause).lower() for cause in _with_causes(error))
    return any("cmd_not_allowed" in text or "is not allowed" in text for text in texts)


def standalone_error() -> ConfigurationError:
    """Return the error for a server that belongs to no replica set."""
    return ConfigurationError(
        "MongoDB runs as a standalone server, and change streams need a replica set",
        next_step="start mongod with --replSet rs0 and run rs.initiate() once",
    )
