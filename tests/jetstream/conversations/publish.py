"""Publishing to natsctl's engine and to the reference: every check, its text, and what ends up in the stream."""

from __future__ import annotations

import re
from typing import Any

from tests.support.differential import Scenarios, Talk
from tests.support.jet import ok


def nothing(t: Talk) -> None:
    """Begin without a stream."""


scenario = Scenarios(nothing)


def make(t: Talk, name: str = "S", *subjects: str, **config: Any) -> None:
    """Make a stream, on `s.>` unless told otherwise."""
    t.jet.stream(name, *subjects, **config)


def block(headers: dict[str, str]) -> bytes:
    """Return a header block; `_` in keys stands for `-`."""
    lines = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode() if headers else b""


def pub(t: Talk, payload: str = "x", subject: str = "s.a", reply: str = "", raw: bytes = b"", **headers: str) -> None:
    inbox = reply or f"_INBOX.p{len(t.notes)}"
    sid = t.jet.wire.subscribe(inbox)
    t.jet.wire.publish(subject, payload.encode(), inbox, raw or block(headers))
    t.note(t.jet.wire.take(sid))
    t.jet.wire.unsubscribe(sid)


def stored(t: Talk, stream: str = "S") -> None:
    info = ok(t.jet.api(f"STREAM.INFO.{stream}"))
    last = info["state"]["last_seq"]
    t.notes.append([info["state"][key] for key in ("messages", "first_seq", "last_seq")])
    for seq in range(1, last + 1):
        answer = t.jet.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})
        message = answer.get("message", {})
        t.notes.append((seq, answer.get("error"), [message.get(key) for key in ("subject", "hdrs", "data")]))


# The order of checks


@scenario
def a_size_beyond_the_limit_wins_over_a_duplicate(t: Talk) -> None:
    make(t, max_msg_size=64)
    pub(t, Nats_Msg_Id="one")
    pub(t, "x" * 100, Nats_Msg_Id="one")
    pub(t, "x" * 100, Nats_Expected_Stream="other")
    pub(t, "x" * 64)
    pub(t, "x" * 65)


@scenario
def each_expectation_has_its_text(t: Talk) -> None:
    make(t)
    pub(t, Nats_Expected_Last_Sequence="1")
    pub(t, Nats_Expected_Last_Sequence="0")
    for wrong in ("0", "2", "x", "-1", "+1", "1 ", " 1", "18446744073709551617", "99999999999999999999999", "1.0", ""):
        pub(t, Nats_Expected_Last_Sequence=wrong)
        pub(t, Nats_Expected_Last_Subject_Sequence=wrong)
    pub(t, Nats_Expected_Last_Subject_Sequence="0", subject="s.new")
    pub(t, Nats_Expected_Last_Subject_Sequence="7", subject="s.new")
    pub(t, Nats_Expected_Last_Subject_Sequence="9", Nats_Expected_Last_Subject_Sequence_Subject="s.*")
    pub(t, Nats_Expected_Last_Subject_Sequence="0", Nats_Expected_Last_Subject_Sequence_Subject="s.none")
    pub(t, Nats_Expected_Last_Subject_Sequence_Subject="s.none")
    pub(t, Nats_Expected_Stream="other")
    pub(t, Nats_Expected_Stream="S")
    pub(t, Nats_Expected_Last_Msg_Id="a")
    pub(t, Nats_Msg_Id="a")
    pub(t, Nats_Expected_Last_Msg_Id="a")
    pub(t, Nats_Expected_Last_Msg_Id="a")
    pub(t, Nats_Stream_Source="S 1 > > s.a")
    stored(t)


@scenario
def expectations_are_asked_in_the_references_order(t: Talk) -> None:
    make(t)
    pub(t)
    wrongs = {
        "Nats-Incr": "x",
        "Nats-Expected-Stream": "other",
        "Nats-TTL": "1h",
        "Nats-Expected-Last-Subject-Sequence": "9",
        "Nats-Expected-Last-Sequence": "8",
        "Nats-Schedule": "@every 1s",
        "Nats-Stream-Source": "a 1",
        "Nats-Expected-Last-Msg-Id": "other",
        "Nats-Rollup": "x",
    }
    while wrongs:
        pub(t, **wrongs)
        wrongs.pop(next(iter(wrongs)))


WRONG = (
    ("Nats-Incr", "1"),
    ("Nats-Expected-Stream", "other"),
    ("Nats-TTL", "x"),
    ("Nats-Expected-Last-Subject-Sequence", "9"),
    ("Nats-Expected-Last-Subject-Sequence-Subject", "s.b"),
    ("Nats-Expected-Last-Sequence", "8"),
    ("Nats-Schedule", "@every x"),
    ("Nats-Schedule-Time-Zone", "Nowhere/None"),
    ("Nats-Schedule-Next", "now"),
    ("Nats-Scheduler", "s.b"),
    ("Nats-Stream-Source", "a 1"),
    ("Nats-Msg-Id", "known"),
    ("Nats-Expected-Last-Msg-Id", "other"),
    ("Nats-Rollup", "x"),
)
"""Each of them is refused, or a duplicate."""


