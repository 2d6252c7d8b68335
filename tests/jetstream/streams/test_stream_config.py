"""Creating, changing and listing streams."""

from __future__ import annotations

from typing import Any

import pytest

from natsctl.jetstream.engine_context import JetStreamOptions
from natsctl.testing.jet import SECOND, Jet, ok
from natsctl.testing.machine import Machine


def create(jet: Jet, **config: Any) -> Any:
    """Send a create request for stream S."""
    return jet.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config})


def update(jet: Jet, **config: Any) -> Any:
    """Send an update request for stream S."""
    return jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **config})


def refusal(answer: Any) -> tuple[int, str]:
    """Return err_code and text."""
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


def test_creating_the_same_stream_again_succeeds(jet: Jet) -> None:
    first = create(jet, max_msgs=5)
    jet.publish("1")
    again = create(jet, max_msgs=5)
    assert (again["did_create"], again["created"], again["state"]["messages"]) == (True, first["created"], 1)
    assert refusal(create(jet, max_msgs=6))[0] == 10058


@pytest.mark.parametrize(
    ("config", "code", "text"),
    [
        ({"name": "T"}, 10056, "stream name in subject does not match request"),
        ({"sealed": True}, 10052, "stream configuration for create can not be sealed"),
        ({"mirror_direct": True}, 10052, "stream has no mirror but does have mirror direct"),
        ({"description": "x" * 4097}, 10052, "stream description is too long, maximum allowed is 4096"),
        ({"metadata": {"a": "x" * 131072}}, 10052, "stream metadata exceeds maximum size of 131072 bytes"),
        ({"num_replicas": 3}, 10074, "replicas > 1 not supported in non-clustered mode"),
        ({"num_replicas": 6}, 10052, "maximum replicas is 5"),
        ({"num_replicas": -1}, 10133, "replicas count cannot be negative"),
        ({"max_age": -1}, 10052, "max age can not be negative"),
        ({"max_age": 99_999_999}, 10052, "max age needs to be >= 100ms"),
        ({"duplicate_window": -1}, 10052, "duplicates window can not be negative"),
        ({"duplicate_window": 99_999_999}, 10052, "duplicates window needs to be >= 100ms"),
        (
            {"max_age": SECOND, "duplicate_window": 2 * SECOND},
            10052,
            "duplicates window can not be larger then max age",
        ),
        ({"deny_purge": True, "allow_rollup_hdrs": True}, 10052, "roll-ups require the purge permission"),
        (
            {"discard_new_per_subject": True},
            10052,
            "discard new per subject requires discard new policy to be set",
        ),
        (
            {"discard_new_per_subject": True, "discard": "new"},
            10052,
            "discard new per subject requires max msgs per subject > 0",
        ),
        ({"placement": {"preferred": "x"}}, 10052, "preferred server not permitted in placement"),
        ({"subjects": ["a b"]}, 10052, "invalid subject"),
        ({"subjects": ["a..b"]}, 10052, "invalid subject"),
        ({"subjects": ["a.*", "a.b"]}, 10052, 'subject "a.*" overlaps with "a.b"'),
        ({"subjects": [">"]}, 10052, "capturing all subjects requires no-ack to be true"),
        ({"subjects": ["$JS.>"]}, 10052, "subjects that overlap with jetstream api require no-ack to be true"),
        ({"subjects": ["$SYS.x"]}, 10052, "subjects that overlap with system api require no-ack to be true"),
        ({"mirror": {"name": "T"}}, 10034, "stream mirrors can not contain subjects"),
        ({"sources": [{"name": "a.b"}]}, 10141, "sourced stream name is invalid"),
        (
            {"republish": {"dest": "s.>"}},
            10052,
            "stream configuration for republish destination forms a cycle",
        ),
        ({"allow_msg_counter": True, "discard": "new"}, 10052, "counter stream cannot use discard new"),
        ({"subject_delete_marker_ttl": 1}, 10052, "subject delete marker TTL must be at least 1 second"),
        ({"allow_msg_schedules": True, "discard": "new"}, 10052, "message scheduling cannot use discard new"),
        ({"sources": [{"name": "S"}]}, 10052, "detected cycle"),
        ({"sources": [{"name": "T"}, {"name": "T"}]}, 10140, "duplicate source configuration detected"),
        (
            {"sources": [{"name": "T", "external": {"api": "$JS.API"}}]},
            10021,
            "stream external api prefix $JS.API must not overlap with $JS.API",
        ),
        ({"subject_transform": {"src": "s..a", "dest": "t"}}, 10155, "stream transform source: invalid subject s..a"),
        (
            {"subject_transform": {"src": "s.*", "dest": "t.{{wildcard(2)}}"}},
            10156,
            "stream transform: invalid mapping destination: wildcard index out of range in {{wildcard(2)}}: [2]",
        ),
        ({"max_msgs": -5, "pedantic": True}, 10157, "pedantic mode: max_msgs must be set to -1"),
        ({"retention": "forever"}, 10025, 'invalid JSON: can not unmarshal "\\"forever\\""'),
        ({"colour": "red"}, 10025, 'invalid JSON: json: unknown field "colour"'),
    ],
)
def test_what_create_refuses(jet: Jet, config: dict[str, Any], code: int, text: str) -> None:
    assert refusal(create(jet, **config)) == (code, text)
    assert jet.api("STREAM.NAMES")["streams"] is None


