"""Creating, changing and listing streams."""

from __future__ import annotations

from typing import Any

from tests.support.jet import Jet, ok


def create(jet: Jet, **config: Any) -> Any:
    return jet.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config})


def update(jet: Jet, **config: Any) -> Any:
    return jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **config})


def refusal(answer: Any) -> tuple[int, str]:
    return answer["error"]["err_code"], answer["error"]["description"]


def test_a_created_stream_shows_its_defaults_in_the_reference_order(jet: Jet) -> None:
    sid = jet.wire.subscribe("inbox")
    jet.wire.publish("$JS.API.STREAM.CREATE.S", b'{"name":"S"}', "inbox")
    config = (
        b'{"name":"S","subjects":["S"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,'
        b'"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,'
        b'"duplicate_window":120000000000,"compression":"none","allow_direct":false,"mirror_direct":false,"sealed":false,'
        b'"deny_delete":false,"deny_purge":false,"allow_rollup_hdrs":false,"consumer_limits":{},"allow_msg_ttl":false,'
        b'"metadata":{"_nats.level":"5","_nats.req.level":"0","_nats.ver":"2.15.2"}}'
    )
    assert jet.wire.take(sid)[0].payload == (
        b'{"type":"io.nats.jetstream.api.v1.stream_create_response","config":' + config + b","
        b'"created":"2026-01-01T00:00:00Z","state":{"messages":0,"bytes":0,"first_seq":0,'
        b'"first_ts":"0001-01-01T00:00:00Z","last_seq":0,"last_ts":"0001-01-01T00:00:00Z","consumer_count":0},'
        b'"ts":"2026-01-01T00:00:00Z","did_create":true}'
    )


def test_no_answer_to_a_create_before_it_is_durable(jet: Jet) -> None:
    sid = jet.wire.subscribe("inbox")
    jet.machine.hold_commits = True
    jet.wire.publish("$JS.API.STREAM.CREATE.S", b'{"name":"S"}', "inbox")
    assert jet.wire.take(sid) == []
    jet.machine.hold_commits = False
    jet.machine.settle()
    assert len(jet.wire.take(sid)) == 1


# Update


def test_an_update_survives_a_restart(jet: Jet) -> None:
    ok(create(jet))
    changed = ok(update(jet, description="changed", max_msgs=7))
    again = Jet(jet.machine.restarted())
    info = again.api("STREAM.INFO.S")
    assert (info["config"], info["created"]) == (changed["config"], changed["created"])


# Looking


def test_lists_come_in_pages(jet: Jet) -> None:
    for number in range(260):
        jet.stream(f"N{number:03d}", f"n.{number}", storage="memory")
    first, second = jet.api("STREAM.LIST"), jet.api("STREAM.LIST", {"offset": 256})
    assert (first["total"], first["limit"], len(first["streams"])) == (260, 256, 256)
    assert [s["config"]["name"] for s in second["streams"]] == ["N256", "N257", "N258", "N259"]


def test_only_info_names_the_leader(jet: Jet) -> None:
    created = ok(create(jet))
    assert jet.api("STREAM.INFO.S")["cluster"] == {"leader": jet.machine.broker.server_name}
    assert "cluster" not in created
    assert "cluster" not in jet.api("STREAM.LIST")["streams"][0]


def test_a_deleted_stream_is_gone_for_good(jet: Jet) -> None:
    ok(create(jet))
    jet.publish("1")
    jet.consumer()
    assert jet.api("STREAM.DELETE.S") == {
        "type": "io.nats.jetstream.api.v1.stream_delete_response",
        "success": True,
    }
    assert refusal(jet.api("STREAM.INFO.S"))[0] == 10059
    assert jet.wire.request("s.a").status == b"503"
    again = Jet(jet.machine.restarted())
    assert again.api("STREAM.NAMES")["streams"] is None
    assert ok(create(again))["state"]["last_seq"] == 0
