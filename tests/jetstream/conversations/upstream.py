"""Mirrors and sources on both servers: the same topologies, the same contents, headers and infos."""

import base64
import re
import time
from typing import Any, Final

from tests.support.differential import Scenarios, Talk, scrub

scenario = Scenarios()

PATIENCE_S: Final = 15.0
"""How long the reference may take to connect a mirror or source, failures before that included."""

ACKED_S: Final = 2.5
"""How long until a source has acknowledged all that came: it does so when heartbeats ask, once a second."""

PLAIN: Final = ("first_ts", "last_ts", "cluster", "limit", "offset", "total")
HASHED: Final = ("durable_name", "name", "deliver_subject")
DELETED: Final = ("num_deleted", "deleted")
IDENTITY: Final = re.compile(rb"(Nats-Stream-Source: (?:[^ ]+ ){4}[^ ]+) [0-9A-Za-z]{8}\r\n")


def shown(info: Any) -> Any:
    """Return an info without what differs from run to run."""
    for key in ("mirror", "sources"):
        for each in [info.get(key)] if key == "mirror" else info.get(key, []):
            if each is not None:
                each["active"] = "never" if each["active"] == -1 else "lately"
    if "sources" in info:
        info["sources"].sort(key=repr)
    unused = DELETED if not info["state"]["last_seq"] else ()  # the reference counts one sequence of an unused stream
    info["state"] = {k: v for k, v in info["state"].items() if k not in PLAIN and k not in unused}
    return scrub({k: v for k, v in info.items() if k not in PLAIN})


def show(t: Talk, name: str, *but: str) -> None:
    """Note what STREAM.INFO says (of sources, `but` some keys) once it says the same, and everything that is stored."""
    end = time.monotonic() + PATIENCE_S
    while True:
        info = t.jet.api(f"STREAM.INFO.{name}", {"deleted_details": True})
        info["sources"] = [{k: v for k, v in each.items() if k not in but} for each in info.get("sources", [])]
        note = (name, shown(info))
        if not t._differs(note) or time.monotonic() > end:  # the harness's own way to wait
            break
        time.sleep(0.05)
    t.notes.append(note)
    state = dict(dict(note[1])["state"])
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        answer = t.jet.api(f"STREAM.MSG.GET.{name}", {"seq": seq})
        if "message" in answer:
            m = answer["message"]
            header = IDENTITY.sub(rb"\1 IDENTITY\r\n", base64.b64decode(m.get("hdrs", "")))
            t.notes.append((name, seq, m["subject"], header, base64.b64decode(m.get("data", ""))))


def make(t: Talk, name: str, **config: Any) -> None:
    answer = t.jet.api(f"STREAM.CREATE.{name}", {"name": name, **config})
    t.notes.append(shown(answer) if "error" not in answer else answer)


def update(t: Talk, name: str, **config: Any) -> None:
    """Change a stream and note whether that was refused: what follows shows what it did."""
    answer = t.jet.api(f"STREAM.UPDATE.{name}", {"name": name, **config})
    t.notes.append(answer.get("error"))


def block(*lines: str) -> bytes:
    return "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()


def send(t: Talk, subject: str, payload: str = "", *lines: str) -> None:
    sid = t.jet.wire.subscribe("_INBOX.ack")
    t.jet.wire.publish(subject, payload.encode(), "_INBOX.ack", block(*lines) if lines else b"")
    t.note(t.jet.wire.take(sid))
    t.jet.wire.unsubscribe(sid)


@scenario
def a_mirror_copies_messages_headers_and_gaps(t: Talk) -> None:
    for at in range(6):
        send(t, f"s.{at}", f"m{at}", f"K: {at}")
    for seq in (1, 3, 4):
        t.ask("STREAM.MSG.DELETE.S", {"seq": seq})
    make(t, "M", mirror={"name": "S"})
    show(t, "M")
    send(t, "s.x", "more")
    show(t, "M")


@scenario
def times_are_those_of_the_origin(t: Talk) -> None:
    send(t, "s.a", "m")
    make(t, "M", mirror={"name": "S"})
    show(t, "M")
    times = [t.jet.api(f"STREAM.MSG.GET.{name}", {"seq": 1})["message"]["time"] for name in "SM"]
    t.notes.append(times[0] == times[1])


