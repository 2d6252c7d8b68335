"""What random programs found: acks of removed messages, and where purges, rollups and limits put consumers."""

from typing import Any

from tests.support.differential import Scenarios, Talk

scenario = Scenarios()

PUSH: dict[str, Any] = {"deliver_subject": "push"}


def active(t: Talk, name: str = "C") -> None:
    """Note whether delivered and ack floor have a time, and where they are."""
    info = t.info(name)
    t.notes.append(["last_active" in info[key] for key in ("delivered", "ack_floor")])


@scenario
def a_message_that_is_gone_counts_as_acknowledged(t: Talk) -> None:
    t.create()
    t.create("D")
    t.jet.publish("1", "2", "3")
    t.pull({"batch": 1, "no_wait": True})
    t.pull({"batch": 2, "no_wait": True}, "D")
    t.ask("STREAM.MSG.DELETE.S", {"seq": 1})
    active(t)
    t.ask("STREAM.PURGE.S")
    active(t, "D")


@scenario
def an_ack_that_comes_too_late_is_activity(t: Talk) -> None:
    t.create()
    t.create("D", ack_policy="all")
    t.jet.publish("1")
    (one,) = t.pull({"no_wait": True})
    (other,) = t.pull({"no_wait": True}, "D")
    t.ask("CONSUMER.RESET.S.C")
    active(t)
    t.note(t.jet.double_ack(one))
    active(t)
    t.note(t.jet.double_ack(one._replace(reply=one.reply.replace(b".1.1.1.", b".1.9.9."))))
    active(t)
    t.note(t.jet.double_ack(other))
    t.note(t.jet.double_ack(other))
    active(t, "D")


@scenario
def a_push_consumer_refuses_to_send_more_for_an_ack(t: Talk) -> None:
    heard = t.jet.listen("push")
    t.create(**PUSH)
    t.jet.publish("1")
    (one,) = t.jet.heard(heard)
    t.note(t.jet.double_ack(one, b"+NXT"))
    t.info()


@scenario
def a_purge_of_nothing_moves_consumers_too(t: Talk) -> None:
    t.jet.publish("1", "2", "3")
    t.create(filter_subject="s.b")
    t.create("D")
    t.create("E", filter_subject="s.a")
    t.ask("STREAM.PURGE.S", {"filter": "s.b"})
    for name in ("C", "D", "E"):
        t.info(name)
    t.ask("STREAM.PURGE.S", {"keep": 5})
    t.ask("STREAM.PURGE.S", {"seq": 1})
    for name in ("C", "D", "E"):
        t.info(name)


