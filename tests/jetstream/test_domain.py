"""The API under the name of the server's domain."""

from __future__ import annotations

import pytest

from natsctl.jetstream.engine_context import JetStreamOptions
from natsctl.testing.jet import Jet, ok
from natsctl.testing.machine import Machine


@pytest.fixture
def hub() -> Jet:
    return Jet(Machine(options=JetStreamOptions(domain="HUB")))


def test_every_object_is_reached_by_the_domains_name(hub: Jet) -> None:
    ask = hub.wire.request
    assert ask("$JS.HUB.API.INFO")["domain"] == "HUB"
    config = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
    assert "domain" not in ok(ask("$JS.HUB.API.STREAM.CREATE.S", config))
    assert ok(ask("$JS.HUB.API.STREAM.INFO.S"))["domain"] == "HUB"
    wish = {"stream_name": "S", "config": {"name": "C", "filter_subject": "s.>"}}
    assert ok(ask("$JS.HUB.API.CONSUMER.CREATE.S.C.s.>", wish))["name"] == "C"
    assert ask("s.a", b"x") == {"stream": "S", "domain": "HUB", "seq": 1}
    sid = hub.listen("in")
    hub.wire.publish("$JS.HUB.API.DIRECT.GET.S.s.a", b"", "in")
    assert [m.payload for m in hub.heard(sid)] == [b"x"]
    hub.wire.publish("$JS.HUB.API.CONSUMER.MSG.NEXT.S.C", b"", "in")
    assert [m.payload for m in hub.heard(sid)] == [b"x"]


def test_buckets_are_reached_by_the_domains_name(hub: Jet) -> None:
    hub.stream("KV_b", "$KV.b.>")
    assert hub.wire.request("$JS.HUB.API.$KV.b.k", b"v")["seq"] == 1
    message = ok(hub.api("STREAM.MSG.GET.KV_b", {"seq": 1}))["message"]
    assert message["subject"] == "$KV.b.k"


def test_another_domain_and_unknown_verbs_have_no_responder(hub: Jet) -> None:
    assert hub.wire.request("$JS.OTHER.API.INFO").status == b"503"
    assert hub.wire.request("$JS.HUB.API.FOO").status == b"503"
    assert hub.wire.request("$JS.HUB.API.DIRECT.GET.X").header == (
        b"NATS/1.0 503\r\nNats-Subject: $JS.API.DIRECT.GET.X\r\n\r\n"
    )


def test_events_name_the_domain(hub: Jet) -> None:
    sid = hub.listen("$JS.EVENT.ADVISORY.>")
    hub.stream()
    hub.consumer()
    events = [m.json() for m in hub.heard(sid)]
    assert len(events) == 4
    assert {event["domain"] for event in events} == {"HUB"}
