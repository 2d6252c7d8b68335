import json
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.codec import encode
from natsctl.server.monitor.document import go_number, pieces, text
from natsctl.server.monitor.query import BadRequestError, Query

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text('abcé"\\/\n', max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4),
    max_leaves=25,
)


@given(plain)
def test_pieces_are_the_value_indented(value: Any) -> None:
    assert b"".join(pieces(value)).decode() == json.dumps(value, indent=2, ensure_ascii=False)
    assert b"".join(pieces(value, b"", 0)) == encode(value)


def test_long_lists_come_item_by_item_wherever_they_are() -> None:
    def value(kind: Any) -> Any:
        return {"a": {"b": kind({"c": kind(str(n) for n in range(count)), "d": "<"} for count in (0, 2, 3))}, "e": 1}

    plain = value(list)
    for arguments, expected in (((b"\n", 2), json.dumps(plain, indent=2)), ((b"", 0), encode(plain).decode())):
        parts = list(pieces(value(iter), *arguments))
        assert b"".join(parts).decode() == expected.replace("<", "\\u003c") and max(map(len, parts)) < 20


def test_angle_brackets_and_bytes_that_are_no_text_are_written_as_go_does() -> None:
    assert b"".join(pieces({"subject": text(b"a.>\xff")})) == '{\n  "subject": "a.\\u003e�"\n}'.encode()
    assert (go_number(2.0), go_number(2.5)) == (2, 2.5)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("a=1", 1), ("a=-7", -7), ("a=%2B7", 7), ("a=", 0), ("", 0), ("a=5&a=6", 5), ("a=0007", 7),
        ("a=-" + "0" * 5000 + "1", -1), ("b=1;a=2&a=3", 3), ("a=%zz", 0),
    ],
)  # fmt: skip
def test_numbers_of_a_query(raw: str, value: int) -> None:
    assert Query(raw).number("a") == value


@pytest.mark.parametrize("raw", ["a=x", "a=1.5", "a=+1", "a=1_000", "a=９", "a=" + "9" * 5000, "a=9223372036854775808"])
def test_what_is_no_number_is_refused(raw: str) -> None:
    with pytest.raises(BadRequestError, match=r"Error decoding int for 'a': strconv\.Atoi: parsing"):
        Query(raw).number("a")


def test_of_many_parameters_only_those_of_the_endpoint_are_decoded() -> None:
    query = Query("%41&" * 5_000 + "+=%2B&" * 5_000 + "%73o%52t=a%26b+c%20d&%6Aetstream%2Dx%5fy=%31&bad%zz=1&a;b=2")
    with patch("urllib.parse.unquote_plus", wraps=unquote_plus) as decode:
        assert [query.text("soRt"), query.number("jetstream-x_y"), query.text("bad"), query.text("a")] == [
            "a&b c d", 1, "", "",
        ]  # fmt: skip
        assert decode.call_count == 2
