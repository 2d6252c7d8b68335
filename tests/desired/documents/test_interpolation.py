"""`${NAME}` in documents: values of the environment and of the command line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.yaml_text import InterpolationError, escaped, expanded
from natsctl.desired.documents import load_documents


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("${NAME}", "ORDERS"),
        ("${EMPTY}", ""),
        ("a.${NAME}.${NAME}.>", "a.ORDERS.ORDERS.>"),
        ("${NAME:-x}", "ORDERS"),
        ("${NOPE:-x y}", "x y"),
        ("${EMPTY:-x}", "x"),
        ("${NOPE:-}", ""),
        ("${NAME:?give one}", "ORDERS"),
        ("$${NAME}", "${NAME}"),
        ("$$${NAME}", "$${NAME}"),
        ("$JS.API.> $1 $ $$ {{wildcard(1)}}", "$JS.API.> $1 $ $$ {{wildcard(1)}}"),
        ("${TWICE}", "${NAME}"),
    ],
)
def test_references_become_their_values(text: str, becomes: str) -> None:
    assert expanded(text, {"NAME": "ORDERS", "EMPTY": "", "TWICE": "${NAME}"}) == becomes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${NOPE}", "NOPE is not set: set it, or give --var NOPE=VALUE"),
        ("${NOPE:?which stream?}", "NOPE is not set: which stream?"),
        ("${EMPTY:?which stream?}", "EMPTY is empty: which stream?"),
        ("${}", "expected ${NAME}"),
        ("${1A}", "expected ${NAME}"),
        ("${A B}", "expected ${NAME}"),
        ("${A-b}", "expected ${NAME}"),
        ("${NAME", "expected ${NAME}"),
        ("${NOPE:-${NAME}}", "cannot hold another"),
    ],
)
def test_what_can_not_be_replaced_is_told(text: str, reason: str) -> None:
    with pytest.raises(InterpolationError) as caught:
        expanded(text, {"NAME": "ORDERS", "EMPTY": ""})
    assert reason in str(caught.value)


@given(st.text(alphabet="${}aA:-?", max_size=20))
def test_an_escaped_text_is_itself_again(text: str) -> None:
    assert expanded(escaped(text), {}) == text


def test_variables_come_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: ${NAME}\n")
    found = load_documents([str(tmp_path / "a.yaml")], {"NAME": "ENV"}, variables={"NAME": "VAR"})
    assert [key.name for key in found.wanted] == ["VAR"]