def test_names_of_streams(jet: Jet) -> None:
    invalid = "stream name is required and can not contain '.', '*', '>', '\\', '/'"
    assert refusal(jet.api("STREAM.CREATE.a/b", {"name": "a/b"})) == (
        10128,
        "Stream name can not contain path separators",
    )
    assert refusal(jet.api("STREAM.CREATE.*", {"name": "*"})) == (10052, invalid)
    assert refusal(jet.api("STREAM.CREATE." + "x" * 256, {"name": "x" * 256})) == (
        10052,
        "stream name is too long, maximum allowed is 255",
    )


def test_values_out_of_range_are_normalised(jet: Jet) -> None:
    config = ok(create(jet, max_msgs=0, max_bytes=-7, max_age=30 * SECOND, num_replicas=0, placement={}))["config"]
    assert (config["max_msgs"], config["max_bytes"], config["num_replicas"]) == (-1, -1, 1)
    assert config["duplicate_window"] == 30 * SECOND
    assert "placement" not in config


def test_streams_do_not_share_subjects(jet: Jet) -> None:
    ok(create(jet))
    assert refusal(jet.api("STREAM.CREATE.T", {"name": "T", "subjects": ["s.*.a"]}))[0] == 10065
    ok(jet.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]}))
    assert refusal(jet.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t", "s.x"]}))[0] == 10065


def test_reservations_beyond_the_server_are_refused() -> None:

    jet = Jet(Machine(options=JetStreamOptions(max_memory=1000, max_storage=2000)))
    assert refusal(create(jet, storage="memory", max_bytes=1001))[0] == 10028
    assert refusal(create(jet, max_bytes=2001))[0] == 10047
    ok(create(jet, max_bytes=1500))
    assert refusal(jet.api("STREAM.CREATE.T", {"name": "T", "max_bytes": 600}))[0] == 10047
    ok(update(jet, max_bytes=2000))
    assert jet.api("INFO")["reserved_storage"] == 2000


# Update


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"storage": "memory"}, 10052, "stream configuration update can not change storage type"),
        (
            {"retention": "workqueue"},
            10052,
            "stream configuration update can not change retention policy to/from workqueue",
        ),
        (
            {"deny_delete": False},
            10052,
            "stream configuration update can not cancel deny message deletes",
        ),
        ({"deny_purge": False}, 10052, "stream configuration update can not cancel deny purge"),
        ({"num_replicas": 3}, 10074, "replicas > 1 not supported in non-clustered mode"),
        ({"name": "T"}, 10056, "stream name in subject does not match request"),
    ],
)
def test_what_update_refuses(jet: Jet, change: dict[str, Any], code: int, text: str) -> None:
    before = ok(create(jet, deny_delete=True, deny_purge=True))["config"]
    assert refusal(update(jet, **{"deny_delete": True, "deny_purge": True, **change})) == (code, text)
    assert jet.api("STREAM.INFO.S")["config"] == before


def test_updating_a_missing_stream_is_not_found(jet: Jet) -> None:
    assert refusal(update(jet)) == (10059, "stream not found")


def test_sealing_is_final(jet: Jet) -> None:
    ok(create(jet, max_age=60 * SECOND))
    config = ok(update(jet, sealed=True))["config"]
    expected = {"max_age": 0, "discard": "new", "deny_delete": True, "deny_purge": True, "allow_rollup_hdrs": False}
    assert {key: config[key] for key in expected} == expected
    flags = {"deny_delete": True, "deny_purge": True, "discard": "new"}
    assert refusal(update(jet, **flags)) == (10052, "stream configuration update can not unseal a sealed stream")


