"""Templates make a stream per subject on its first message, keep to their limits, and take their streams with them."""

from typing import Any

import pytest

from natsctl.api.account import UNLIMITED, AccountLimits
from natsctl.jetstream.endpoints.templates import stream_name
from natsctl.jetstream.engine_options import JetStreamOptions
from tests.support.jet import Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import SimDisk

CREATED = "io.nats.jetstream.api.v1.stream_template_create_response"


def template(jet: Jet, name: str = "ORDERS", max_streams: int = 3, **config: Any) -> Any:
    body = {"name": name, "config": {"subjects": ["ORDERS.*"], **config}, "max_streams": max_streams}
    return jet.api(f"STREAM.TEMPLATE.CREATE.{name}", body)


def publish(jet: Jet, subject: str, payload: bytes = b"x") -> list[Any]:
    sid = jet.listen("acks")
    jet.wire.publish(subject, payload, "acks")
    answers = [m.json() if m.payload else m.status for m in jet.heard(sid)]
    jet.wire.unsubscribe(sid)
    return answers


def names(jet: Jet) -> Any:
    return jet.api("STREAM.NAMES")["streams"] or []


def test_a_template_is_shown_with_its_whole_configuration(jet: Jet) -> None:
    answer = ok(template(jet, max_age=10**9))
    assert list(answer) == ["type", "config", "streams"]
    assert answer["type"] == CREATED
    assert list(answer["config"]) == ["name", "config", "max_streams"]
    assert answer["config"]["config"]["name"] == ""
    assert (answer["config"]["config"]["max_age"], answer["config"]["config"]["num_replicas"]) == (10**9, 1)
    assert answer["streams"] == []
    assert jet.api("STREAM.TEMPLATE.NAMES") == {
        "type": "io.nats.jetstream.api.v1.stream_template_names_response",
        "total": 1,
        "offset": 0,
        "limit": 1024,
        "streams": ["ORDERS"],
    }


def test_the_first_message_makes_the_stream_and_is_its_first(jet: Jet) -> None:
    ok(template(jet))
    events = jet.listen("$JS.EVENT.ADVISORY.STREAM.CREATED.*")
    assert publish(jet, "ORDERS.eu", b"one") == [{"stream": "ORDERS_eu", "seq": 1}]
    assert publish(jet, "ORDERS.eu", b"two") == [{"stream": "ORDERS_eu", "seq": 2}]
    info = ok(jet.api("STREAM.INFO.ORDERS_eu"))
    assert (info["config"]["subjects"], info["config"]["template_owner"]) == (["ORDERS.eu"], "ORDERS")
    assert jet.api("STREAM.MSG.GET.ORDERS_eu", {"seq": 1})["message"]["data"] == "b25l"
    assert jet.api("STREAM.TEMPLATE.INFO.ORDERS")["streams"] == ["ORDERS_eu"]
    (event,) = jet.heard(events)
    assert (event.json()["stream"], event.json()["template"]) == ("ORDERS_eu", "ORDERS")


def test_at_its_limit_messages_are_dropped_and_streams_go_on(jet: Jet) -> None:
    ok(template(jet, max_streams=1))
    publish(jet, "ORDERS.a")
    assert publish(jet, "ORDERS.b") == []
    assert publish(jet, "ORDERS.a")[0]["seq"] == 2
    assert names(jet) == ["ORDERS_a"]
    ok(jet.api("STREAM.DELETE.ORDERS_a"))
    assert publish(jet, "ORDERS.b") == [{"stream": "ORDERS_b", "seq": 1}]


def test_what_another_stream_captures_makes_none(jet: Jet) -> None:
    jet.stream("OTHER", "ORDERS.eu")
    ok(template(jet))
    assert publish(jet, "ORDERS.eu") == [{"stream": "OTHER", "seq": 1}]
    assert names(jet) == ["OTHER"]


def test_a_template_goes_with_its_streams_and_no_others(jet: Jet) -> None:
    jet.stream()
    ok(template(jet))
    publish(jet, "ORDERS.a")
    publish(jet, "ORDERS.b")
    assert jet.api("STREAM.TEMPLATE.DELETE.ORDERS") == {
        "type": "io.nats.jetstream.api.v1.stream_template_delete_response",
        "success": True,
    }
    assert names(jet) == ["S"]
    assert jet.api("STREAM.TEMPLATE.NAMES")["streams"] is None
    assert publish(jet, "ORDERS.a") == [b"503"]
    assert names(Jet(jet.machine.restarted())) == ["S"]


