"""The deployment's identity does not change with the user's privileges."""

from __future__ import annotations

import pytest

from pipelines.model.deployment import SHARDED, deployment_identity, replica_set_in, same_deployment


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
def test_what_can_be_one_deployment(one: tuple[str, str | None], other: tuple[str, str | None], same: bool) -> None:
    assert same_deployment(deployment_identity(*one), deployment_identity(*other)) is same
    assert same_deployment(deployment_identity(*other), deployment_identity(*one)) is same


def test_an_identity_names_the_replica_set_and_a_sharded_cluster_has_none() -> None:
    assert [replica_set_in(deployment_identity("rs0", number)) for number in ("65f0", None)] == ["rs0", "rs0"]
    assert [replica_set_in(deployment_identity(SHARDED, number)) for number in ("65f0", None)] == [None, None]
    assert replica_set_in("") is None
