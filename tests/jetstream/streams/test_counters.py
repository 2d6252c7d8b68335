"""Counters: numbers of any size, one per subject, also summed over sources and across restarts."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.jetstream.streams.counters import read_number, write_number
from natsctl.testing.jet import Jet, ok


def add(jet: Jet, increment: str, subject: str = "s.a", **more: str) -> Any:
    """Publish an increment and return the ack."""
    lines = {"Nats-Incr": increment, **{key.replace("_", "-"): value for key, value in more.items()}}
    block = "NATS/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines.items()) + "\r\n"
    return jet.wire.request(subject, b"", block.encode())


def value(jet: Jet, subject: str = "s.a", stream: str = "S") -> bytes:
    message = jet.wire.request(f"$JS.API.DIRECT.GET.{stream}.{subject}")
    return bytes(message["val"], "ascii")


def test_each_subject_counts_for_itself(jet: Jet) -> None:
    jet.stream(allow_msg_counter=True, allow_direct=True)
    assert add(jet, "5") == {"stream": "S", "seq": 1, "val": "5"}
    assert add(jet, "-7") == {"stream": "S", "seq": 2, "val": "-2"}
    assert add(jet, "+1", "s.b")["val"] == "1"
    assert value(jet) == b"-2"


def test_a_duplicate_counts_once(jet: Jet) -> None:
    jet.stream(allow_msg_counter=True)
    add(jet, "5", Nats_Msg_Id="x")
    assert add(jet, "5", Nats_Msg_Id="x") == {"stream": "S", "seq": 1, "duplicate": True}
    assert add(jet, "1")["val"] == "6"


def test_a_counter_goes_on_after_a_restart_and_with_one_message_a_subject(jet: Jet) -> None:
    jet.stream(allow_msg_counter=True, max_msgs_per_subject=1)
    add(jet, "9" * 30)
    add(jet, "1")
    again = Jet(jet.machine.restarted())
    assert add(again, "1")["val"] == "1" + "0" * 29 + "1"


def test_deleting_the_last_message_goes_back_to_the_one_before(jet: Jet) -> None:
    jet.stream(allow_msg_counter=True)
    add(jet, "1")
    add(jet, "10")
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 2}))
    assert add(jet, "100")["val"] == "101"


def test_a_message_that_is_no_counters_breaks_it(jet: Jet) -> None:
    jet.stream(allow_msg_counter=True)
    stream = jet.machine.streams["S"]
    stream.store.append(b"s.a", b"", b"no json", 0)
    jet.machine.settle()
    assert add(jet, "1")["error"]["err_code"] == 10172


def test_totals_of_sources_add_up_and_stand_in_a_header(jet: Jet) -> None:
    for name in ("A", "B"):
        jet.stream(name, f"{name.lower()}.>", allow_msg_counter=True, allow_direct=True)
    add(jet, "5", "a.x")
    sources = [
        {"name": name, "subject_transforms": [{"src": f"{name.lower()}.>", "dest": "sum.>"}]} for name in ("A", "B")
    ]
    ok(
        jet.api(
            "STREAM.CREATE.SUM", {"name": "SUM", "sources": sources, "allow_msg_counter": True, "allow_direct": True}
        )
    )
    jet.advance(1)
    add(jet, "7", "b.x")
    add(jet, "-2", "a.x")
    jet.advance(1)
    assert value(jet, "sum.x", "SUM") == b"10"
    stored = ok(jet.api("STREAM.MSG.GET.SUM", {"last_by_subj": "sum.x"}))["message"]
    block = base64.b64decode(stored["hdrs"])
    assert b'Nats-Counter-Sources: {"A":{"a.x":"3"},"B":{"b.x":"7"}}\r\n' in block
    assert b"Nats-Incr: -2\r\n" in block


def test_increments_that_one_commit_makes_durable_are_all_counted(jet: Jet) -> None:
    jet.stream(allow_msg_counter=True, allow_direct=True)
    sid = jet.listen("acks")
    jet.machine.hold_commits = True
    for _ in range(3):
        jet.wire.publish("s.a", b"", "acks", b"NATS/1.0\r\nNats-Incr: 5\r\n\r\n")
    jet.machine.hold_commits = False
    jet.machine.settle()
    assert [message.json()["val"] for message in jet.heard(sid)] == ["5", "10", "15"]
    assert value(jet) == b"15"
    add(jet, "1")
    assert value(jet) == b"16"


@given(st.integers(-(10**12000), 10**12000))
def test_numbers_of_any_size_are_read_and_written(number: int) -> None:
    text = write_number(number)
    assert read_number(text) == number
    assert read_number(b"+" + text if number >= 0 else text) == number
    assert len(text.lstrip(b"-")) == 1 or not text.lstrip(b"-").startswith(b"0")


@pytest.mark.parametrize(("text", "number"), [(b"", 0), (b"x", 0), (b"-", 0), (b"12abc", 12), (b"-007", -7)])
def test_a_text_that_is_no_number_counts_as_what_it_begins_with(text: bytes, number: int) -> None:
    assert read_number(text) == number
