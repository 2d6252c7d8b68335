"""Messages that an update makes vanish are told, and others are not."""

from __future__ import annotations

from typing import Any

import pytest

from natsctl.api.times import format_time
from natsctl.desired.planner import make_plan
from tests.desired.sets import NOW_NS, SECOND, account, change_of, documents

HOUR = 3600 * SECOND
STATE = {
    "messages": 1000,
    "bytes": 64_000,
    "num_subjects": 10,
    "first_ts": format_time(NOW_NS - 10 * HOUR),
    "last_ts": format_time(NOW_NS - 2 * HOUR),
}


def notes(config: dict[str, Any], live: dict[str, Any] | None = None, **state: Any) -> list[str]:
    """What is noted where a stream with messages becomes `config`."""
    base = {"subjects": ["a.>"]}
    live_state = account({"A": base | (live or {})}, states={"A": {**STATE, **state}})
    return change_of(make_plan(documents({"A": base | config}), live_state), "A").notes


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"max_msgs": 900}, "removes 100 of 1,000 messages, the oldest first"),
        ({"max_bytes": 32_000}, "max_bytes shrinks"),
        ({"max_age": 20 * HOUR}, ""),
        ({"max_age": 5 * HOUR}, "those of 1,000 messages that are older than 5h0m0s"),
        ({"max_age": HOUR}, "removes everything, 1,000 messages"),
        ({"max_msgs_per_subject": 30}, "removes at least 700 of 1,000 messages"),
        ({"max_msgs_per_subject": 100}, "may remove some of 1,000 messages"),
        ({"max_msgs_per_subject": 1000}, ""),
        ({"max_msgs": 1000}, ""),
        ({"max_msgs": 900, "discard": "new"}, ""),
        ({"retention": "interest"}, "no consumer waits for"),
        ({"description": "x"}, ""),
    ],
)
def test_what_goes_is_told(config: dict[str, Any], told: str) -> None:
    found = notes(config)
    assert (len(found), told in "".join(found)) == (1 if told else 0, True)


def test_without_consumers_interest_keeps_nothing() -> None:
    assert "may remove everything, 1,000 messages" in notes({"retention": "interest"}, consumer_count=0)[0]


def test_an_empty_stream_loses_nothing() -> None:
    assert notes({"max_msgs": 1, "max_age": HOUR}, messages=0) == []