@scenario
def a_purge_tells_of_the_only_message_that_it_takes(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.>")
    t.jet.stream("M", "m.>", storage="memory")
    for stream, own in (("S", "s"), ("M", "m")):
        for filters in ([], [f"{own}.*"], [f"{own}.a"]):
            for purge in ({"filter": f"{own}.*"}, {"filter": f"{own}.a"}, {"filter": f"{own}.>"}, {}, {"keep": 1}):
                t.jet.publish("1", "2", subject=f"{own}.a")
                t.ask(f"STREAM.MSG.DELETE.{stream}", {"seq": 1})
                if "keep" not in purge:
                    t.jet.api(f"STREAM.PURGE.{stream}", {"keep": 1})
                config = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": filters}
                t.ask(f"CONSUMER.DURABLE.CREATE.{stream}.C", {"stream_name": stream, "config": config})
                t.jet.pull({"batch": 1, "no_wait": True}, "C", stream)
                t.jet.heard(heard)
                t.ask(f"STREAM.PURGE.{stream}", purge)
                t.ask(f"CONSUMER.INFO.{stream}.C")
                t.event(heard)
                t.jet.api(f"CONSUMER.DELETE.{stream}.C")


@scenario
def a_message_that_is_gone_tells_how_often_it_was_redelivered(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
    t.create()
    t.jet.publish("1", "2", "3")
    for _ in range(3):
        for message in t.pull({"batch": 3, "no_wait": True}):
            if message.payload > b"1":
                t.jet.ack(message, b"-NAK")
        t.jet.publish("more")
    t.pull({"batch": 10, "no_wait": True})
    for seq in (1, 2, 3, 4, 5):
        t.ask("STREAM.MSG.DELETE.S", {"seq": seq})
        t.event(heard)


@scenario
def a_rollup_tells_of_the_only_message_that_it_takes(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.*.*.C")
    for name, storage in (("M", "memory"), ("F", "file")):
        t.jet.stream(name, f"{name}.>", storage=storage, allow_rollup_hdrs=True)
        for filters in ([], [f"{name}.*"], [f"{name}.a"]):
            for which in (b"all", b"sub"):
                config = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": filters}
                t.jet.api(f"CONSUMER.DURABLE.CREATE.{name}.C", {"stream_name": name, "config": config})
                t.jet.api(f"STREAM.PURGE.{name}")
                t.jet.publish("1", subject=f"{name}.a")
                t.jet.pull({"batch": 1, "no_wait": True}, "C", name)
                t.jet.heard(heard)
                t.jet.wire.request(f"{name}.a", b"2", b"NATS/1.0\r\nNats-Rollup: %b\r\n\r\n" % which)
                t.ask(f"CONSUMER.INFO.{name}.C")
                t.event(heard)
                t.jet.api(f"CONSUMER.DELETE.{name}.C")


@scenario
def limits_drop_before_a_rollup_does(t: Talk) -> None:
    heard = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.*.*.C")
    for name, limits in (("M", {"max_msgs_per_subject": 1}), ("F", {"max_msgs": 3})):
        t.jet.stream(name, f"{name}.>", allow_rollup_hdrs=True, **limits)
        t.jet.consumer("C", name)
        for subject in ("a", "b", "c"):
            t.jet.publish("1", subject=f"{name}.{subject}")
        t.jet.pull({"batch": 1, "no_wait": True}, "C", name)
        t.jet.wire.request(f"{name}.c", b"2", b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n")
        t.ask(f"CONSUMER.INFO.{name}.C")
        t.event(heard)


@scenario
def consumers_begin_where_the_last_message_was(t: Talk) -> None:
    for subject in ("s.a", "s.b", "s.a", "s.c"):
        t.jet.publish("x", subject=subject)
    t.jet.stream("M", "m.>", max_msgs_per_subject=1)
    t.jet.publish("x", "y", "z", subject="m.a")
    t.ask("STREAM.MSG.DELETE.S", {"seq": 4})
    t.create("L", deliver_policy="last")
    t.create("F", deliver_policy="last", filter_subject="s.a")
    t.create("G", deliver_policy="last", filter_subject="s.none")
    t.create("P", deliver_policy="last_per_subject", filter_subject="s.none")
    t.create("Q", deliver_policy="last_per_subject")
    t.create("N", deliver_policy="new")
    for filters in (["s.b"], ["s.a"], ["s.c"], ["s.b", "s.none"]):
        t.create("T", deliver_policy="by_start_time", opt_start_time="2020-01-01T00:00:00Z", filter_subjects=filters)
        t.ask("CONSUMER.DELETE.S.T")
    config = {"durable_name": "P", "deliver_policy": "last_per_subject"}
    t.ask("CONSUMER.DURABLE.CREATE.M.P", {"stream_name": "M", "config": config})
    config |= {"durable_name": "R", "filter_subject": "m.none"}
    t.ask("CONSUMER.DURABLE.CREATE.M.R", {"stream_name": "M", "config": config})
    t.info("L")


@scenario
def a_consumer_in_memory_shows_how_far_it_looked(t: Talk) -> None:
    t.jet.publish("1", "2")
    t.jet.listen("push")
    for name, memory in (("C", True), ("D", False)):
        t.create(name, **PUSH, filter_subject="s.b", mem_storage=memory, ack_policy="none")
        t.info(name)


@scenario
def what_is_not_there_can_not_be_deleted(t: Talk) -> None:
    t.jet.stream("M", "m.>", storage="memory")
    for stream, subject in (("S", "s.a"), ("M", "m.a")):
        for _ in range(3):
            for seq in (0, 1, 2, 3, 9):
                t.ask(f"STREAM.MSG.DELETE.{stream}", {"seq": seq})
            t.jet.publish("1", "2", subject=subject)
