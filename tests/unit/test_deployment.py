"""The deployment's identity does not change with the user's privileges."""

from __future__ import annotations

import pytest

from strandline.errors import ConfigurationError
from strandline.jobs.reconcile.run_reconcile import require_snapshot_reads
from strandline.model.deployment import SHARDED, deployment_identity, replica_set_in, same_deployment
from strandline.source.deployment import Deployment


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("rs0", "65f0"), ("rs0", "65f0"), True),
        (("rs0", "65f0"), ("rs0", "9999"), False),
        (("rs0", None), ("rs0", "65f0"), True),
        (("rs0", None), ("rs0", None), True),
        (("rs0", None), ("rs1", None), False),
        (("rs0", "65f0"), ("rs1", "65f0"), False),
    ],
)
def test_identities_of_one_deployment_match(
    one: tuple[str, str | None], other: tuple[str, str | None], same: bool
) -> None:
    assert same_deployment(deployment_identity(*one), deployment_identity(*other)) is same
    assert same_deployment(deployment_identity(*other), deployment_identity(*one)) is same


def test_an_identity_names_the_replica_set_and_a_sharded_cluster_has_none() -> None:
    assert [replica_set_in(deployment_identity("rs0", number)) for number in ("65f0", None)] == ["rs0", "rs0"]
    assert [replica_set_in(deployment_identity(SHARDED, number)) for number in ("65f0", None)] == [None, None]
    assert replica_set_in("") is None


@pytest.mark.parametrize(
    ("version", "too_old", "reads_the_past", "expanded", "splits"),
    [
        ("4.2.24", True, False, False, False),
        ("4.4.2", False, False, False, False),
        ("5.0.4", False, True, False, False),
        ("6.0.8", False, True, True, False),
        ("6.0.9-rc0", False, True, True, True),
        ("8.0.0", False, True, True, True),
    ],
)
def test_features_by_server_version(
    version: str, too_old: bool, reads_the_past: bool, expanded: bool, splits: bool
) -> None:
    found = Deployment(version, "rs0", False, "rs0")
    assert (found.is_too_old, found.has_snapshot_reads) == (too_old, reads_the_past)
    assert found.shows_expanded_events == found.records_images == expanded
    assert found.splits_large_events == splits


def test_reconcile_needs_a_server_that_reads_the_past() -> None:
    require_snapshot_reads(Deployment("5.0.4", "rs0", False, "rs0"))
    with pytest.raises(ConfigurationError, match=r"MongoDB 4\.4\.2 cannot read the past"):
        require_snapshot_reads(Deployment("4.4.2", "rs0", False, "rs0"))
