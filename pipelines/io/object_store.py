"""Object stores by URI (``s3://``, ``s3a://``, ``gs://``, ``abfss://``), without Spark.

Credentials come from the environment, or from the role of the machine. Both libraries read the same variables.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from pipelines.errors import ConfigurationError, RetriableError, StrandlineError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, S3Config

_SCHEMES: Final = ("s3", "s3a", "gs", "abfs", "abfss")
_S3: Final = ("s3", "s3a")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")


@dataclass(frozen=True)
class StoreOptions:
    """Where S3 is, if it is not AWS's.

    Args:
        endpoint: URL of the server. None: AWS.
        region: None: ``AWS_REGION``.
    """

    endpoint: str | None = None
    region: str | None = None

    def for_delta_rs(self, uri: str) -> dict[str, str]:
        """Return the options with which delta-rs opens *uri*."""
        if _scheme(uri) not in _S3:
            return {}
        given = {"endpoint": self.endpoint, "region": self.region}
        is_plain = (self.endpoint or "").startswith("http:")
        return {name: value for name, value in given.items() if value} | ({"allow_http": "true"} if is_plain else {})


def is_known_store(uri: str) -> bool:
    """Return True if `opened_store` can open *uri*."""
    return _scheme(uri) in _SCHEMES


def _scheme(uri: str) -> str:
    return uri.partition("://")[0]


@lru_cache(maxsize=64)
def opened_store(uri: str, options: StoreOptions) -> ObjectStore:
    """Return the store whose names are below *uri*. Nothing is asked of it."""
    from obstore.store import from_url  # only lakes in a store pay for its import

    given = options.for_delta_rs(uri)
    client: ClientConfig = {"allow_http": given.pop("allow_http", "") == "true"}
    return from_url(uri, config=cast("S3Config", given), client_options=client)


@contextmanager
def store_failures() -> Iterator[None]:
    """Raise what a store refuses as an OSError of one line. A missing object is a FileNotFoundError."""
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        raise OSError(_in_short(error)) from error


def _in_short(error: Exception) -> str:
    """Return the first line of a store's error, and S3's error code."""
    text = str(error)
    code = _CODE.search(text)
    return text.partition("\n")[0].partition("<?xml")[0].rstrip(": ") + (f" {code[1]}" if code else "")


def require_bucket(root: str, options: StoreOptions) -> None:
    """I/O: lists what is below *root*, up to one page.

    Raises:
        ConfigurationError: There is no such bucket, or the credentials are refused.
        RetriableError: The store does not answer.
    """
    import obstore

    try:
        next(iter(obstore.list(opened_store(root, options), chunk_size=1)), None)
    except Exception as error:  # why: `_refusal` tells the library's errors apart
        raise _refusal(root, error) from error


def require_conditional_create(root: str, options: StoreOptions) -> None:
    """I/O: creates an object below *root* twice, which the store must refuse the second time, and removes it.

    Without that, two writers of one table would replace each other's commits.

    Raises:
        ConfigurationError: As `require_bucket`, or the store has no conditional create.
        RetriableError: The store does not answer.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError

    store, name = opened_store(root, options), f"_strandline_probe/{uuid.uuid4()}"
    try:
        obstore.put(store, name, b"first", mode="create")
    except Exception as error:  # why: as above
        raise _refusal(root, error) from error
    reason = "the second of two conditional creates replaced the first"
    try:
        obstore.put(store, name, b"second", mode="create")
    except AlreadyExistsError:
        return
    except Exception as error:  # noqa: BLE001  # why: whatever it says, it is no refusal of a second create
        reason = _in_short(error)
    finally:
        obstore.delete(store, name)
    raise ConfigurationError(
        f"{root} is in a store in which two writers can replace each other's commits ({reason})",
        next_step="use a store with conditional writes (S3: If-None-Match), or set lake.catalog",
    )


def _refusal(root: str, error: Exception) -> StrandlineError:
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if isinstance(error, FileNotFoundError):
        return ConfigurationError(f"there is no bucket for {root}", next_step="create it, or correct lake.root")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return ConfigurationError(
            f"{root} may not be read or written ({_in_short(error)})",
            next_step="set the credentials in the environment (S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY),"
            " or correct the rights of the role",
        )
    return RetriableError(
        f"the store of {root} does not answer ({_in_short(error)})",
        next_step="check lake.root and lake.s3, and that the store can be reached; then repeat the command",
    )
