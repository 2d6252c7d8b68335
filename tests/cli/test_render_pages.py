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
from natsctl.cli.render.message import Received, message_document, render_next, render_received
from natsctl.cli.render.page import Page
from natsctl.cli.render.streams import render_cluster

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


def test_a_page_in_a_pipe_is_never_wrapped() -> None:
    page = Page("x")
    page.section().row("Label", "word " * 200)
    assert len(page.text().splitlines()) == 3


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