@scenario
def mirrors_begin_where_they_are_told_and_filter(t: Talk) -> None:
    for at in range(8):
        send(t, f"s.{at % 3}", f"m{at}")
    make(t, "A", mirror={"name": "S", "opt_start_seq": 5})
    make(t, "B", mirror={"name": "S", "filter_subject": "s.1"})
    make(t, "C", mirror={"name": "S", "opt_start_seq": 3, "filter_subject": "s.2"})
    make(t, "D", mirror={"name": "S", "opt_start_seq": 50})
    make(t, "E", mirror={"name": "S", "opt_start_time": "2020-01-01T00:00:00Z"})
    make(t, "F", mirror={"name": "S", "opt_start_time": "2099-01-01T00:00:00Z"})
    for name in "ABCDEF":
        show(t, name)
    send(t, "s.1", "m")
    send(t, "s.2", "m")
    for name in "ABCE":
        show(t, name)


@scenario
def mirrors_transform_subjects(t: Talk) -> None:
    transforms = [{"src": "s.1", "dest": "one"}, {"src": "s.*.*", "dest": "two.{{wildcard(2)}}.{{wildcard(1)}}"}]
    make(t, "M", mirror={"name": "S", "subject_transforms": transforms})
    make(t, "N", mirror={"name": "S", "subject_transforms": [{"src": "s.1", "dest": ""}]})
    for subject in ("s.1", "s.2", "s.a.b", "s.1"):
        send(t, subject, "m")
    show(t, "M")
    show(t, "N")


@scenario
def a_mirror_leaves_out_conditions_and_keeps_ids(t: Talk) -> None:
    make(t, "M", mirror={"name": "S"})
    show(t, "M")
    send(t, "s.a", "m", "A: 1", "Nats-Expected-Last-Sequence: 0", "B: 2")
    send(t, "s.a", "m", "Nats-Expected-Stream: S")
    send(t, "s.a", "m", "Nats-Msg-Id: x")
    show(t, "M")


@scenario
def what_is_removed_at_the_origin_stays_in_its_mirror(t: Talk) -> None:
    make(t, "M", mirror={"name": "S"})
    for at in range(4):
        send(t, "s.a", f"{at}")
    show(t, "M")
    t.ask("STREAM.MSG.DELETE.S", {"seq": 2})
    t.ask("STREAM.PURGE.S", {})
    send(t, "s.a", "after")
    show(t, "M")
    t.ask("STREAM.PURGE.M", {})
    send(t, "s.a", "again")
    show(t, "M")


@scenario
def a_mirror_has_limits_of_its_own(t: Talk) -> None:
    make(t, "M", mirror={"name": "S"}, max_msgs=2)
    make(t, "P", mirror={"name": "S"}, max_msgs_per_subject=1)
    for at in range(4):
        send(t, f"s.{at % 2}", f"{at}")
    show(t, "M")
    show(t, "P")


@scenario
def a_promoted_mirror_is_a_stream_like_any_other(t: Talk) -> None:
    send(t, "s.a", "first")
    make(t, "M", mirror={"name": "S"})
    show(t, "M")
    update(t, "M", subjects=["m.>"])
    send(t, "s.a", "missed")
    send(t, "m.a", "own")
    show(t, "M")


@scenario
def a_missing_origin_is_shown(t: Talk) -> None:
    make(t, "M", mirror={"name": "NONE"})
    make(t, "X", sources=[{"name": "NONE"}])
    show(t, "M")
    show(t, "X")


@scenario
def sources_tell_where_messages_are_from(t: Talk) -> None:
    send(t, "s.a", "plain")
    send(t, "s.b", "with", "K: v", "Nats-Msg-Id: 1")
    make(t, "X", sources=[{"name": "S"}])
    show(t, "X")
    send(t, "s.c", "", "Only: header")
    show(t, "X")


@scenario
def an_origin_is_taken_twice(t: Talk) -> None:
    several = [{"src": "s.2", "dest": "two"}, {"src": "s.3.*", "dest": "three.{{wildcard(1)}}"}]
    make(t, "X", sources=[{"name": "S", "filter_subject": "s.1"}, {"name": "S", "subject_transforms": several}])
    show(t, "X")
    for subject in ("s.1", "s.4", "s.3.a"):
        send(t, subject, "m")
        show(t, "X")


@scenario
def sources_of_one_transform_and_of_filters(t: Talk) -> None:
    make(t, "X", sources=[{"name": "S", "subject_transforms": [{"src": "s.>", "dest": "x.>"}]}])
    make(t, "Y", sources=[{"name": "S", "filter_subject": "s.a.>"}])
    make(t, "Z", sources=[{"name": "S", "subject_transforms": [{"src": "s.a.*", "dest": ""}]}])
    for subject in ("s.a.1", "s.b", "s.a.2"):
        send(t, subject, "m")
    for name in "XYZ":
        show(t, name)