def test_changed_subjects_are_captured_at_once(jet: Jet) -> None:
    ok(create(jet))
    jet.publish("1")
    ok(update(jet, subjects=["t.>"]))
    assert jet.wire.request("s.a", b"x").status == b"503"
    assert jet.wire.request("t.a", b"x")["seq"] == 2
    assert jet.api("STREAM.INFO.S")["state"]["messages"] == 2


def test_consumer_limits_hold_for_consumers_that_exist(jet: Jet) -> None:
    ok(create(jet))
    jet.consumer(max_ack_pending=10)
    answer = update(jet, consumer_limits={"max_ack_pending": 5})
    assert refusal(answer) == (10069, "change to limits violates consumers: C")
    ok(update(jet, consumer_limits={"max_ack_pending": 10}))


def test_an_update_survives_a_restart(jet: Jet) -> None:
    ok(create(jet))
    changed = ok(update(jet, description="changed", max_msgs=7))
    again = Jet(jet.machine.restarted())
    info = again.api("STREAM.INFO.S")
    assert (info["config"], info["created"]) == (changed["config"], changed["created"])


# Looking


def test_streams_are_listed_by_name_and_by_subject(jet: Jet) -> None:
    for name in ("C", "A", "B"):
        jet.stream(name, f"{name.lower()}.*")
    assert jet.api("STREAM.NAMES")["streams"] == ["A", "B", "C"]
    assert [s["config"]["name"] for s in jet.api("STREAM.LIST")["streams"]] == ["A", "B", "C"]
    assert jet.api("STREAM.NAMES", {"subject": "b.>"})["streams"] == ["B"]
    assert jet.api("STREAM.NAMES", {"subject": "x"}) == {
        "type": "io.nats.jetstream.api.v1.stream_names_response",
        "total": 0,
        "offset": 0,
        "limit": 1024,
        "streams": None,
    }
    assert jet.api("STREAM.NAMES", {"offset": 2})["streams"] == ["C"]
    assert jet.api("STREAM.NAMES", {"offset": 9})["offset"] == 3


def test_lists_come_in_pages(jet: Jet) -> None:
    for number in range(260):
        jet.stream(f"N{number:03d}", f"n.{number}", storage="memory")
    first, second = jet.api("STREAM.LIST"), jet.api("STREAM.LIST", {"offset": 256})
    assert (first["total"], first["limit"], len(first["streams"])) == (260, 256, 256)
    assert [s["config"]["name"] for s in second["streams"]] == ["N256", "N257", "N258", "N259"]


def test_info_counts_subjects_on_request(jet: Jet) -> None:
    ok(create(jet))
    for number in range(5):
        jet.publish("x", subject=f"s.{number % 3}")
    plain = jet.api("STREAM.INFO.S")
    assert (plain["total"], plain["limit"], plain["state"]["num_subjects"]) == (0, 0, 3)
    assert "subjects" not in plain["state"]
    info = jet.api("STREAM.INFO.S", {"subjects_filter": "s.*", "offset": 1})
    assert (info["total"], info["offset"], info["limit"]) == (3, 1, 100_000)
    assert info["state"]["subjects"] == {"s.1": 2, "s.2": 1}


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


def test_account_info_counts(jet: Jet) -> None:
    ok(create(jet))
    jet.stream("M", "m", storage="memory")
    jet.consumer()
    jet.publish("x" * 100)
    jet.publish("x" * 10, subject="m")
    jet.api("STREAM.INFO.NONE")
    info = jet.api("INFO")
    assert (info["streams"], info["consumers"]) == (2, 1)
    assert (info["storage"], info["memory"]) == (22 + 3 + 100 + 8, 1 + 10 + 16)
    assert info["api"] == {"level": 5, "total": 4, "errors": 1}


def test_stream_advisories(jet: Jet) -> None:
    sid = jet.listen("$JS.EVENT.ADVISORY.STREAM.*.S")
    ok(create(jet))
    ok(update(jet, description="x"))
    ok(jet.api("STREAM.DELETE.S"))
    heard = jet.heard(sid)
    assert [m.subject.split(b".")[4] for m in heard] == [b"CREATED", b"UPDATED", b"DELETED"]
    bodies = [m.json() for m in heard]
    assert [body["action"] for body in bodies] == ["create", "modify", "delete"]
    assert list(bodies[0]) == ["type", "id", "timestamp", "stream", "action"]
    assert bodies[0]["type"] == "io.nats.jetstream.advisory.v1.stream_action"
    assert len(bodies[0]["id"]) == 22
