"""Resets, pauses, changes and ends of consumers: the same with natsctl's engine and with the reference server."""

from typing import Any

from tests.support.differential import Scenarios, Talk
from tests.support.jet import SECOND

scenario = Scenarios()


@scenario
def resets_of_all_policies(t: Talk) -> None:
    for number in range(1, 7):
        t.jet.publish(str(number), subject=f"s.{number % 2}")
    policies: tuple[dict[str, Any], ...] = (
        {},
        {"filter_subject": "s.0"},
        {"ack_policy": "all"},
        {"ack_policy": "none"},
        {"deliver_policy": "last"},
        {"deliver_policy": "new"},
        {"deliver_policy": "last_per_subject", "filter_subject": "s.>"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        {"deliver_policy": "by_start_time", "opt_start_time": "2080-01-01T00:00:00Z"},
    )
    for index, config in enumerate(policies):
        name = f"C{index}"
        t.create(name, **config)
        t.ask(f"CONSUMER.RESET.S.{name}")
        messages = t.pull({"batch": 2, "no_wait": True}, name)
        if messages and config.get("ack_policy") != "none":
            t.note(t.jet.double_ack(messages[0]))
            t.info(name)  # the reference confirms an ack before it has carried it out
        t.ask(f"CONSUMER.RESET.S.{name}")
        for seq in (1, 2, 3, 6, 7, 99):
            t.ask(f"CONSUMER.RESET.S.{name}", {"seq": seq})
        t.ask(f"CONSUMER.RESET.S.{name}", {"seq": 0})
        t.pull({"batch": 3, "no_wait": True}, name)
        t.info(name)


@scenario
def what_can_not_be_reset_or_updated(t: Talk) -> None:
    t.create()
    for body in (b"{}", b"{", b"x", b'{"seq":"1"}', b'{"seq":-1}', b'{"seq":1.5}', b"[]", b"5"):
        t.ask("CONSUMER.RESET.S.C", body)
    t.create("U", action="update")


@scenario
def a_reset_forgets_redeliveries(t: Talk) -> None:
    t.create(max_deliver=2)
    t.jet.publish("1", "2", "3")
    one, two, _ = t.pull(b"3")
    t.jet.ack(one, b"-NAK")
    t.jet.ack(two)
    t.pull({"batch": 1, "expires": SECOND})
    t.info()
    t.ask("CONSUMER.RESET.S.C", {"seq": 2})
    t.info()
    t.note(t.jet.double_ack(one))
    t.pull({"batch": 5, "no_wait": True})
    t.info()


@scenario
def a_consumer_that_begins_paused(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
    t.jet.publish("1", "2")
    t.create(pause_until="2099-01-01T00:00:00Z")
    t.info()
    t.create(pause_until="2098-01-01T00:00:00Z")
    t.pull({"batch": 1, "no_wait": True})
    t.ask("CONSUMER.PAUSE.S.C", {"pause_until": "2097-01-01T00:00:00.5Z"})
    t.ask("CONSUMER.PAUSE.S.C", {"pause_until": "2097-01-01T00:00:00.5Z"})
    t.ask("CONSUMER.PAUSE.S.C", {"pause_until": "2001-01-01T00:00:00Z"})
    t.info()
    t.pull({"batch": 1, "no_wait": True})
    t.ask("CONSUMER.PAUSE.S.C", {"pause_until": "0001-01-01T00:00:00Z"})
    t.ask("CONSUMER.PAUSE.S.C", b"{")
    t.ask("CONSUMER.PAUSE.S.C", {"pause_until": "soon"})
    t.info()
    t.event(heard)


@scenario
def changes_while_messages_are_pending(t: Talk) -> None:
    t.create(max_ack_pending=2)
    t.jet.publish("1", "2", "3", "4")
    one, two = t.pull({"batch": 2, "expires": SECOND})
    t.create(max_ack_pending=3)
    (three,) = t.pull({"batch": 1, "expires": SECOND})
    t.create(max_ack_pending=1)
    held = t.jet.listen("in.held")
    t.jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1", "in.held")
    t.jet.ack(three)
    t.note(t.jet.heard(held))
    t.info()
    t.jet.ack(one)
    t.info()
    t.jet.ack(two)
    t.note(t.jet.heard(held))
    t.info()
    t.create(headers_only=True, max_deliver=5, sample_freq="100", description="d", metadata={"a": "b"})
    t.jet.publish("5")
    t.pull({"batch": 9, "no_wait": True})
    t.info()


@scenario
def acks_are_sampled(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.METRIC.CONSUMER.ACK.>")
    t.create(ack_policy="all", sample_freq="100")
    t.jet.publish("1", "2", "3", "4")
    messages = t.pull(b"4")
    t.jet.ack(messages[1])
    t.jet.ack(messages[0])
    t.jet.ack(messages[2], b"+TERM")
    t.create(ack_policy="all", sample_freq="0")
    t.jet.ack(messages[3])
    t.info()
    t.event(heard)


@scenario
def terms_and_naks_are_told_as_they_were_named(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
    t.create(max_deliver=3)
    t.jet.publish("1", "2", "3")
    one, two, three = t.pull(b"3")
    t.jet.ack(one, b"+TERM  for a reason ")
    t.jet.ack(one, b"+TERM")
    t.jet.ack(one, b"-NAK")
    t.jet.ack(two, b"-NAK 10h")
    t.jet.ack(three, b"-NAK")
    t.pull({"batch": 1, "expires": SECOND})
    t.jet.ack(three, b"-NAK")
    t.pull({"batch": 1, "expires": SECOND})
    t.jet.ack(three, b"-NAK")
    t.info()
    t.pull({"batch": 1, "no_wait": True})
    t.info()
    t.note(t.jet.double_ack(three._replace(reply=b"$JS.ACK.S.C.7.99.99.1.0"), b"+TERM future"))
    t.event(heard)
    t.info()


@scenario
def a_stream_deletes_what_is_pending(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.*")
    t.jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs": 3})
    t.create()
    t.create("A", ack_policy="all")
    t.create("N", ack_policy="none")
    for number in range(3):
        t.jet.publish(str(number))
    for name in ("C", "A", "N"):
        t.pull({"batch": 2, "expires": SECOND}, name)
    for number in range(2):
        t.jet.publish(str(number))
        for name in ("C", "A", "N"):
            t.info(name)
    t.jet.api("STREAM.MSG.DELETE.S", {"seq": 4})
    for name in ("C", "A", "N"):
        t.pull({"batch": 5, "no_wait": True}, name)
        t.info(name)
    t.notes.append(sorted(m.subject for m in t.jet.heard(heard)))