@scenario
def sources_begin_where_they_are_told(t: Talk) -> None:
    for at in range(5):
        send(t, "s.a", f"{at}")
    make(t, "X", sources=[{"name": "S", "opt_start_seq": 4}])
    make(t, "Y", sources=[{"name": "S", "opt_start_time": "2099-01-01T00:00:00Z"}])
    make(t, "Z", sources=[{"name": "S", "opt_start_time": "2020-01-01T00:00:00Z"}])
    for name in "XYZ":
        show(t, name)


@scenario
def a_chain_names_the_nearest_origin(t: Talk) -> None:
    make(t, "MID", sources=[{"name": "S"}])
    make(t, "X", sources=[{"name": "MID"}])
    make(t, "M", mirror={"name": "MID"})
    send(t, "s.a", "m", "K: v")
    send(t, "s.a", "n")
    for name in ("MID", "X", "M"):
        show(t, name)


@scenario
def sources_beside_own_subjects_and_ids(t: Talk) -> None:
    make(t, "X", subjects=["x"], sources=[{"name": "S"}], duplicate_window=60_000_000_000)
    send(t, "x", "own", "Nats-Msg-Id: 1")
    show(t, "X")
    send(t, "s.a", "same", "Nats-Msg-Id: 1")
    send(t, "s.a", "other", "Nats-Msg-Id: 2")
    show(t, "X")
    send(t, "x", "again", "Nats-Msg-Id: 2")


@scenario
def wishes_of_publishers_are_left_out_or_obeyed(t: Talk) -> None:
    make(t, "R", subjects=["r.>"], allow_rollup_hdrs=True, allow_msg_ttl=True)
    make(t, "X", sources=[{"name": "R"}])
    make(t, "Y", sources=[{"name": "R"}], allow_rollup_hdrs=True)
    make(t, "M", mirror={"name": "R"})
    send(t, "r.a", "1", "Nats-Expected-Last-Sequence: 0", "K: v")
    send(t, "r.a", "2", "Nats-TTL: 100s")
    for name in "XYM":
        show(t, name)
    send(t, "r.a", "3", "Nats-Rollup: sub")
    for name in "XYM":
        show(t, name)


@scenario
def a_stream_with_a_transform_of_its_own_maps_sourced_messages_too(t: Talk) -> None:
    make(t, "X", sources=[{"name": "S"}], subject_transform={"src": "s.>", "dest": "mapped.>"})
    send(t, "s.a", "m")
    show(t, "X")


@scenario
def counters_are_summed(t: Talk) -> None:
    for name in ("A", "B"):
        make(t, name, subjects=[f"{name}.hits"], allow_msg_counter=True)
    sources = [{"name": n, "subject_transforms": [{"src": f"{n}.hits", "dest": "hits"}]} for n in ("A", "B")]
    make(t, "X", sources=sources, allow_msg_counter=True)
    make(t, "P", sources=[{"name": "A"}])
    show(t, "X")
    for name, step in (("A", "+2"), ("B", "5"), ("A", "4"), ("B", "-1")):
        send(t, f"{name}.hits", "", f"Nats-Incr: {step}")
        show(t, "X")
    show(t, "P")


@scenario
def a_work_queue_is_consumed(t: Talk) -> None:
    make(t, "W", subjects=["w.>"], retention="workqueue")
    for at in range(3):
        send(t, "w.a", f"{at}")
    make(t, "X", sources=[{"name": "W"}])
    show(t, "X")
    t.jet.advance(ACKED_S)
    show(t, "W")
    send(t, "w.a", "more")
    show(t, "X")
    t.jet.advance(ACKED_S)
    show(t, "W")
    consumers(t, "W")


@scenario
def an_interest_stream_is_consumed(t: Talk) -> None:
    make(t, "I", subjects=["i.>"], retention="interest")
    make(t, "M", mirror={"name": "I"})
    show(t, "M")
    for at in range(3):
        send(t, "i.a", f"{at}")
    show(t, "M")
    t.jet.advance(ACKED_S)
    show(t, "I")
    consumers(t, "I")


