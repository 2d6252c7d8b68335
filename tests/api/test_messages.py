"""Pull requests, publish acks and stored messages in JSON."""

from natsctl.api.catalogue import error
from natsctl.api.codec import decode, encode
from natsctl.api.requests import PubAck, StoredMsg


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
