"""A user who may ask less, or more, is no other deployment."""

from __future__ import annotations

import pytest

from pipelines.model.deployment import deployment_identity, same_deployment


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
