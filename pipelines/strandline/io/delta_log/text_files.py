"""Text files beside the tables of a lake by path, in a folder of this machine or in an object store."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from strandline.io.delta_log.object_store import StoreOptions, opened_store, store_failures
from strandline.io.delta_log.store_folder import StoreFolder


def mirror_texts(
    folder: str, texts: Mapping[str, str], options: StoreOptions | None, is_removable: Callable[[str], bool]
) -> None:
    """Write the files that differ from *texts*, and remove those that are not wanted.

    I/O: lists *folder*, reads the files of *texts*. A reader sees the old file or the new one. Idempotent.

    Args:
        folder: Absolute path, or URI of an object store.
        texts: Content by file name.
        options: How the object store is opened. None: *folder* is a path.
        is_removable: True for the name of a file to remove.

    Raises:
        OSError: The file system or the store refused.
    """
    if options is None:
        _in_folder(Path(folder), texts, is_removable)
    else:
        _in_store(folder, texts, options, is_removable)


def _in_folder(folder: Path, texts: Mapping[str, str], is_removable: Callable[[str], bool]) -> None:
    for file in folder.iterdir() if folder.is_dir() else ():
        if is_removable(file.name):
            file.unlink(missing_ok=True)
    for name, text in texts.items():
        file = folder / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        prepared = file.with_name(f".{name}.{uuid.uuid4()}.tmp")
        prepared.write_text(text, encoding="utf-8")
        prepared.replace(file)


def _in_store(uri: str, texts: Mapping[str, str], options: StoreOptions, is_removable: Callable[[str], bool]) -> None:
    import obstore

    folder = StoreFolder(uri, options)
    with store_failures():
        present = [file["path"] for file in obstore.list_with_delimiter(opened_store(uri, options))["objects"]]
    for name in filter(is_removable, present):
        folder.remove(name)
    for name, text in texts.items():
        if folder.read(name) != text.encode():
            with folder.writing(name) as file:
                file.write(text.encode())
