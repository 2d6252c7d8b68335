"""Acks in all their spellings, and what they do to a consumer's counters."""

import errno
from unittest import mock

from natsctl.jetstream.consumers.consumer_acks import METRIC_COST, Acks
from natsctl.jetstream.work import SLICE
from natsctl.wire.client import encode_pub
from tests.support.jet import Jet, texts
from tests.support.simdisk import DiskFault


def test_an_ack_counts_for_the_request_behind_it(jet: Jet) -> None:
    """Both reach the server in one read; nats-server answers four in five of such requests without the ack."""
    jet.stream("W", "w", retention="workqueue")
    for stream, subject in (("S", "s.a"), ("W", "w")):
        jet.consumer(stream=stream)
        jet.publish("a", subject=subject)
        message = jet.pull(stream=stream)[0]
        consumer, state = jet.listen("consumer"), jet.listen("state")
        jet.wire.send(
            encode_pub(message.reply, b"", b"", b"")
            + encode_pub(b"$JS.API.CONSUMER.INFO.%s.C" % stream.encode(), b"consumer", b"", b"")
            + encode_pub(b"$JS.API.STREAM.INFO.%s" % stream.encode(), b"state", b"", b"")
        )
        (answer,) = jet.heard(consumer)
        assert answer.json()["ack_floor"] | {"last_active": ""} == {
            "consumer_seq": 1,
            "stream_seq": 1,
            "last_active": "",
        }
        (answer,) = jet.heard(state)
        assert answer.json()["state"]["messages"] == (1 if stream == "S" else 0)
        jet.wire.unsubscribe(consumer)
        jet.wire.unsubscribe(state)


def test_double_ack_is_answered_only_when_durable(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a")
    (message,) = jet.pull()
    jet.machine.hold_commits = True
    assert jet.double_ack(message) == []
    inbox = jet.listen("later")
    jet.wire.publish(message.reply.decode(), b"", "later")
    assert jet.heard(inbox) == []
    jet.machine.release_commits()
    assert len(jet.heard(inbox)) == 1


def test_the_short_ack_subject_of_2020_is_taken(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a")
    jet.pull()
    jet.wire.publish("$JS.ACK.S.C.1.1.1", b"")
    assert jet.counts()["ack_pending"] == 0


def test_a_nak_can_wait_longer_than_the_ack_wait(jet: Jet) -> None:
    jet.consumer(ack_wait=1_000_000_000)
    jet.publish("a")
    jet.ack(jet.pull()[0], b"-NAK 10s")
    jet.advance(9.5)
    assert texts(jet.pull({"no_wait": True})) == ["<404 No Messages>"]
    jet.advance(1)
    assert texts(jet.pull()) == ["a"]


def test_progress_restarts_the_ack_wait(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a")
    (message,) = jet.pull()
    jet.advance(25)
    jet.ack(message, b"+WPI")
    jet.advance(29)
    assert jet.counts()["redelivered"] == 0
    assert texts(jet.pull({"no_wait": True})) == ["<404 No Messages>"]
    jet.advance(2)
    assert texts(jet.pull({"no_wait": True}))[:1] == ["a"]


def test_redeliveries_are_exempt_from_max_ack_pending(jet: Jet) -> None:
    jet.consumer(max_ack_pending=1)
    jet.publish("a", "b")
    jet.ack(jet.pull()[0], b"-NAK")
    assert texts(jet.pull()) == ["a"]


def test_a_late_ack_of_a_message_that_was_given_up_clears_its_redelivery_count(jet: Jet) -> None:
    jet.consumer(max_deliver=2, ack_wait=1_000_000_000)
    jet.publish("a")
    jet.pull()
    jet.advance(1.1)
    (message,) = jet.pull()
    jet.advance(1.1)
    assert jet.counts() | {"ack_pending": 0, "redelivered": 1} == jet.counts()
    jet.ack(message)
    assert jet.counts()["redelivered"] == 0


def test_a_double_ack_is_not_answered_when_the_disk_fails(jet: Jet) -> None:
    jet.consumer()
    jet.publish("a", "b")
    one, two = jet.pull(b"2")
    jet.machine.disk.plan = lambda call, path: DiskFault(error=errno.EIO) if call in ("sync", "pwrite") else None
    assert jet.double_ack(one) == []
    assert jet.double_ack(two) == []
    created = {"stream_name": "S", "config": {"durable_name": "D"}}
    assert jet.api("CONSUMER.DURABLE.CREATE.S.D", created)["error"]["err_code"] == 10077
    assert jet.api("CONSUMER.NAMES.S")["consumers"] == ["C"]


def test_acks_with_a_metric_each_are_handled_in_parts(jet: Jet) -> None:
    count = 400
    jet.consumer(sample_freq="100", max_ack_pending=-1)
    metrics = jet.listen("$JS.EVENT.METRIC.CONSUMER.ACK.S.C")
    jet.publish_many(count)
    replies = [message.reply for message in jet.pull({"batch": count})]
    samples, sample, run_ready = [0], Acks._sample, jet.machine.engine.run_ready

    def counted(self: Acks, *args: int) -> None:
        samples[-1] += 1
        sample(self, *args)

    def turn(budget: int) -> bool:
        samples.append(0)
        return run_ready(budget)

    with mock.patch.object(Acks, "_sample", counted), mock.patch.object(jet.machine.engine, "run_ready", turn):
        jet.wire.send(b"".join([b"PUB %b 0\r\n\r\n" % reply for reply in replies]))
    assert len(jet.heard(metrics)) == sum(samples) == count
    assert max(samples) <= SLICE // METRIC_COST + 1
    assert jet.info()["num_ack_pending"] == 0
