"""Collections of the source that a selection captures, and what it selects and MongoDB cannot stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.model.namespaces import Namespace
from strandline.source.client import AnyClient, Collection, collection_infos, collection_uuid, translate_errors
from strandline.source.replies import value_at
from strandline.source.stages import SYSTEM_DATABASES, Selection

_KINDS: Final = {"view": "a view", "timeseries": "a time-series collection"}
_CURES: Final = {
    "a view": "read a view by schedule (capture.scheduled), or capture the collection that it reads",
    "a time-series collection": "read a time series by schedule (capture.scheduled), or write its measurements to a "
    "normal collection, too",
}


@dataclass(frozen=True)
class LeftOut:
    """A view or a time-series collection. MongoDB has no change stream for it."""

    db: str
    name: str
    kind: str
    """``a view`` or ``a time-series collection``."""
    view_on: str | None = None
    """Collection that a view reads. None: it is no view, or the user may not know."""

    def __str__(self) -> str:
        return f"{self.db}.{self.name}"

    def described(self) -> str:
        """Return its name and kind as text."""
        return f"{self} ({self.kind}{f' of {self.db}.{self.view_on}' if self.view_on else ''})"


@dataclass(frozen=True)
class Listing:
    """Collections, views and time series that a selection selects at this moment. Each tuple is sorted by name."""

    collections: tuple[Collection, ...]
    left_out: tuple[LeftOut, ...]
    without_images: tuple[Collection, ...]
    """Collections that record no pre- and post-images (``changeStreamPreAndPostImages``)."""


def cure_of(left_out: Iterable[LeftOut]) -> str:
    """Return what to do about what is left out."""
    return "; ".join(dict.fromkeys(_CURES[item.kind] for item in left_out))


def list_source(client: AnyClient, selection: Selection) -> Listing:
    """Return what *selection* selects now. I/O: reads ``listCollections``."""
    collections, left_out, without_images = list[Collection](), list[LeftOut](), list[Collection]()
    with translate_errors("listing collections"):
        for database in [selection.database] if selection.database else client.list_database_names():
            for info in [] if database in SYSTEM_DATABASES else collection_infos(client[database]):
                name = str(info["name"])
                if not selection.admits(database, name):
                    continue
                if (kind := _KINDS.get(str(info.get("type")))) is not None:
                    left_out.append(LeftOut(database, name, kind, value_at(info, str, "options", "viewOn")))
                    continue
                collections.append(Collection(database, name, collection_uuid(info)))
                if "options" in info and not _records_images(info):  # without a privilege, they are not known
                    without_images.append(collections[-1])
    return Listing(
        tuple(sorted(collections, key=str)), tuple(sorted(left_out, key=str)), tuple(sorted(without_images, key=str))
    )


def kind_of(client: AnyClient, namespace: Namespace) -> str | None:
    """Return ``a view``, ``a time-series collection`` or ``a collection``. None: it does not exist.

    I/O: reads ``listCollections``.
    """
    with translate_errors(f"looking for {namespace}"):
        infos = collection_infos(client[namespace.db], name=namespace.collection)
    return _KINDS.get(str(infos[0].get("type")), "a collection") if infos else None


def captured_collections(client: AnyClient, selection: Selection) -> list[Collection]:
    """Return the existing collections that *selection* captures, sorted by name. I/O: reads ``listCollections``."""
    return list(list_source(client, selection).collections)


def _records_images(info: Mapping[str, Any]) -> bool:
    return value_at(info, bool, "options", "changeStreamPreAndPostImages", "enabled") is True
