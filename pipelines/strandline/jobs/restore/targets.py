"""Targets of a restore: a MongoDB deployment, or a folder of BSON files as `mongodump` writes it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import errors as mongo

from strandline.errors import ConfigurationError, ContractError
from strandline.jobs.restore.definition import Definition
from strandline.model.namespaces import Namespace
from strandline.source.client import AnyClient, translate_errors
from strandline.source.raw_reply import read_replies

_BATCH_DOCUMENTS: Final = 1_000
_BATCH_BYTES: Final = 8 * 1024 * 1024
_DUPLICATE_KEY, _NAMESPACE_EXISTS = 11000, 48
_RAW: Final[CodecOptions[RawBSONDocument]] = CodecOptions(document_class=RawBSONDocument)
_NOT_IN_FILE_NAMES: Final = re.compile(r"[\x00-\x1f<>:\"/\\|?*%]")


class Target(Protocol):
    """Place that gets the documents of collections."""

    def held(self, namespaces: Sequence[Namespace]) -> list[str]:
        """I/O: names of collections or files that hold something where *namespaces* would be written."""

    def documents(self, namespace: Namespace) -> Iterator[list[bytes]]:
        """I/O: yields the documents that the target holds. None if there is no collection."""

    def write(self, namespace: Namespace, definition: Definition, documents: Iterable[bytes]) -> Iterator[int]:
        """I/O: creates a collection and writes its documents. Yields the number of each batch. Idempotent."""

    def define(self, namespace: Namespace, definition: Definition) -> None:
        """I/O: adds what comes after the documents: indexes, or the file of the definition. Idempotent."""


@dataclass(frozen=True)
class DeploymentTarget:
    """A MongoDB deployment.

    Args:
        client: Client that keeps documents as bytes.
    """

    client: AnyClient

    def held(self, namespaces: Sequence[Namespace]) -> list[str]:
        with translate_errors("looking at the target"):
            return [str(name) for name in namespaces if self.client[name.db][name.collection].find_one({}) is not None]

    def documents(self, namespace: Namespace) -> Iterator[list[bytes]]:
        with translate_errors("reading the target"):
            yield from read_replies(self.client[namespace.db], {"find": namespace.collection, "filter": {}})

    def write(self, namespace: Namespace, definition: Definition, documents: Iterable[bytes]) -> Iterator[int]:
        with translate_errors(f"writing {namespace}"):
            self._create(namespace, definition)
            for batch in _batches(documents):
                self._insert(namespace, batch)
                yield len(batch)

    def define(self, namespace: Namespace, definition: Definition) -> None:
        if definition.indexes:
            command = {"createIndexes": namespace.collection, "indexes": [*definition.indexes.values()]}
            with translate_errors(f"building indexes of {namespace}"):
                self.client[namespace.db].command(command)

    def _create(self, namespace: Namespace, definition: Definition) -> None:
        try:
            self.client[namespace.db].command({"create": namespace.collection, **definition.options})
        except mongo.OperationFailure as error:
            if error.code != _NAMESPACE_EXISTS:
                raise

    def _insert(self, namespace: Namespace, batch: Sequence[bytes]) -> None:
        """Insert documents. One that is there already is left as it is: an earlier attempt has written it."""
        collection = self.client[namespace.db][namespace.collection]
        try:
            collection.insert_many(map(RawBSONDocument, batch), ordered=False, bypass_document_validation=True)
        except mongo.BulkWriteError as error:
            if codes := {problem["code"] for problem in error.details["writeErrors"]} - {_DUPLICATE_KEY}:
                raise ContractError(
                    f"the target refuses documents of {namespace} (code {min(codes)})",
                    next_step="restore them to files: --to files DIR",
                ) from None


@dataclass(frozen=True)
class FolderTarget:
    """A folder of BSON files that `mongorestore` reads: ``<database>/<collection>.bson`` and its metadata."""

    folder: Path

    def held(self, namespaces: Sequence[Namespace]) -> list[str]:  # noqa: ARG002  # why: the port's
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigurationError(f"{self.folder} is no folder", next_step="name a folder for the files")
        return sorted(entry.name for entry in self.folder.iterdir()) if self.folder.exists() else []

    def documents(self, namespace: Namespace) -> Iterator[list[bytes]]:
        file = self._file(namespace, "bson")
        if file.exists():
            with file.open("rb") as content:
                yield from _batches(bytes(document.raw) for document in bson.decode_file_iter(content, _RAW))

    def write(self, namespace: Namespace, definition: Definition, documents: Iterable[bytes]) -> Iterator[int]:  # noqa: ARG002  # why: the port's
        file = self._file(namespace, "bson")
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{file.name}.partial")
        with partial.open("wb") as content:
            for batch in _batches(documents):
                content.writelines(batch)
                yield len(batch)
            content.flush()
            os.fsync(content.fileno())
        partial.replace(file)

    def define(self, namespace: Namespace, definition: Definition) -> None:
        self._file(namespace, "metadata.json").write_text(definition.metadata(namespace), encoding="utf-8")

    def _file(self, namespace: Namespace, suffix: str) -> Path:
        """Return the file of a collection. Characters that a file name may not have are escaped as `mongodump` does."""
        name = _NOT_IN_FILE_NAMES.sub(lambda match: f"%{ord(match[0]):02X}", namespace.collection)
        return self.folder / namespace.db / f"{name}.{suffix}"


def _batches(documents: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch, size = list[bytes](), 0
    for document in documents:
        batch.append(document)
        size += len(document)
        if len(batch) >= _BATCH_DOCUMENTS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