def in_pairs(t: Talk, payload: str) -> None:
    for at, (first, one) in enumerate(WRONG):
        for second, two in WRONG[at + 1 :]:
            pub(t, payload, **{second: two, first: one})


@scenario
def of_two_faults_the_same_one_is_told(t: Talk) -> None:
    make(t, allow_msg_ttl=True, allow_msg_schedules=True, allow_rollup_hdrs=True)
    pub(t, Nats_Msg_Id="known")
    in_pairs(t, "x")
    stored(t)


@scenario
def of_two_faults_the_same_one_is_told_without_features(t: Talk) -> None:
    make(t)
    pub(t, Nats_Msg_Id="known")
    in_pairs(t, "x")
    stored(t)


@scenario
def of_two_faults_the_same_one_is_told_by_a_counter(t: Talk) -> None:
    make(t, allow_msg_counter=True)
    pub(t, "", Nats_Incr="1", Nats_Msg_Id="known")
    in_pairs(t, "")
    stored(t)


@scenario
def rollups(t: Talk) -> None:
    make(t)
    pub(t, Nats_Rollup="sub")
    pub(t, Nats_Rollup="x")
    make(t, "R", "r.>", allow_rollup_hdrs=True)
    for rollup in ("sub", "SUB", "all", "All", "x", 'q"x', "sub ", ""):
        pub(t, subject="r.a")
        pub(t, subject="r.b")
        pub(t, rollup, subject="r.a", Nats_Rollup=rollup)
    stored(t, "R")
    make(t, "D", "d.>", deny_purge=True)
    pub(t, subject="d.a", Nats_Rollup="sub")


@scenario
def header_blocks_as_they_come(t: Talk) -> None:
    make(t)
    for raw in (
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0 503 No\r\n\r\n",
        b"NATS/1.0 200\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n",
        b"NATS/1.0\r\nNats-Request-Info: {}\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id:x\r\nNats-Msg-Id: y\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id: y\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id:\r\nNats-Msg-Id: x\r\n\r\n",
        b"NATS/1.0\r\nnats-msg-id: x\r\n\r\n",
        b"NATS/1.0\r\nX-Nats-Msg-Id: x\r\n\r\n",
    ):
        pub(t, raw=raw)
    stored(t)


@scenario
def large_headers(t: Talk) -> None:
    make(t)
    for size in (65000, 65535 - 17, 65535 - 16, 70000):
        pub(t, A="x" * size)
    make(t, "L", "l.>", max_msg_size=70000)
    pub(t, subject="l.a", A="x" * 69000)
    pub(t, subject="l.a", A="x" * 71000)


@scenario
def discard_new(t: Talk) -> None:
    make(t, max_msgs=2, discard="new")
    for _ in range(3):
        pub(t)
    pub(t, Nats_Msg_Id="a")
    make(t, "B", "b.>", max_bytes=100, discard="new", storage="memory")
    for _ in range(4):
        pub(t, "0123456789", "b.a")
    make(t, "P", "p.>", max_msgs_per_subject=1, discard="new", discard_new_per_subject=True)
    pub(t, subject="p.a")
    pub(t, subject="p.a")
    pub(t, subject="p.b")
    make(t, "K", "k.>", max_msgs_per_subject=1, max_msgs=2, discard="new")
    for subject in ("k.a", "k.b", "k.a", "k.c"):
        pub(t, subject=subject)


@scenario
def sealed_and_silent_streams(t: Talk) -> None:
    make(t)
    pub(t)
    ok(t.jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "sealed": True}))
    pub(t)
    pub(t, Nats_Expected_Stream="x")
    pub(t, Nats_Batch_Id="x")
    pub(t, reply="_INBOX.f.b1.1.fail.1.0.$FI")
    make(t, "N", "n.>", no_ack=True)
    pub(t, subject="n.a")
    pub(t, subject="n.a", Nats_Expected_Stream="x")


@scenario
def without_interest_a_sequence_is_used_up(t: Talk) -> None:
    make(t, retention="interest", allow_rollup_hdrs=True)
    pub(t)
    pub(t, Nats_Msg_Id="a")
    pub(t, Nats_Msg_Id="a")
    pub(t, Nats_Rollup="sub")
    pub(t, Nats_Expected_Last_Msg_Id="a")
    stored(t)


# Subject transforms and republish


def listen(t: Talk, *subjects: str) -> list[bytes]:
    return [t.jet.wire.subscribe(subject) for subject in subjects]


def heard(t: Talk, sids: list[bytes]) -> None:
    for sid in sids:
        for m in t.jet.heard(sid):
            header = re.sub(rb"(Nats-Time-Stamp: )[^\r]*", rb"\1T", m.header)
            t.notes.append((m.subject, m.reply, header, m.payload))


