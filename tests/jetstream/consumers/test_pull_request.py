"""How the body of a pull request reads; test_pull_status_reference.py compares what becomes of each."""

from __future__ import annotations

import pytest

from natsctl.api.consumer import ConsumerConfig, PriorityPolicy
from natsctl.api.messages import PullRequest
from natsctl.jetstream.consumers.pull_request import OpenRequest, PullRequestError, parse, refusal


@pytest.mark.parametrize(
    ("body", "wish", "formal"),
    [
        (b"", PullRequest(batch=1), False),
        (b"  ", PullRequest(batch=1), False),
        (b"10", PullRequest(batch=10), False),
        (b" +3 ", PullRequest(batch=3), False),
        (b"0", PullRequest(batch=0), False),
        (b"-3", PullRequest(batch=-3), False),
        (b"1_0", PullRequest(batch=1), False),
        (b"1.5", PullRequest(batch=1), False),
        (b"\xd9\xa3", PullRequest(batch=1), False),
        (b"9" * 30, PullRequest(batch=1), False),
        (b"x", PullRequest(batch=1), False),
        (b"{}", PullRequest(), True),
        (b' {"batch":3,"no_wait":true,"new_key":1}', PullRequest(batch=3, no_wait=True), True),
        (b'{"batch":null,"expires":5}', PullRequest(expires=5), True),
        (b'{"expires":5,"idle_heartbeat":2}', PullRequest(expires=5, idle_heartbeat=2), True),
    ],
)
def test_a_body_in_each_form(body: bytes, wish: PullRequest, formal: bool) -> None:
    assert parse(body) == (wish, formal)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", b"syntax error at character 2: "),
        (b'{"batch":"x"}', b"json: cannot unmarshal string into Go struct field JSApiConsumerGetNextRequest.batch of"),
        (
            b'{"id":1}',
            b"json: cannot unmarshal number into Go struct field JSApiConsumerGetNextRequest.PriorityGroup.id",
        ),
        (b'{"idle_heartbeat":1}', b"heartbeat value too large"),
        (b'{"batch":99999999999999999999}', b"json: cannot unmarshal number 99999999999999999999 into"),
    ],
)
def test_a_body_that_can_not_be_read_is_refused(body: bytes, reason: bytes) -> None:
    with pytest.raises(PullRequestError) as refused:
        parse(body)
    assert refused.value.block.startswith(b"NATS/1.0 400 Bad Request - " + reason)


@pytest.mark.parametrize(("batch", "left"), [(3, 3), (1, 1), (0, 0), (-2, -2)])
def test_an_end_tells_what_was_asked_for_and_not_served(batch: int, left: int) -> None:
    request = OpenRequest(b"in", PullRequest(batch=batch, max_bytes=7), 0, True, 0)
    assert request.left >= 1
    expected = b"NATS/1.0 408 X\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: 7\r\n\r\n" % left
    assert request.ended(b"408 X") == expected


def test_the_first_thing_wrong_is_told() -> None:
    config = ConsumerConfig(max_batch=2, max_bytes=10, priority_policy=PriorityPolicy.OVERFLOW, priority_groups=["A"])
    wish = PullRequest(batch=3, max_bytes=11, priority=10, id="x")
    assert b"MaxRequestBatch of 2" in refusal(config, wish, True)
    wish.batch = 2
    assert b"MaxRequestMaxBytes of 10" in refusal(config, wish, True)
    wish.max_bytes = 1
    assert b"Not a Pinned Client Priority consumer" in refusal(config, wish, True)
    wish.id = ""
    assert b"Priority must be between 0 and 9" in refusal(config, wish, True)
    wish.priority = 0
    assert b"Priority Group missing" in refusal(config, wish, True)
    wish.group = "B"
    assert b"Invalid Priority Group" in refusal(config, wish, True)
    wish.group = "A"
    assert refusal(config, wish, True) == b""
    assert refusal(config, PullRequest(batch=2), False) == b""
