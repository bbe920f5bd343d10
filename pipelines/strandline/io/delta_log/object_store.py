"""S3 and its like by URI (``s3://``, ``s3a://``), without Spark.

Credentials come from the environment, or from the role of the machine. delta-rs and obstore read the same variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from strandline.errors import ConfigurationError, LakeUnavailable, RetriableError, StrandlineError
from strandline.plain_text import store_code

if TYPE_CHECKING:
    from obstore.store import BackoffConfig, ClientConfig, ObjectStore, RetryConfig, S3Config

SCHEMES: Final = ("s3", "s3a")
_REFUSED: Final = ("AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch")
TWO_WRITERS: Final = "_strandline/two-writers"
"""Name of the object with which a start tests that a second writer is refused."""
_MOST_SECONDS: Final = 300
"""Time for which a store that does not answer is asked again."""
BRIEF_SECONDS: Final = 4
"""Shorter time, for a caller that itself tries again and must end soon when it is stopped."""
_PAUSE_SECONDS: Final = 5
_RETRIES: Final = 1_000
_QUICK: Final[RetryConfig] = {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}


@dataclass(frozen=True)
class StoreOptions:
    """Address and region of the S3 server.

    Args:
        endpoint: URL of the server. None: AWS.
        region: None: ``AWS_REGION``.
        patience_seconds: Time for which a store that does not answer is asked again.
    """

    endpoint: str | None = None
    region: str | None = None
    patience_seconds: int = _MOST_SECONDS

    def for_delta_rs(self) -> dict[str, str]:
        """Return the options of delta-rs."""
        patience = {
            "max_retries": str(_RETRIES),
            "retry_timeout": f"{self.patience_seconds}s",
            "backoff_config.max_backoff": f"{_PAUSE_SECONDS}s",
        }
        return patience | self.of_server | {"allow_http": str(self.is_unencrypted).lower()}

    @property
    def for_obstore(self) -> RetryConfig:
        """Retries of obstore."""
        backoff: BackoffConfig = {
            "init_backoff": timedelta(seconds=0.1),
            "max_backoff": timedelta(seconds=_PAUSE_SECONDS),
            "base": 2,
        }
        return {
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=self.patience_seconds),
            "backoff": backoff,
        }

    @property
    def is_unencrypted(self) -> bool:
        return (self.endpoint or "").startswith("http:")

    @property
    def of_server(self) -> dict[str, str]:
        """Options that name the server, as both libraries call them."""
        options = {"endpoint": self.endpoint, "region": self.region}
        return {name: value for name, value in options.items() if value}


def is_known_store(uri: str) -> bool:
    """Return True if `opened_store` can open *uri*."""
    return uri.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


@lru_cache(maxsize=64)
def opened_store(uri: str, options: StoreOptions, *, quick: bool = False) -> ObjectStore:
    """Return the store whose names are below *uri*. Nothing is asked of it.

    Args:
        quick: True: a store that does not answer is an error after some seconds. False: after
            `StoreOptions.patience_seconds`.
    """
    from obstore.store import from_url  # only lakes in a store pay for its import

    config = cast("S3Config", options.of_server)
    client = cast("ClientConfig", {"allow_http": options.is_unencrypted})
    return from_url(uri, config=config, client_options=client, retry_config=_QUICK if quick else options.for_obstore)


class StoreFailure(LakeUnavailable, OSError):
    """The store refused, or did not answer. It is an OSError for callers that handle a disk, too."""


@contextmanager
def store_failures() -> Iterator[None]:
    """Raise what a store refuses as `StoreFailure`. A missing object is a FileNotFoundError."""
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        raise StoreFailure(
            f"the store refused, or did not answer ({_in_short(error)})",
            next_step="check lake.root and the store, then repeat the command",
        ) from error


def _in_short(error: Exception) -> str:
    """Return the store's own error code. Without one, return the first line of the error."""
    return store_code(error) or str(error).partition("\n")[0].partition("<?xml")[0].rstrip(": ")


def require_bucket(root: str, options: StoreOptions) -> None:
    """I/O: lists what is below *root*, up to one page.

    Raises:
        ConfigurationError: There is no such bucket, or the credentials are refused.
        RetriableError: The store does not answer.
    """
    import obstore

    try:
        next(iter(obstore.list(opened_store(root, options, quick=True), chunk_size=1)), None)
    except Exception as error:  # why: `_refusal` tells the library's errors apart
        raise _refusal(root, error) from error


def require_conditional_create(root: str, options: StoreOptions) -> None:
    """I/O: creates the object `TWO_WRITERS` below *root* twice. The store must refuse one of these. The object stays.

    Without that, two writers of one table would replace each other's commits.

    Raises:
        ConfigurationError: As `require_bucket`, or the store has no conditional create.
        RetriableError: The store does not answer.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError

    store = opened_store(root, options, quick=True)
    for _ in range(2):
        try:
            obstore.put(store, TWO_WRITERS, b"Strandline tests here that a second writer is refused.", mode="create")
        except AlreadyExistsError:
            return
        except Exception as error:  # why: `_refusal` tells the library's errors apart
            raise _refusal(root, error) from error
    raise _replaceable(root, "the second of two conditional creates replaced the first")


def _replaceable(root: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{root} is in a store in which two writers can replace each other's commits ({reason})",
        next_step="use a store with conditional writes (S3: If-None-Match), or set lake.catalog",
    )


def _refusal(root: str, error: Exception) -> StrandlineError:
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if store_code(error) == "NoSuchBucket" or isinstance(error, FileNotFoundError):
        return ConfigurationError(f"there is no bucket for {root}", next_step="create it, or correct lake.root")
    if store_code(error) == "NotImplemented":
        return _replaceable(root, "it does not know conditional creates")
    if store_code(error) in _REFUSED or isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return ConfigurationError(
            f"{root} may not be read or written ({_in_short(error)})",
            next_step="set the credentials in the environment (S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY),"
            " or correct the rights of the role",
        )
    return RetriableError(
        f"the store of {root} does not answer ({_in_short(error)})",
        next_step="check lake.root and lake.s3_endpoint, and that the store can be reached; then repeat the command",
    )
