"""Advisories and metrics: type first, then id and timestamp, on the subjects people watch."""

import msgspec
import pytest

from natsctl.api import advisories as adv
from natsctl.api.codec import decode, encode
from natsctl.api.stream import StreamState

S, C = "ORDERS", "NEW"


@pytest.mark.parametrize(
    ("event", "kind", "subject"),
    [
        (adv.StreamAction(stream=S), "advisory.v1.stream_action", "ADVISORY.STREAM.CREATED.ORDERS"),
        (
            adv.StreamAction(stream=S, action=adv.ActionType.MODIFY),
            "advisory.v1.stream_action",
            "ADVISORY.STREAM.UPDATED.ORDERS",
        ),
        (
            adv.ConsumerChanged(stream=S, consumer=C, action=adv.ActionType.DELETE),
            "advisory.v1.consumer_action",
            "ADVISORY.CONSUMER.DELETED.ORDERS.NEW",
        ),
        (adv.ConsumerPause(stream=S, consumer=C), "advisory.v1.consumer_pause", "ADVISORY.CONSUMER.PAUSE.ORDERS.NEW"),
        (
            adv.MaxDeliver(stream=S, consumer=C),
            "advisory.v1.max_deliver",
            "ADVISORY.CONSUMER.MAX_DELIVERIES.ORDERS.NEW",
        ),
        (adv.Nak(stream=S, consumer=C), "advisory.v1.nak", "ADVISORY.CONSUMER.MSG_NAKED.ORDERS.NEW"),
        (adv.Terminated(stream=S, consumer=C), "advisory.v1.terminated", "ADVISORY.CONSUMER.MSG_TERMINATED.ORDERS.NEW"),
        (
            adv.GroupPinned(stream=S, consumer=C),
            "advisory.v1.consumer_group_pinned",
            "ADVISORY.CONSUMER.PINNED.ORDERS.NEW",
        ),
        (
            adv.GroupUnpinned(stream=S, consumer=C),
            "advisory.v1.consumer_group_unpinned",
            "ADVISORY.CONSUMER.UNPINNED.ORDERS.NEW",
        ),
        (adv.SnapshotCreate(stream=S), "advisory.v1.snapshot_create", "ADVISORY.STREAM.SNAPSHOT_CREATE.ORDERS"),
        (adv.SnapshotComplete(stream=S), "advisory.v1.snapshot_complete", "ADVISORY.STREAM.SNAPSHOT_COMPLETE.ORDERS"),
        (adv.RestoreCreate(stream=S), "advisory.v1.restore_create", "ADVISORY.STREAM.RESTORE_CREATE.ORDERS"),
        (adv.RestoreComplete(stream=S), "advisory.v1.restore_complete", "ADVISORY.STREAM.RESTORE_COMPLETE.ORDERS"),
        (
            adv.BatchAbandoned(stream=S, batch="b"),
            "advisory.v1.stream_batch_abandoned",
            "ADVISORY.STREAM.BATCH_ABANDONED.ORDERS",
        ),
        (adv.ConsumerAckMetric(stream=S, consumer=C), "metric.v1.consumer_ack", "METRIC.CONSUMER.ACK.ORDERS.NEW"),
    ],
)
def test_an_event_has_its_type_and_subject(event: adv.StreamAction, kind: str, subject: str) -> None:
    event.id = "n"
    raw = encode(event)
    assert list(msgspec.json.decode(raw))[:4] == ["type", "id", "timestamp", "stream"]
    assert msgspec.json.decode(raw)["type"] == f"io.nats.jetstream.{kind}"
    assert event.published_on() == f"$JS.EVENT.{subject}"
    assert decode(raw, adv.Advisory) == event


def test_an_audit_carries_who_asked_and_what_was_answered() -> None:
    audit = adv.ApiAudit(server="n1", client=adv.ClientInfo(acc="$G", id=7), subject="$JS.API.INFO", response="{}")
    assert encode(audit) == (
        b'{"type":"io.nats.jetstream.advisory.v1.api_audit","id":"","timestamp":"0001-01-01T00:00:00Z","server":"n1",'
        b'"client":{"id":7,"acc":"$G"},"subject":"$JS.API.INFO","response":"{}"}'
    )


def test_a_snapshot_advisory_carries_the_state() -> None:
    event = adv.SnapshotCreate(stream=S, state=StreamState(messages=3))
    assert msgspec.json.decode(encode(event))["state"]["messages"] == 3
