"""Pull requests, publish acks and stored messages in JSON."""

import pytest

from natsctl.api.catalogue import error
from natsctl.api.codec import decode, encode
from natsctl.api.messages import PubAck, PullRequest, StoredMsg, parse_pull_request


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (b"", PullRequest(batch=1)),
        (b"  ", PullRequest(batch=1)),
        (b"10", PullRequest(batch=10)),
        (b"0", PullRequest(batch=1)),
        (b"-3", PullRequest(batch=1)),
        (b"{}", PullRequest(batch=1)),
        (b' {"batch":3,"no_wait":true,"new_key":1}', PullRequest(batch=3, no_wait=True)),
        (
            b'{"expires":5,"idle_heartbeat":2,"max_bytes":9}',
            PullRequest(batch=1, expires=5, idle_heartbeat=2, max_bytes=9),
        ),
    ],
)
def test_a_pull_request_in_each_form(body: bytes, request_: PullRequest) -> None:
    assert parse_pull_request(body) == request_


@pytest.mark.parametrize("body", [b"x", b"{", b'{"batch":"x"}', b"[1]", b"1.5", b"\xff"])
def test_a_pull_request_of_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_pull_request(body)


def test_a_publish_ack_is_written_as_the_reference_writes_it() -> None:
    assert encode(PubAck(stream="S", seq=1)) == b'{"stream":"S","seq":1}'
    assert encode(PubAck(error=error(10071, seq=5), stream="S")) == (
        b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"S","seq":0}'
    )
    ack = decode(b'{"stream":"S","domain":"hub","seq":6,"duplicate": true}', PubAck)
    assert ack == PubAck(stream="S", domain="hub", seq=6, duplicate=True)


def test_a_stored_message_carries_base64() -> None:
    raw = b'{"subject":"x","seq":1,"data":"aGVsbG8=","time":"2020-05-06T13:18:58.115424+02:00"}'
    message = decode(raw, StoredMsg)
    assert (message.data, message.hdrs) == (b"hello", None)
    assert encode(message) == raw
