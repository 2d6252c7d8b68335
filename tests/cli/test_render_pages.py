"""Information pages, tables, changes, messages and events as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from natsctl.api.consumer import ConsumerConfig, ConsumerInfo
from natsctl.api.stream import ClusterInfo, StreamConfig, StreamInfo
from natsctl.cli.output import show_page
from natsctl.cli.render import consumers, streams
from natsctl.cli.render.change import LABELS, changes, render_change
from natsctl.cli.render.consumers import render_consumer
from natsctl.cli.render.message import Received, message_document, render_next, render_received
from natsctl.cli.render.page import Page
from natsctl.cli.render.streams import render_cluster, render_stream

NOW_NS = 1_767_225_600_000_000_000

STREAM: dict[str, Any] = {
    "config": {
        "name": "ORDERS",
        "subjects": ["ORDERS.*", "SHOP.>"],
        "retention": "workqueue",
        "max_msgs": -1,
        "max_bytes": 1024 * 1024 * 13,
        "max_age": 31536000 * 1_000_000_000,
        "max_msgs_per_subject": 5,
        "discard": "new",
        "discard_new_per_subject": True,
        "storage": "memory",
        "num_replicas": 3,
        "no_ack": True,
        "duplicate_window": 120_000_000_000,
        "placement": {"cluster": "east", "tags": ["ssd"]},
        "compression": "s2",
        "deny_purge": True,
        "allow_direct": True,
        "metadata": {"team": "sales\x1b[2J", "_nats.ver": "2.15.2", "_nats.req.level": "0", "_nats.level": "5"},
        "republish": {"src": "a", "dest": "b", "headers_only": True},
        "mirror": {"name": "OTHER", "filter_subject": "x.>", "external": {"api": "$JS.hub.API", "deliver": ""}},
    },
    "created": "2026-07-20T15:23:51Z",
    "state": {
        "messages": 1234,
        "bytes": 150528,
        "first_seq": 1,
        "first_ts": "2026-07-20T15:24:01Z",
        "last_seq": 1300,
        "last_ts": "2026-07-20T15:24:09Z",
        "num_subjects": 2,
        "num_deleted": 66,
        "lost": {"msgs": [7], "bytes": 100},
        "consumer_count": 2,
    },
    "cluster": {
        "name": "C1",
        "leader": "n1",
        "replicas": [{"name": "n2", "current": True, "active": 120_000_000, "lag": 3}, {"name": "n3", "offline": True}],
    },
    "ts": "2026-07-21T00:00:00Z",
}
CONSUMER: dict[str, Any] = {
    "stream_name": "ORDERS",
    "name": "DISPATCH",
    "created": "2026-07-20T15:23:51Z",
    "config": {
        "durable_name": "DISPATCH",
        "name": "DISPATCH",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 10,
        "ack_policy": "explicit",
        "ack_wait": 30_000_000_000,
        "max_deliver": 20,
        "filter_subjects": ["a", "b"],
        "replay_policy": "original",
        "sample_freq": "100",
        "max_ack_pending": 1000,
        "max_waiting": 512,
        "backoff": [60_000_000_000, 120_000_000_000],
    },
    "delivered": {"consumer_seq": 3, "stream_seq": 3, "last_active": "2025-12-31T23:59:58Z"},
    "ack_floor": {"consumer_seq": 1, "stream_seq": 1},
    "num_ack_pending": 2,
    "num_redelivered": 1,
    "num_pending": 7,
}


def stream(**changed: Any) -> StreamInfo:
    return msgspec.convert({**STREAM, **changed}, StreamInfo)


def consumer(**changed: Any) -> ConsumerInfo:
    return msgspec.convert({**CONSUMER, **changed}, ConsumerInfo)


def test_a_stream_page_has_the_references_sections_labels_and_values() -> None:
    text = render_stream(stream()).text()
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0].startswith("Information for Stream ORDERS created 2026-07-20 15:23:51 ")
    for wanted in (
        "Subjects: ORDERS.*, SHOP.>",
        "Replicas: 3",
        "Storage: Memory",
        "Compression: S2 Compression",
        "Placement Cluster: east",
        "Placement Tags: ssd",
        "Republishing: a to b",
        "Republishing Headers: only",
        "Retention: WorkQueue",
        "Acknowledgments: false",
        "Discard Policy: New Per Subject",
        "Duplicate Window: 2m0s",
        "Direct Get: true",
        "Allows Purge: false",
        "Maximum Messages: unlimited",
        "Maximum Per Subject: 5",
        "Maximum Bytes: 13 MiB",
        "Maximum Age: 1y0d0h0m0s",
        "team: sales\\x1b[2J",
        "Mirror: OTHER, filter x.>, API prefix $JS.hub.API",
        "Leader: n1",
        "Replica: n2, current, seen 120ms ago, 3 operations behind",
        "Replica: n3, OFFLINE, not seen",
        "Host Version: 2.15.2",
        "Required API Level: 0 hosted at level 5",
        "Messages: 1,234",
        "Bytes: 147 KiB",
        "Lost Messages: 1 (100 B)",
        "Deleted Messages: 66",
        "Active Consumers: 2",
        "Number of Subjects: 2",
    ):
        assert wanted in lines, wanted
    sections = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Options:", "Limits:", "Metadata:", "Replication:", "Cluster Information:", "State:"]


def test_a_page_in_a_pipe_is_never_wrapped() -> None:
    page = Page("x")
    page.section().row("Label", "word " * 200)
    assert len(page.text().splitlines()) == 3


def test_a_consumer_page_has_the_references_labels() -> None:
    lines = [line.strip() for line in render_consumer(consumer(), NOW_NS).text().splitlines()]
    assert lines[0].startswith("Information for Consumer ORDERS > DISPATCH created")
    for wanted in (
        "Pull Mode: true",
        "Filter Subjects: a, b",
        "Deliver Policy: From Sequence 10",
        "Ack Policy: Explicit",
        "Ack Wait: 30.00s",
        "Replay Policy: Original",
        "Maximum Deliveries: 20",
        "Sampling Rate: 100",
        "Max Ack Pending: 1,000",
        "Max Waiting Pulls: 512",
        "Backoff: 1m0s, 2m0s",
        "Last Delivered Message: Consumer sequence: 3 Stream sequence: 3 Last delivery: 2.00s ago",
        "Acknowledgment Floor: Consumer sequence: 1 Stream sequence: 1",
        "Outstanding Acks: 2 out of maximum 1,000",
        "Redelivered Messages: 1",
        "Unprocessed Messages: 7",
        "Waiting Pulls: 0 of maximum 512",
    ):
        assert wanted in lines, wanted


def test_a_push_consumer_shows_its_interest_instead_of_pulls() -> None:
    config = {"deliver_subject": "out", "deliver_group": "g", "ack_policy": "none"}
    lines = [
        line.strip() for line in render_consumer(consumer(config=config, push_bound=True), NOW_NS).text().splitlines()
    ]
    assert "Delivery Subject: out" in lines
    assert "Active Interest: Active using Queue Group g" in lines
    assert not [line for line in lines if line.startswith(("Pull Mode", "Waiting Pulls", "Outstanding"))]


def test_changes_are_told_field_by_field_for_people() -> None:
    old = {"max_age": 0, "subjects": ["a"], "max_bytes": -1, "placement": {"cluster": "x"}, "sealed": False}
    new = {"max_age": 60_000_000_000, "subjects": ["a", "b"], "max_bytes": 1024, "description": "hi"}
    assert [render_change(change) for change in changes(old, new)] == [
        "max_age: unlimited → 1m0s",
        "subjects: a → a, b",
        "max_bytes: unlimited → 1.0 KiB",
        "placement.cluster: x → (none)",
        "description: (none) → hi",
    ]


def test_labels_of_changes_are_those_of_the_pages() -> None:
    pages = Path(streams.__file__).read_text() + Path(consumers.__file__).read_text()
    assert [label for label in LABELS.values() if f'"{label}"' not in pages] == []
    fields = {*StreamConfig.__struct_fields__, *ConsumerConfig.__struct_fields__}
    assert LABELS.keys() - fields == set()


def test_what_the_server_keeps_in_metadata_and_absent_zeros_are_no_change() -> None:
    old = {"metadata": {"_nats.ver": "1", "a": "b"}, "max_msgs": 0}
    assert changes(old, {"metadata": {"a": "b"}, "sealed": False}) == []


DELIVERED = Received(
    "ORDERS.processed", "$JS.ACK.ORDERS.DISPATCH.2.5.3.1500000000000000000.1", (("K", "v"),), b"order 2", NOW_NS
)


def test_a_delivered_message_tells_where_it_stands() -> None:
    assert (
        render_next(DELIVERED) == "--- received on ORDERS.processed / tries: 2 / cons seq: 3 / str seq: 5 / pending: 1"
    )
    assert (
        render_received(3, DELIVERED)
        == "[#3] Received JetStream message: stream: ORDERS seq: 5 / pending: 1 / subject: ORDERS.processed"
        " / time: 2017-07-14 02:40:00 +00:00"
    )
    plain = Received("a\x07", "b", (), b"", 0)
    assert render_received(1, plain, False) == '[#1] Received on "a\\x07" with reply "b"'


def test_a_message_as_data_keeps_every_byte() -> None:
    document = json.loads(json.dumps(message_document(DELIVERED)))
    assert (document["data"], document["text"], document["headers"]) == ("b3JkZXIgMg==", "order 2", {"K": ["v"]})
    assert (document["stream_seq"], document["deliveries"], document["time"]) == (5, 2, "2017-07-14T02:40:00Z")
    binary = message_document(Received("a", "", (), b"\xff\x00", 0))
    assert binary["data"] == "/wA="
    assert "text" not in binary


def test_a_page_is_json_of_labels_and_values_for_tests_of_the_nats_tool(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Page("Heading")
    page.section().row("Name", "x")
    section = page.section("State")
    section.many("Sources", ["A", "B"])
    section.row("Messages", "1,000")
    page.section("Empty")
    render_cluster(page, ClusterInfo(leader="alone"))
    monkeypatch.setenv("TESTING", "true")
    show_page(page)
    assert json.loads(capsys.readouterr().out) == {
        "Header": "Heading",
        "Name": "x",
        "State": {"Sources": "A", "Messages": "1,000"},
        "Cluster Information": {"Name": "", "Leader": "alone"},
    }
    monkeypatch.setenv("TESTING", "false")
    show_page(page)
    text = capsys.readouterr().out
    assert (text.startswith("Heading\n"), "Cluster" in text) == (True, False)
