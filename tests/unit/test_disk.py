"""Files that are put in place by a hard link, or by an exclusive create: none replaces another."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from strandline.io.delta_log.disk import create_file
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.log_commit import commit_info, put_commit


def put(log: Path, version: int, actions: list[dict[str, Any]]) -> bool:
    return create_file(log / f"{version:020}.json", json.dumps(actions[0]).encode())


def committed(log: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (log / f"{version:020}.json").read_text("utf-8").split("\n") if line]


def refuse(error: int) -> Any:
    def call(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    return call


@pytest.fixture(params=[None, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS], ids=str)
def any_file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with hard links (None), or one that refuses them with an error."""
    if request.param is not None:
        monkeypatch.setattr("os.link", refuse(request.param))


def test_a_commit_has_one_action_a_line(tmp_path: Path) -> None:
    actions = [commit_info("WRITE", {}), {"add": {"path": "a\u2028b ü\n"}}]
    log = tmp_path / "_delta_log"
    log.mkdir()
    assert put_commit(LocalFolder(tmp_path), 7, actions)
    assert committed(log, 7) == actions
    assert [path.name for path in log.iterdir()] == ["00000000000000000007.json"]


@pytest.mark.usefixtures("any_file_system")
def test_an_existing_version_is_not_replaced(tmp_path: Path) -> None:
    assert put(tmp_path, 1, [{"txn": {"appId": "first"}}])
    assert not put(tmp_path, 1, [{"txn": {"appId": "second"}}])
    assert committed(tmp_path, 1) == [{"txn": {"appId": "first"}}]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_version_that_appears_between_look_and_link_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def rival_first(source: Path, target: Path) -> None:
        Path(target).write_text('{"txn":{"appId":"rival"}}\n')
        link(source, target)

    monkeypatch.setattr("os.link", rival_first)
    assert not put(tmp_path, 1, [{"txn": {"appId": "mine"}}])
    assert committed(tmp_path, 1) == [{"txn": {"appId": "rival"}}]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.usefixtures("any_file_system")
def test_each_version_has_one_winner_among_writers(tmp_path: Path) -> None:
    def write(writer: int) -> list[int]:
        return [version for version in range(50) if put(tmp_path, version, [{"txn": {"appId": str(writer)}}])]

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(write, range(4)))
    assert sorted(version for versions in won for version in versions) == list(range(50))
    for writer, versions in enumerate(won):
        assert all(committed(tmp_path, version) == [{"txn": {"appId": str(writer)}}] for version in versions)


def test_a_version_that_appears_before_an_exclusive_create_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rival_first(_: Path, target: Path) -> None:
        Path(target).write_text('{"txn":{"appId":"rival"}}\n')
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("os.link", rival_first)
    assert not put(tmp_path, 1, [{"txn": {"appId": "mine"}}])
    assert committed(tmp_path, 1) == [{"txn": {"appId": "rival"}}]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("call", ["os.link", "os.fsync"])
def test_a_full_disk_leaves_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setattr(call, refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        put(tmp_path, 1, [{}])
    assert list(tmp_path.iterdir()) == []


def test_content_is_synced_before_its_name_and_the_folder_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def traced_sync(descriptor: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().suffix or 'folder'}")
        fsync(descriptor)

    def traced_link(source: Path, target: Path) -> None:
        steps.append("link")
        link(source, target)

    monkeypatch.setattr("os.fsync", traced_sync)
    monkeypatch.setattr("os.link", traced_link)
    assert put(tmp_path, 1, [{}])
    assert steps == ["sync .tmp", "link", "sync folder"]
