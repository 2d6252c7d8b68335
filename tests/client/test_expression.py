"""Expressions over documents compute a value and do nothing else."""

from typing import Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.client.search import compile_condition

SCOPE: dict[str, Any] = {
    "config": {"name": "ORDERS", "subjects": ["a", "b"], "max_msgs": 5, "no_ack": True},
    "state": {"messages": 30, "bytes": 1.5},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("state.messages > 10", True),
        ("state.messages > 10 and state.messages < 20", False),
        ("state.messages < 20 || config.no_ack", True),
        ("not config.no_ack", False),
        ("!(state.messages == 30)", False),
        ('config.name == "ORDERS"', True),
        ("config.name != 'X'", True),
        ('config.name matches "^OR.*S$"', True),
        ('config.name contains "DER" && config.name startsWith "O" && config.name endsWith "S"', True),
        ('"a" in config.subjects', True),
        ('"a" not in config.subjects', False),
        ('config.name in ["X", "ORDERS",]', True),
        ("config.subjects[1] == `b`", True),
        ("len(config.subjects) + 1 == 3", True),
        ("state.messages - 2 * 5 == 20", True),
        ("state.messages / 4 == 7.5 and state.messages % 7 == 2", True),
        ("-1 < 0", True),
        ("state.absent > 1", False),
        ("state.absent < 1", True),
        ("state.absent.deeper == nil", True),
        ('(config.description ?? "none") == "none"', True),
        ("config.no_ack ? false : true", False),
        ("config.MaxMsgs == 5", True),
        ('lower(config.name) == "orders"', True),
    ],
)
def test_expressions_have_the_values_of_their_language(text: str, value: bool) -> None:
    assert compile_condition(text)(SCOPE) is value


NO_EXPRESSIONS = (
    "", "state.", "state.messages >", "(1", "1 2", "[1", "nope", "open(1)", "config.name.__class__()", "1 / 0",
    "a ? b",
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        *NO_EXPRESSIONS,
        'config.name matches "("',
        "state.messages > 'x'",
        "@",
        "(" * 500 + "1" + ")" * 500,
        "x" * 20_000,
    ],
)
def test_a_fault_is_told_and_nothing_is_run(text: str) -> None:
    with pytest.raises(UsageError, match="--expression"):
        compile_condition(text)(SCOPE)


def test_members_are_those_of_the_document_only() -> None:
    assert compile_condition("config.__class__ == nil")(SCOPE)
    assert compile_condition("config.items == nil")(SCOPE)
