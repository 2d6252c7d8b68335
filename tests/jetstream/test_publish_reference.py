"""Publishing to natsctl's engine and to the reference: every check, its text, and what ends up in the stream."""

from __future__ import annotations

from typing import Any

import pytest

from natsctl.testing.differential import Scenario, Scenarios, Talk, assert_same, name_of
from natsctl.testing.jet import ok
from natsctl.testing.process import ServerProcess


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
    """Publish one message and note everything that answers it."""
    t.numbers = getattr(t, "numbers", 0) + 1  # type: ignore[attr-defined]
    inbox = reply or f"_INBOX.p{t.numbers}"  # type: ignore[attr-defined]
    sid = t.jet.wire.subscribe(inbox)
    t.jet.wire.publish(subject, payload.encode(), inbox, raw or block(headers))
    t.note(t.jet.wire.take(sid))
    t.jet.wire.unsubscribe(sid)


def stored(t: Talk, stream: str = "S") -> None:
    """Note every message and the state of a stream."""
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


@pytest.mark.reference
@pytest.mark.parametrize("run", scenario, ids=name_of)
def test_both_tell_the_same(run: Scenario, server: ServerProcess) -> None:
    assert_same(run, server.url)