@pytest.mark.parametrize("crash", [SimDisk.kill, SimDisk.power_loss])
def test_what_was_answered_survives_a_crash(jet: Jet, crash: Any) -> None:
    ok(template(jet, max_streams=2))
    publish(jet, "ORDERS.a")
    again = Jet(jet.machine.restarted(crash))
    assert again.machine.store.healthy
    assert again.api("STREAM.TEMPLATE.INFO.ORDERS")["streams"] == ["ORDERS_a"]
    assert publish(again, "ORDERS.a")[0]["seq"] == 2
    assert publish(again, "ORDERS.b")[0]["seq"] == 1
    assert publish(again, "ORDERS.c") == []


def test_streams_of_a_template_can_not_be_changed_but_deleted(jet: Jet) -> None:
    ok(template(jet))
    publish(jet, "ORDERS.a")
    config = {"name": "ORDERS_a", "subjects": ["ORDERS.a"], "max_msgs": 5}
    refusal = jet.api("STREAM.UPDATE.ORDERS_a", config)["error"]
    assert refusal == {
        "code": 500,
        "err_code": 10052,
        "description": "stream configuration update not allowed on template owned stream",
    }
    ok(jet.api("STREAM.DELETE.ORDERS_a"))
    assert publish(jet, "ORDERS.a")[0]["seq"] == 1


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ({"name": "U"}, 10073, "template name in subject does not match request"),
        ({"config": {"name": "X", "subjects": ["t.*"]}}, 10066, "template config name should be empty"),
        ({"max_streams": 0}, 10066, "template max streams must be greater than zero"),
        ({"config": {"subjects": ["t.*"], "max_age": -1}}, 10052, "max age can not be negative"),
        ({"config": {}}, 10066, "template needs at least one subject"),
        ({"x": 1}, 10025, 'invalid JSON: json: unknown field "x"'),
    ],
)
def test_a_template_is_refused_for_a_reason(jet: Jet, body: dict[str, Any], code: int, text: str) -> None:
    whole = {"name": "T", "config": {"subjects": ["t.*"]}, "max_streams": 2, **body}
    answer = jet.api("STREAM.TEMPLATE.CREATE.T", whole)
    assert (answer["error"]["err_code"], answer["error"]["description"]) == (code, text)
    assert jet.api("STREAM.TEMPLATE.NAMES")["total"] == 0


def test_a_name_is_given_once(jet: Jet) -> None:
    ok(template(jet))
    assert template(jet)["error"]["description"] == 'template with name "ORDERS" already exists'


@pytest.mark.parametrize("verb", ["INFO", "DELETE"])
def test_a_template_that_is_missing_is_not_found(jet: Jet, verb: str) -> None:
    assert jet.api(f"STREAM.TEMPLATE.{verb}.X")["error"]["err_code"] == 10068
    assert jet.api(f"STREAM.TEMPLATE.{verb}.X", {"a": 1})["error"]["err_code"] == 10038


def test_limits_of_the_account_hold_for_what_a_template_makes() -> None:
    limits = AccountLimits(**{name: getattr(UNLIMITED, name) for name in UNLIMITED.__struct_fields__})
    limits.max_streams = 1
    jet = Jet(Machine(options=JetStreamOptions(accounts={"$G": limits})))
    ok(template(jet))
    assert publish(jet, "ORDERS.a")[0]["seq"] == 1
    assert publish(jet, "ORDERS.b") == []
    assert names(jet) == ["ORDERS_a"]


@pytest.mark.parametrize(
    ("template_name", "pattern", "subject", "expected"),
    [
        ("CLIENTS", "CLIENT.*", "CLIENT.acme", "CLIENTS_acme"),
        ("ORDERS", "ORDERS.*", "ORDERS.eu", "ORDERS_eu"),
        ("T", "ORDERS.>", "ORDERS.eu.new", "ORDERS_eu_new"),
        ("T", "*.new", "a.new", "a_new"),
        ("T", "a.b", "a.b", "a_b"),
    ],
)
def test_a_stream_is_named_after_its_subject(template_name: str, pattern: str, subject: str, expected: str) -> None:
    assert stream_name(template_name, pattern, subject) == expected