@scenario
def subjects_are_mapped_before_everything_else(t: Talk) -> None:
    make(t, "S", "s.>", subject_transform={"src": "s.*", "dest": "m.{{left(1,1)}}.$1"}, discard="new",
         discard_new_per_subject=True, max_msgs_per_subject=2, allow_atomic=True)  # fmt: skip
    pub(t, subject="s.abc")
    pub(t, subject="s.abc", Nats_Expected_Last_Subject_Sequence="0")
    pub(t, subject="s.abc", Nats_Expected_Last_Subject_Sequence="1")
    pub(t, subject="s.abc")
    pub(t, subject="s.b.c")
    batch(t, "b", "s.x", "s.xy", commit="1")
    pub(t, subject="m.a.abc")
    stored(t)


@scenario
def mapping_functions_of_a_stream(t: Talk) -> None:
    for number, dest in enumerate(
        ("$2.$1", "{{partition(10,1,2)}}", "{{partition(3)}}.x", "{{split(1,-)}}.{{wildcard(2)}}",
         "{{splitfromleft(1,2)}}", "{{SplitFromRight(1,2)}}", "{{slicefromleft(1,2)}}", "{{SliceFromRight(1,3)}}",
         "{{left(1,2)}}", "{{right(1,2)}}", "{{random(1)}}")
    ):  # fmt: skip
        make(t, f"T{number}", f"t{number}.>", subject_transform={"src": f"t{number}.*.*", "dest": f"d{number}.{dest}"})
        for subject in ("a-b-c.x", "-ab-.y", "abcdefg.z", "one"):
            pub(t, subject=f"t{number}.{subject}")
        stored(t, f"T{number}")


@scenario
def republished_messages(t: Talk) -> None:
    make(t, "S", "s.>", republish={"src": "s.*", "dest": "r.$1"}, allow_rollup_hdrs=True)
    sids = listen(t, "r.>")
    pub(t, "one")
    pub(t, "two", A="b")
    pub(t, "three", subject="s.b")
    pub(t, "four", subject="s.b.c")
    pub(t, "five", Nats_Rollup="sub")
    pub(t, "", Nats_Msg_Id="i")
    pub(t, "", Nats_Msg_Id="i")
    pub(t, Nats_Expected_Stream="x")
    heard(t, sids)
    make(t, "H", "h.>", republish={"src": ">", "dest": "hr.>", "headers_only": True}, max_msgs_per_subject=1,
         subject_transform={"src": "h.*", "dest": "h.x.$1"})  # fmt: skip
    sids = listen(t, "hr.>")
    pub(t, "12345", subject="h.a")
    pub(t, "123", subject="h.a", A="b")
    heard(t, sids)
    make(t, "I", "i.>", retention="interest", republish={"dest": "ir.>"})
    sids = listen(t, "ir.>")
    pub(t, subject="i.a")
    heard(t, sids)


# Counters


@scenario
def a_counter_adds(t: Talk) -> None:
    make(t, allow_msg_counter=True, allow_direct=True)
    for increment in ("1", "+2", "-10", "0", "-0", "007", "99999999999999999999999999", "-1"):
        pub(t, "", Nats_Incr=increment)
    pub(t, "", subject="s.b", Nats_Incr="5", X="y")
    for wrong in ("", "x", "1.5", "1_0", " 1", "1 ", "+", "-", "--1", "0x10", "1e3"):
        pub(t, "", Nats_Incr=wrong)
    pub(t, "body", Nats_Incr="1")
    pub(t)
    pub(t, "", A="b")
    for header in ("Nats-Rollup", "Nats-Expected-Stream", "Nats-Expected-Last-Msg-Id", "Nats-Expected-Last-Sequence",
                   "Nats-Expected-Last-Subject-Sequence", "Nats-Expected-Last-Subject-Sequence-Subject"):  # fmt: skip
        pub(t, "", Nats_Incr="1", **{header: "1"})
    pub(t, "", Nats_Incr="1", Nats_Msg_Id="a")
    pub(t, "", Nats_Incr="1", Nats_Msg_Id="a")
    stored(t)


@scenario
def a_counter_goes_on_from_what_is_left(t: Talk) -> None:
    make(t, allow_msg_counter=True)
    for _ in range(3):
        pub(t, "", Nats_Incr="1")
    t.ask("STREAM.MSG.DELETE.S", {"seq": 3})
    pub(t, "", Nats_Incr="1")
    t.ask("STREAM.PURGE.S")
    pub(t, "", Nats_Incr="1")
    pub(t, "", Nats_Incr="9" * 5000)
    pub(t, "", Nats_Incr="9" * 5000)
    make(t, "P", "p")
    pub(t, "", subject="p", Nats_Incr="1")
    make(t, "L", "l.>", allow_msg_counter=True, max_msgs_per_subject=1, max_msg_size=60)
    for increment in ("1", "2", "1" + "0" * 20):
        pub(t, "", subject="l.a", Nats_Incr=increment)
    stored(t, "L")


# Atomic batches


