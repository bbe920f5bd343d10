"""A stored resume token is parsed or refused with an error of one line."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from bson import json_util
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import ResumePointLost
from strandline.model.resume_token import ResumeToken, is_readable
from strandline.source.client import token_data
from strandline.source.resume import ResumePoint, not_before

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.sampled_from(["_data", "$oid", "$date", "$numberDecimal"]), inner)
    ),
)


def test_a_token_is_kept_with_everything_in_it() -> None:
    text = '{"_data": "8263", "_typeBits": {"$binary": {"base64": "gkA=", "subType": "00"}}}'
    token = ResumeToken.parse(text)
    assert (token.data, token_data(text)) == ("8263", "8263")
    assert ResumePoint(token=text).watch_options == {"start_after": {"_data": "8263", "_typeBits": b"\x82@"}}


DAMAGED = (
    *("", "garbage", '{"_data": "8263', "{}", "[]", "7", "null", '"_data"', '{"_data": 7}', '{"_data": null}'),
    *('{"_data": {"$oid": "zz"}}', '{"_data": "8", "n": 99999999999999999999}', '{"_data": "\\ud800"}'),
    *("[" * 100_000, '{"_data": ' * 100_000),
)


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[:24])
def test_a_damaged_token_is_a_lost_position(text: str) -> None:
    assert not is_readable(text)
    for reads in (token_data, lambda text: ResumePoint(token=text).watch_options):
        with pytest.raises(ResumePointLost, match=r"cannot be read.*on_history_lost: heal"):
            reads(text)


@given(st.text() | json_values.map(json_util.dumps))
def test_any_token_text_parses_or_is_a_lost_position(text: str) -> None:
    with suppress(ResumePointLost):
        assert isinstance(token_data(text), str)


def test_a_token_from_before_the_start_is_replaced_by_the_start() -> None:
    """R5."""
    start, before, after = (json.dumps({"_data": data}) for data in ("8265A2", "8265A1", "8265A3"))
    assert [not_before(token, start) for token in (before, start, after)] == [start, start, after]
    assert not_before(before, None) == before
