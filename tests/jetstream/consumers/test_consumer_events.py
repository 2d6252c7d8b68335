"""Advisories and ack samples."""

from tests.support.jet import Jet


def test_an_expired_ephemeral_is_told_as_deleted(jet: Jet) -> None:
    heard = jet.listen("$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.>")
    name = jet.ephemeral()["name"]
    jet.advance(10)
    assert [m.json()["consumer"] for m in jet.heard(heard)] == [name]


def test_ack_time_counts_from_the_latest_delivery(jet: Jet) -> None:
    jet.consumer(sample_freq="100", ack_wait=1_000_000_000)
    heard = jet.listen("$JS.EVENT.METRIC.CONSUMER.ACK.S.C")
    jet.publish("1")
    jet.pull()
    jet.advance(2)
    (again,) = jet.pull()
    jet.advance(0.5)
    jet.ack(again)
    body = jet.heard(heard)[0].json()
    assert (body["deliveries"], body["ack_time"]) == (2, 500_000_000)


def test_a_share_of_acks_is_sampled(jet: Jet) -> None:
    jet.consumer(sample_freq="30")
    heard = jet.listen("$JS.EVENT.METRIC.CONSUMER.ACK.S.C")
    jet.publish_many(500)
    for message in jet.pull(b"500"):
        jet.ack(message)
    assert 90 < len(jet.heard(heard)) < 210
