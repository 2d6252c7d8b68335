"""Consumers: the same conversations with natsctl's engine and with the reference server."""

from typing import Any

from tests.support.differential import Scenarios, Talk
from tests.support.jet import SECOND

scenario = Scenarios()


@scenario
def pulls_and_acks(t: Talk) -> None:
    t.create()
    t.pull({"batch": 2, "no_wait": True})
    t.jet.publish("1", "2", "3", "4", "5", "6")
    one, two, three = t.pull(b"3")
    t.jet.ack(three)
    t.info()
    t.jet.ack(one, b"+ACK")
    t.info()
    t.note(t.jet.double_ack(two, b"-NAK"))
    t.info()
    t.pull({"batch": 10, "no_wait": True})
    t.info()
    t.note(t.jet.double_ack(two))
    t.note(t.jet.double_ack(two))
    t.info()
    t.pull({"batch": 1, "max_bytes": 10, "no_wait": True})
    t.jet.publish("7", "8")
    t.pull({"batch": 3, "max_bytes": 10, "expires": SECOND})
    (seven,) = t.pull({"batch": 1, "expires": SECOND})
    t.note(t.jet.double_ack(seven, b"+NXT"))
    t.jet.publish("9", "10")
    nine, _ten = t.pull({"batch": 2, "max_bytes": 1000, "expires": SECOND})
    t.note(t.jet.double_ack(nine, b'+NXT {"batch":1,"no_wait":true}'))
    t.note(t.jet.double_ack(nine, b"+TERM why"))
    t.note(t.jet.double_ack(nine, b"+WPI"))
    t.info()
    t.pull(b"nonsense")
    t.pull({"expires": SECOND, "idle_heartbeat": SECOND})


@scenario
def redelivery_and_giving_up(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.>")
    t.create(ack_wait=5 * SECOND, max_deliver=2)
    t.jet.publish("1", "2", "3")
    _, two, three = t.pull(b"3")
    t.jet.ack(three, b"-NAK")
    t.jet.ack(two, b"+TERM because")
    t.jet.advance(5.5)
    t.info()
    t.pull({"batch": 5, "no_wait": True})
    t.info()
    t.jet.advance(5.5)
    t.pull({"batch": 5, "no_wait": True})
    t.event(heard)


@scenario
def deliver_policies(t: Talk) -> None:
    for index in range(6):
        t.jet.publish(str(index), subject="s.a" if index % 3 else "s.b")
    policies: tuple[dict[str, Any], ...] = (
        {"deliver_policy": "last"},
        {"deliver_policy": "last", "filter_subject": "s.b"},
        {"deliver_policy": "last", "filter_subject": "s.none"},
        {"deliver_policy": "new"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 30},
        {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        {"deliver_policy": "by_start_time", "opt_start_time": "2080-01-01T00:00:00Z"},
        {"deliver_policy": "last_per_subject", "filter_subject": "s.>"},
        {"deliver_policy": "last_per_subject", "filter_subjects": ["s.a", "s.c"]},
        {"filter_subjects": ["s.b", "s.c"]},
    )
    for index, config in enumerate(policies):
        name = f"C{index}"
        t.create(name, **config)
        t.pull({"batch": 10, "no_wait": True}, name)
        t.info(name)


@scenario
def rare_acks(t: Talk) -> None:
    naked = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.>")
    t.create()
    t.jet.publish("1", "2", "3")
    one, two, three = t.pull(b"3")
    t.note(t.jet.double_ack(one._replace(reply=b"$JS.ACK.S.C.1.77.77.1.0")))
    t.note(t.jet.double_ack(one, b"what"))
    t.jet.ack(one, b'-NAK {"delay": 12000000000}')
    t.jet.ack(two, b"-NAK 5500ms")
    t.jet.ack(three, b"-NAK soon")
    t.pull({"batch": 5, "no_wait": True})
    t.jet.advance(6)
    t.pull({"batch": 5, "no_wait": True})
    t.jet.advance(6.5)
    (again,) = t.pull({"batch": 5, "no_wait": True})
    t.jet.ack(again, b"-NAK")
    t.info()
    t.event(naked)


@scenario
def ack_none_answers_acks(t: Talk) -> None:
    t.create(ack_policy="none")
    t.jet.publish("1", "2")
    (one,) = t.pull()
    t.note(t.jet.double_ack(one))
    t.note(t.jet.double_ack(one, b"-NAK"))
    t.note(t.jet.double_ack(one, b"+NXT"))
    t.info()


@scenario
def several_requests_wait(t: Talk) -> None:
    t.create(max_ack_pending=4)
    sids = []
    bodies = (b"2", b'{"batch":3,"expires":9000000000}', b'{"batch":2,"no_wait":true,"expires":9000000000}')
    for index, body in enumerate(bodies):
        sids.append(t.jet.listen(f"in.{index}"))
        t.jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, f"in.{index}")
    t.info()
    t.jet.publish("1")
    t.jet.publish("2")
    t.jet.publish("3")
    t.jet.publish("4")
    t.jet.publish("5")
    t.info()
    t.pull({"batch": 2, "no_wait": True})
    t.jet.advance(9.5)
    t.hear(*sids)
    t.info()


@scenario
def flow_control(t: Talk) -> None:
    t.create(deliver_subject="d.x", idle_heartbeat=60 * SECOND, flow_control=True, ack_policy="none")
    for _ in range(12):
        t.jet.publish("x" * 100_000)
    sid = t.jet.listen("d.x")
    t.jet.advance(0.2)
    t.note(t.jet.heard(sid))
    t.info()


@scenario
def last_per_subject_with_replacement(t: Talk) -> None:
    for round_ in "12":
        for key in "abc":
            t.jet.publish(key + round_, subject=f"s.{key}")
    t.create(deliver_policy="last_per_subject", filter_subject="s.>")
    t.pull()
    t.jet.publish("c3", subject="s.c")
    t.info()
    t.pull({"batch": 9, "no_wait": True})
    t.info()