def batch(t: Talk, name: str, *subjects: str, commit: str = "", **headers: str) -> None:
    for place, subject in enumerate(subjects, 1):
        last = {"Nats-Batch-Commit": commit} if commit and place == len(subjects) else {}
        pub(
            t,
            f"{name}{place}",
            subject,
            **{"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(place)},
            **last,
            **headers,
        )


@scenario
def a_batch_is_stored_by_its_commit(t: Talk) -> None:
    make(t, allow_atomic=True)
    sids = listen(t, "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>")
    batch(t, "one", "s.a", "s.b", "s.c", commit="1")
    batch(t, "two", "s.a", "s.b", "s.c", commit="eob")
    batch(t, "alone", "s.a", commit="1")
    batch(t, 'q"\\', "s.a", commit="1")
    batch(t, "end", "s.a", commit="eob")
    batch(t, "open", "s.a")
    stored(t)
    batch(t, "bad", "s.a", "s.b", commit="2")
    pub(t, Nats_Batch_Id="bad", Nats_Batch_Sequence="3")
    batch(t, "empty", "s.a", commit="")
    pub(t, Nats_Batch_Id="empty", Nats_Batch_Sequence="2", Nats_Batch_Commit="")
    t.event(sids[0])
    stored(t)


@scenario
def batches_that_are_refused_at_once(t: Talk) -> None:
    make(t, allow_atomic=True, max_msg_size=300)
    sids = listen(t, "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>")
    pub(t, Nats_Batch_Id="x")
    for seq in ("", "x", "0", "2", "-1", "1000", "1001", "1002", "18446744073709551616", "18446744073709551615"):
        pub(t, Nats_Batch_Id="x", Nats_Batch_Sequence=seq)
        pub(t, Nats_Batch_Id="x", Nats_Batch_Sequence=seq, Nats_Batch_Commit="eob")
        pub(t, Nats_Batch_Id="x", Nats_Batch_Sequence=seq, Nats_Batch_Commit="1")
    pub(t, Nats_Batch_Id="x" * 64, Nats_Batch_Sequence="1", Nats_Batch_Commit="1")
    pub(t, Nats_Batch_Id="x" * 65, Nats_Batch_Sequence="1", Nats_Batch_Commit="1")
    pub(t, "x" * 400, Nats_Batch_Id="x", Nats_Batch_Sequence="1")
    pub(t, Nats_Batch_Id="gap", Nats_Batch_Sequence="1")
    pub(t, Nats_Batch_Id="gap", Nats_Batch_Sequence="3")
    pub(t, Nats_Batch_Id="gap", Nats_Batch_Sequence="2")
    pub(t, Nats_Batch_Id="again", Nats_Batch_Sequence="1")
    pub(t, Nats_Batch_Id="again", Nats_Batch_Sequence="1")
    pub(t, Nats_Batch_Id="eob", Nats_Batch_Sequence="1", Nats_Batch_Commit="eob")
    for level in ("1", "5", "6", "x"):
        pub(t, Nats_Batch_Id="l" + level, Nats_Batch_Sequence="1", Nats_Required_Api_Level=level)
        pub(t, Nats_Batch_Id="l" + level, Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    t.event(sids[0])
    make(t, "N", "n.>")
    pub(t, subject="n.a", Nats_Batch_Id="x", Nats_Batch_Sequence="1")
    pub(t, subject="n.a", Nats_Batch_Id="x" * 65)
    stored(t)


@scenario
def every_check_of_a_commit(t: Talk) -> None:
    make(t, allow_atomic=True, allow_rollup_hdrs=True, max_msgs_per_subject=5)
    pub(t)
    pub(t, subject="s.b", Nats_Msg_Id="known")
    number = 0

    def attempt(*messages: tuple[str, dict[str, str]]) -> None:
        nonlocal number
        number += 1
        several(t, f"b{number}", *messages)

    last, of_subject, of = (
        "Nats-Expected-Last-Sequence",
        "Nats-Expected-Last-Subject-Sequence",
        "Nats-Expected-Last-Subject-Sequence-Subject",
    )
    attempt(("s.a", {last: "9"}), ("s.b", {}))
    attempt(("s.a", {last: "2"}), ("s.b", {}))
    attempt(("s.a", {}), ("s.b", {last: "5"}))
    attempt(("s.a", {}), ("s.b", {last: "4"}))
    attempt(("s.a", {of_subject: "3"}), ("s.b", {of_subject: "4"}))
    attempt(("s.a", {of_subject: "1"}), ("s.b", {}))
    attempt(("s.a", {}), ("s.a", {of_subject: "5"}))
    attempt(("s.a", {}), ("s.b", {of_subject: "5", of: "s.a"}))
    attempt(("s.a", {of_subject: "6", of: "s.b"}), ("s.c", {of_subject: "6", of: "s.b"}))
    attempt(("s.a", {of_subject: "6", of: "s.b"}), ("s.c", {of_subject: "7", of: "s.b"}))
    attempt(("s.a", {of: "s.b"}))
    attempt(("s.a", {"Nats-Expected-Last-Msg-Id": "x"}))
    attempt(("s.a", {"Nats-Expected-Stream": "x"}))
    attempt(("s.a", {"Nats-Expected-Stream": "S"}))
    attempt(("s.a", {"Nats-Msg-Id": "known"}))
    attempt(("s.a", {"Nats-Msg-Id": "m"}), ("s.b", {"Nats-Msg-Id": "m"}))
    attempt(("s.a", {"Nats-Msg-Id": "m"}), ("s.b", {"Nats-Msg-Id": "n"}))
    attempt(("s.a", {"Nats-Msg-Id": "m"}))
    attempt(("s.a", {"Nats-Rollup": "sub"}), ("s.a", {}))
    attempt(("s.a", {}), ("s.a", {"Nats-Rollup": "sub"}))
    attempt(("s.a", {}), ("s.c", {"Nats-Rollup": "sub"}))
    attempt(("s.a", {}), ("s.c", {"Nats-Rollup": "all"}))
    attempt(("s.a", {}), ("s.c", {"Nats-Rollup": "x"}))
    attempt(("s.a", {"Nats-Incr": "1"}))
    attempt(("s.a", {"Nats-TTL": "1h"}))
    attempt(("s.a", {"Nats-TTL": "x"}))
    attempt(("s.a", {"Nats-Schedule": "@every 1s"}))
    attempt(("s.a", {"Nats-Stream-Source": "x 1"}))
    attempt(("s.a", {"X": "x" * 65600}))
    stored(t)
    attempt(("s.x", {"Nats-Rollup": "all"}), ("s.a", {}))
    stored(t)


@scenario
def a_batch_and_the_streams_limits(t: Talk) -> None:
    make(t, allow_atomic=True, max_msgs=3, discard="new")
    batch(t, "a", "s.a", "s.b", commit="1")
    batch(t, "b", "s.a", "s.b", commit="1")
    batch(t, "c", "s.a", commit="1")
    make(t, "P", "p.>", allow_atomic=True, max_msgs_per_subject=2, discard="new", discard_new_per_subject=True)
    batch(t, "a", "p.a", "p.a", "p.b", commit="1")
    batch(t, "b", "p.b", "p.b", commit="1")
    make(t, "B", "b.>", allow_atomic=True, max_bytes=300, discard="new", storage="memory")
    batch(t, "a", "b.a", "b.a", commit="1")
    batch(t, "b", "b.a", "b.a", "b.a", commit="1")
    make(t, "O", "o.>", allow_atomic=True, max_msgs=3, max_msgs_per_subject=2)
    batch(t, "a", "o.a", "o.a", "o.a", "o.b", "o.c", commit="1")
    stored(t, "O")
    make(t, "I", "i.>", allow_atomic=True, retention="interest")
    t.jet.consumer("C", "I", filter_subject="i.b")
    batch(t, "a", "i.a", "i.b", "i.c", commit="1")
    stored(t, "I")


@scenario
def counters_in_a_batch(t: Talk) -> None:
    make(t, allow_atomic=True, allow_msg_counter=True)
    for name, increments in (("a", "12345"), ("b", "12"), ("c", "9x")):
        for place, increment in enumerate(increments, 1):
            commit = {"Nats-Batch-Commit": "1"} if place == len(increments) else {}
            own = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(place)}
            pub(t, "", "s.a" if place % 2 else "s.b", **own, **commit, **{"Nats-Incr": increment})
    batch(t, "d", "s.a", commit="1")
    stored(t)


@scenario
def too_many_open_batches(t: Talk) -> None:
    make(t, allow_atomic=True)
    sid = t.jet.wire.subscribe("_INBOX.many")
    lines = []
    for number in range(48):  # in one chunk: the first of them must not time out, ten seconds later, before the last
        header = block({"Nats-Batch-Id": f"b{number}", "Nats-Batch-Sequence": "1"})
        lines.append(b"HPUB s.a _INBOX.many %d %d\r\n%bx\r\n" % (len(header), len(header) + 1, header))
    t.jet.wire.send(b"".join(lines))
    t.note(t.jet.wire.take(sid))
    for number in range(48, 52):
        pub(t, Nats_Batch_Id=f"b{number}", Nats_Batch_Sequence="1")
    pub(t, Nats_Batch_Id="b0", Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    pub(t, Nats_Batch_Id="b51", Nats_Batch_Sequence="1")
    config = {"name": "S", "subjects": ["s.>"]}
    ok(t.jet.api("STREAM.UPDATE.S", config))
    pub(t, Nats_Batch_Id="b1", Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    ok(t.jet.api("STREAM.UPDATE.S", {**config, "allow_atomic": True}))
    pub(t, Nats_Batch_Id="b1", Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    stored(t)


@scenario
def a_thousand_messages_and_one(t: Talk) -> None:
    make(t, allow_atomic=True)
    sids = listen(t, "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>")
    for name in ("full", "over"):
        lines = []
        for place in range(1, 1000):
            header = block({"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(place)})
            lines.append(b"HPUB s.a %d %d\r\n%b\r\n" % (len(header), len(header), header))
        t.jet.wire.send(b"".join(lines))
        commit = {"Nats_Batch_Commit": "1"} if name == "full" else {}
        pub(t, Nats_Batch_Id=name, Nats_Batch_Sequence="1000", **commit)
        pub(t, Nats_Batch_Id=name, Nats_Batch_Sequence="1001", Nats_Batch_Commit="1")
    t.event(sids[0])
    t.notes.append(t.jet.api("STREAM.INFO.S")["state"]["last_seq"])


@scenario
def a_batch_times_out(t: Talk) -> None:
    make(t, allow_atomic=True)
    sids = listen(t, "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>")
    pub(t, Nats_Batch_Id="slow", Nats_Batch_Sequence="1")
    t.jet.advance(11)
    t.event(sids[0])
    pub(t, Nats_Batch_Id="slow", Nats_Batch_Sequence="2", Nats_Batch_Commit="1")


# Fast batches


START, APPEND, COMMIT, COMMIT_END, PING = range(5)


class Fast:
    def __init__(self, t: Talk, name: str = "f", flow: str = "10", gap: str = "fail", subject: str = "s.a") -> None:
        self.t, self.name, self.flow, self.gap, self.subject = t, name, flow, gap, subject
        self.sid = t.jet.wire.subscribe(f"_INBOX.{name}.>")

    def send(self, place: int | str, op: int | str = APPEND, payload: str = "x", **headers: str) -> Fast:
        reply = f"_INBOX.{self.name}.{self.flow}.{self.gap}.{place}.{op}.$FI"
        self.t.jet.wire.publish(self.subject, payload.encode(), reply, block(headers))
        self.t.note(self.t.jet.wire.take(self.sid))
        return self


@scenario
def a_fast_batch_from_start_to_commit(t: Talk) -> None:
    make(t, allow_batched=True)
    fast = Fast(t, flow="2")
    fast.send(1, START)
    for place in range(2, 8):
        fast.send(place)
    fast.send(8, COMMIT)
    fast.send(9)
    end = Fast(t, "e").send(1, START).send(2).send(2, PING).send(3, COMMIT_END)
    end.send(1, PING)
    Fast(t, "one").send(1, COMMIT)
    Fast(t, "flow", flow="0").send(1, START).send(2, COMMIT)
    Fast(t, "more", flow="70000").send(1, START).send(2, COMMIT)
    Fast(t, "text", flow="x").send(1, START).send(2, COMMIT)
    stored(t)


@scenario
def fast_batches_that_are_refused(t: Talk) -> None:
    make(t, allow_batched=True, max_msg_size=100)
    for place, op in ((0, 0), (2, 0), (1, 1), (1, 3), (1, 5), (1, -1), (1, "x"), ("x", 0), ("", 0), (2**64 - 1, 1),
                      (2**64, 1), (2, 1), (2, 2), (2, 3), (1, 4), (5, 4)):  # fmt: skip
        Fast(t).send(place, op)
    Fast(t, gap="maybe").send(1, START)
    Fast(t, "x" * 64).send(1, COMMIT)
    Fast(t, "x" * 65).send(1, COMMIT)
    Fast(t).send(1, START, "x" * 200)
    pub(t, reply="$FI")
    pub(t, reply="a.$FI")
    pub(t, reply="a.1.$FI")
    pub(t, reply="a.10.fail.1.0.$FI")
    Fast(t, "l").send(1, START, Nats_Required_Api_Level="6").send(2, COMMIT)
    Fast(t, "m").send(1, START, Nats_Required_Api_Level="2").send(2, COMMIT)
    make(t, "N", "n.>")
    Fast(t, "n", subject="n.a").send(1, START).send(2, COMMIT)
    stored(t)


@scenario
def gaps_of_fast_batches(t: Talk) -> None:
    make(t, allow_batched=True)
    Fast(t, "a").send(1, START).send(2).send(4).send(5).send(6, COMMIT)
    Fast(t, "b", gap="ok").send(1, START).send(2).send(4).send(9).send(10, COMMIT)
    Fast(t, "c", gap="ok").send(1, START).send(2).send(2).send(3, COMMIT)
    Fast(t, "d").send(1, START).send(5, PING).send(2)
    Fast(t, "e", gap="ok").send(1, START).send(5, PING).send(6).send(8, COMMIT_END)
    Fast(t, "g", gap="ok", flow="1").send(1, START).send(5, PING).send(6).send(7, COMMIT_END)
    Fast(t, "h").send(1, START).send(1, START).send(2)
    Fast(t, "i").send(1, START).send(3, COMMIT)
    Fast(t, "j").send(1, START).send(3, COMMIT_END)
    stored(t)


@scenario
def errors_inside_fast_batches(t: Talk) -> None:
    make(t, allow_batched=True, allow_rollup_hdrs=True)
    pub(t, Nats_Msg_Id="known")
    wrong = {"Nats-Expected-Stream": "x"}
    Fast(t, "a").send(1, START, **wrong).send(2)
    Fast(t, "b").send(1, COMMIT, **wrong)
    Fast(t, "c").send(1, START).send(2, **wrong).send(3).send(4, COMMIT)
    Fast(t, "d", gap="ok").send(1, START, **wrong).send(2).send(3, **wrong).send(4, COMMIT)
    Fast(t, "e", gap="ok").send(1, START).send(2, COMMIT, **wrong)
    Fast(t, "f").send(1, START).send(2, COMMIT, **wrong)
    known = {"Nats-Msg-Id": "known"}
    Fast(t, "g").send(1, START, **known).send(2).send(3, COMMIT)
    Fast(t, "h").send(1, COMMIT, **known)
    Fast(t, "i", gap="ok").send(1, COMMIT, **known)
    Fast(t, "j").send(1, START).send(2, **known).send(3, COMMIT, **known)
    Fast(t, "k", flow="1").send(1, START).send(2, **known).send(3).send(4, COMMIT_END)
    Fast(t, "l").send(1, START).send(2, Nats_Expected_Last_Sequence="3").send(3, COMMIT)
    Fast(t, "m").send(1, START).send(2, Nats_Rollup="all").send(3, COMMIT)
    Fast(t, "n").send(1, START, Nats_Expected_Last_Msg_Id="zzz").send(2, COMMIT)
    Fast(t, "o").send(1, START, Nats_TTL="1h").send(2, COMMIT)
    stored(t)


@scenario
def many_fast_batches_share_the_flow(t: Talk) -> None:
    make(t, allow_batched=True)
    first = Fast(t, "a", flow="4").send(1, START)
    others = [Fast(t, f"o{number}", flow="100").send(1, START) for number in range(3)]
    for place in range(2, 20):
        first.send(place)
        for other in others:
            other.send(place)
    first.send(20, COMMIT)
    for other in others:
        other.send(20, COMMIT_END)
    stored(t)


@scenario
def fast_batches_end_with_their_permission(t: Talk) -> None:
    make(t, allow_batched=True)
    fast = Fast(t).send(1, START)
    config = {"name": "S", "subjects": ["s.>"]}
    ok(t.jet.api("STREAM.UPDATE.S", config))
    fast.send(2)
    ok(t.jet.api("STREAM.UPDATE.S", {**config, "allow_batched": True}))
    fast.send(2)
    fast.send(1, START)
    t.jet.advance(11)
    fast.send(2)
    make(t, "D", "d.>", allow_batched=True, discard="new", max_msgs=2, retention="interest")
    Fast(t, "d", subject="d.a").send(1, START).send(2).send(3).send(4, COMMIT)
    make(t, "E", "e.>", allow_batched=True, discard="new", max_msgs=2)
    Fast(t, "e", subject="e.a").send(1, START).send(2).send(3).send(4, COMMIT)
    make(t, "C", "c.>", allow_batched=True, allow_msg_counter=True)
    counts = Fast(t, "c", subject="c.a")
    counts.send(1, START, "", Nats_Incr="1").send(2, APPEND, "", Nats_Incr="2").send(3, COMMIT, "", Nats_Incr="3")
    stored(t, "C")
    make(t, "N", "n.>", allow_batched=True, no_ack=True)
    Fast(t, "n", flow="1", subject="n.a").send(1, START).send(2).send(4).send(5, COMMIT)


@scenario
def ids_and_their_window(t: Talk) -> None:
    make(t, duplicate_window=6_000_000_000)
    for name in ("a", "a", "A", "x" * 5000, "x" * 5000, "with blank", "with blank", "ä", "ä", "a b ", "a b"):
        pub(t, Nats_Msg_Id=name)
    t.jet.advance(6.6)
    pub(t, Nats_Msg_Id="a")
    ok(t.jet.api("STREAM.PURGE.S"))
    pub(t, Nats_Msg_Id="a")
    make(t, "M", "m.>", storage="memory")
    pub(t, subject="m.a", Nats_Msg_Id="a")
    pub(t, subject="m.b", Nats_Msg_Id="a")
    pub(t, subject="m.b", Nats_Msg_Id="a", Nats_Expected_Last_Sequence="1")
    pub(t, subject="m.b", Nats_Msg_Id="a", Nats_Rollup="sub")
    stored(t, "M")


@scenario
def a_stream_changes_what_it_does(t: Talk) -> None:
    make(t)
    sids = listen(t, "r.>")
    pub(t)
    config = {"name": "S", "subjects": ["s.>"]}
    ok(t.jet.api("STREAM.UPDATE.S", {**config, "subject_transform": {"src": "s.*", "dest": "x.$1"}}))
    pub(t)
    ok(t.jet.api("STREAM.UPDATE.S", {**config, "republish": {"src": "s.*", "dest": "r.$1"}}))
    pub(t)
    ok(t.jet.api("STREAM.UPDATE.S", {**config, "republish": {"src": "s.*", "dest": "r.x.$1", "headers_only": True}}))
    pub(t)
    ok(t.jet.api("STREAM.UPDATE.S", {**config, "allow_rollup_hdrs": True, "no_ack": True}))
    pub(t, Nats_Rollup="all")
    heard(t, sids)
    stored(t)


@scenario
def times_of_their_own_in_batches(t: Talk) -> None:
    make(t, allow_atomic=True, allow_batched=True, allow_msg_ttl=True, allow_msg_schedules=True)
    for ttl in ("1h", "never", "0", "x", "500ms", "60"):
        batch(t, f"t{ttl}", "s.a", "s.b", commit="1", Nats_TTL=ttl)
        Fast(t, f"f{ttl}").send(1, START, Nats_TTL=ttl).send(2, COMMIT)
    schedule = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "s.target"}
    batch(t, "one", "s.plan", commit="1", **schedule)
    batch(t, "same", "s.plan", "s.plan", commit="1", **schedule)
    batch(t, "wrong", "s.plan", commit="1", **{**schedule, "Nats-Schedule": "@every x"})
    batch(t, "target", "s.target", commit="1", **schedule)
    batch(t, "end", "s.c", commit="1", **{"Nats-Scheduler": "s.plan", "Nats-Schedule-Next": "purge"})
    stored(t)


@scenario
def of_two_faults_a_batch_tells_the_same_one(t: Talk) -> None:
    make(t, allow_msg_ttl=True, allow_msg_schedules=True, allow_rollup_hdrs=True, allow_atomic=True)
    pub(t, Nats_Msg_Id="known")
    for at, (first, one) in enumerate(WRONG):
        for second, two in WRONG[at + 1 :]:
            several(t, f"b{WRONG.index((first, one))}.{second[-9:]}", ("s.a", {second: two, first: one}))
    stored(t)


@scenario
def of_two_faults_a_fast_batch_tells_the_same_one(t: Talk) -> None:
    make(t, allow_batched=True, allow_msg_counter=True)
    pub(t, "", Nats_Incr="1", Nats_Msg_Id="known")
    for at, (first, one) in enumerate(WRONG):
        for second, two in WRONG[at + 1 :]:
            Fast(t, f"{first}-{second}"[:64]).send(1, COMMIT, "", **{second: two, first: one})
    stored(t)


@scenario
def schedules_begin_and_end_in_one_batch(t: Talk) -> None:
    make(t, allow_atomic=True, allow_msg_schedules=True)
    begin = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "s.target"}
    end = {"Nats-Scheduler": "s.plan", "Nats-Schedule-Next": "purge"}
    several(t, "a", ("s.plan", begin), ("s.x", end))
    several(t, "b", ("s.plan", {}), ("s.x", end))
    several(t, "c", ("s.plan", begin), ("s.plan", {}), ("s.x", end))
    several(t, "d", ("s.plan", begin), ("s.plan", end))
    several(t, "e", ("s.plan", begin), ("s.x", {**end, "Nats-Schedule-Next": "x"}))
    pub(t, subject="s.plan")
    several(t, "f", ("s.x", end))
    several(t, "g", ("s.plan", begin), ("s.x", end))
    stored(t)


def several(t: Talk, name: str, *messages: tuple[str, dict[str, str]]) -> None:
    for place, (subject, headers) in enumerate(messages, 1):
        commit = {"Nats-Batch-Commit": "1"} if place == len(messages) else {}
        own = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(place)}
        pub(t, f"{name}.{place}", subject, **own, **commit, **headers)


@scenario
def batches_through_a_mapping(t: Talk) -> None:
    make(t, allow_atomic=True, allow_batched=True, subject_transform={"src": "s.*", "dest": "m.$1"},
         republish={"src": "m.>", "dest": "r.>"}, allow_rollup_hdrs=True)  # fmt: skip
    sids = listen(t, "r.>")
    batch(t, "a", "s.a", "s.b", "s.a", "s.c.d", commit="1")
    batch(t, "b", "s.a", commit="1", Nats_Expected_Last_Subject_Sequence="3")
    batch(t, "c", "s.a", commit="1", Nats_Expected_Last_Subject_Sequence="5", **{
        "Nats-Expected-Last-Subject-Sequence-Subject": "m.a"})  # fmt: skip
    batch(t, "d", "s.b", "s.a", commit="eob", Nats_Rollup="sub")
    Fast(t, "f").send(1, START).send(2, Nats_Expected_Last_Subject_Sequence="9").send(3).send(4, COMMIT)
    heard(t, sids)
    stored(t)


@scenario
def nobody_waits_for_an_answer(t: Talk) -> None:
    make(t, allow_atomic=True)
    t.jet.publish("a")
    t.jet.wire.publish("s.a", b"b", header=block({"Nats-Expected-Stream": "x"}))
    for place in (1, 2):
        header = block({"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(place)})
        t.jet.wire.publish("s.a", b"c", header=header)
    batch_end = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "3", "Nats-Batch-Commit": "1"}
    pub(t, **batch_end)
    stored(t)