def consumers(t: Talk, name: str) -> None:
    answer = t.jet.api(f"CONSUMER.LIST.{name}")
    for each in answer["consumers"]:
        for key in ("cluster", "ts", "created", "delivered", "ack_floor", "num_ack_pending"):
            each.pop(key, None)
        each["name"] = "X"  # ends with a hash over the account, as the others
        each["config"] |= {key: re.sub(r"\w{8}$", "X", each["config"][key]) for key in HASHED}
    t.notes.append((answer["total"], scrub(answer["consumers"])))


@scenario
def consumers_of_a_limits_stream_are_not_shown(t: Talk) -> None:
    make(t, "M", mirror={"name": "S"})
    make(t, "X", sources=[{"name": "S"}])
    send(t, "s.a", "m")
    show(t, "M")
    show(t, "X")
    consumers(t, "S")
    t.ask("CONSUMER.NAMES.S")
    show(t, "S")


@scenario
def sources_come_and_go(t: Talk) -> None:
    make(t, "T", subjects=["t.>"])
    make(t, "X", subjects=["x"], sources=[{"name": "S"}])
    send(t, "s.a", "1")
    show(t, "X")
    update(t, "X", subjects=["x"], sources=[{"name": "S"}, {"name": "T"}])
    send(t, "t.a", "2")
    show(t, "X")
    update(t, "X", subjects=["x"], sources=[{"name": "T"}])
    send(t, "s.a", "3")
    send(t, "t.a", "4")
    show(t, "X")
    update(t, "X", subjects=["x"], sources=[{"name": "S"}, {"name": "T"}])
    show(t, "X")
    update(t, "X", subjects=["x"])
    show(t, "X")


@scenario
def a_new_source_begins_at_the_newest_message_of_a_stream_that_lost_some(t: Talk) -> None:
    make(t, "X", subjects=["x"], sources=[{"name": "S", "filter_subject": "s.a"}])
    for subject in ("s.b", "s.a"):
        for n in range(3):
            send(t, subject, str(n))
        t.jet.advance(0.2)  # so that the copies are younger than what they shall hide
    show(t, "X")
    t.ask("STREAM.PURGE.X", {"keep": 1})
    update(t, "X", subjects=["x"], sources=[{"name": "S", "filter_subject": "s.b"}])
    t.jet.advance(1)
    show(t, "X")
    send(t, "s.b", "new")
    show(t, "X")


@scenario
def an_origin_made_anew_is_taken_from_its_beginning(t: Talk) -> None:
    make(t, "X", sources=[{"name": "S"}])
    send(t, "s.a", "1")
    send(t, "s.a", "2")
    show(t, "X")
    t.ask("STREAM.DELETE.S")
    t.jet.advance(0.1)
    t.jet.stream("S")
    send(t, "s.a", "anew")
    t.jet.advance(22)  # the reference notices after ten to twenty seconds
    show(t, "X")


@scenario
def sources_use_consumers_made_beforehand(t: Talk) -> None:
    for at in range(3):
        send(t, "s.a", f"{at}")
    config = {"durable_name": "D", "ack_policy": "flow_control", "deliver_subject": "deliver.d", "max_ack_pending": 10}
    answer = t.jet.api("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": config})
    t.notes.append("error" in answer)
    make(t, "X", sources=[{"name": "S", "consumer": {"name": "D", "deliver_subject": "deliver.d"}}])
    show(t, "X")
    send(t, "s.a", "more")
    show(t, "X")


@scenario
def a_consumer_made_beforehand_must_ack_by_flow_control(t: Talk) -> None:
    config = {"durable_name": "D", "ack_policy": "explicit", "deliver_subject": "deliver.d"}
    t.jet.api("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": config})
    make(t, "X", sources=[{"name": "S", "consumer": {"name": "D", "deliver_subject": "deliver.d"}}])
    show(t, "X")


@scenario
def a_stream_with_sources_can_refuse_what_is_too_much(t: Talk) -> None:
    make(t, "X", sources=[{"name": "S"}], max_msgs=2, discard="new")
    for at in range(4):
        send(t, "s.a", f"{at}")
    show(t, "X", "lag")  # the reference forgets the message that was refused


@scenario
def lists_show_mirrors_and_sources(t: Talk) -> None:
    make(t, "M", mirror={"name": "S"})
    make(t, "X", sources=[{"name": "S"}])
    send(t, "s.a", "m")
    show(t, "M")
    show(t, "X")
    answer = t.jet.api("STREAM.LIST")
    t.notes.append([shown(each) for each in answer["streams"]])
