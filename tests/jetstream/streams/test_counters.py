"""Counters: numbers of any size, one per subject, also summed over sources and across restarts."""

import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.jetstream.streams.counters import EXACT, read_number, write_number
from tests.support.jet import Jet
from tests.support.stored_messages import put


def add(jet: Jet, increment: str) -> Any:
    return put(jet, "s.a", b"", Nats_Incr=increment)


def value(jet: Jet, subject: str = "s.a", stream: str = "S") -> bytes:
    message = jet.wire.request(f"$JS.API.DIRECT.GET.{stream}.{subject}")
    return bytes(message["val"], "ascii")


def test_a_counter_goes_on_after_a_restart_and_with_one_message_a_subject(jet: Jet) -> None:
    jet.stream(allow_msg_counter=True, max_msgs_per_subject=1)
    add(jet, "9" * 30)
    add(jet, "1")
    again = Jet(jet.machine.restarted())
    assert add(again, "1")["val"] == "1" + "0" * 29 + "1"


def test_a_message_that_is_no_counters_breaks_it(jet: Jet) -> None:
    jet.stream(allow_msg_counter=True)
    stream = jet.machine.streams["S"]
    stream.store.append(b"s.a", b"", b"no json", 0)
    jet.machine.settle()
    assert add(jet, "1")["error"]["err_code"] == 10172


def test_increments_that_one_commit_makes_durable_are_all_counted(jet: Jet) -> None:
    jet.stream(allow_msg_counter=True, allow_direct=True)
    sid = jet.listen("acks")
    jet.machine.hold_commits = True
    for _ in range(3):
        jet.wire.publish("s.a", b"", "acks", b"NATS/1.0\r\nNats-Incr: 5\r\n\r\n")
    jet.machine.release_commits()
    assert [message.json()["val"] for message in jet.heard(sid)] == ["5", "10", "15"]
    assert value(jet) == b"15"
    add(jet, "1")
    assert value(jet) == b"16"


DIGITS = st.text("0123456789", min_size=1, max_size=12_000)


@given(DIGITS, st.sampled_from(["", "+", "-"]))
def test_numbers_of_any_size_are_read_and_written(digits: str, sign: str) -> None:
    text = write_number(read_number(f"{sign}{digits}".encode()))
    canonical = digits.lstrip("0") or "0"
    assert text.decode() == ("-" if sign == "-" and canonical != "0" else "") + canonical


@given(st.integers(), st.integers())
def test_numbers_are_added_and_subtracted_exactly(one: int, other: int) -> None:
    numbers = [read_number(b"%d" % each) for each in (one, other)]
    assert write_number(EXACT.add(*numbers)) == b"%d" % (one + other)
    assert write_number(EXACT.subtract(*numbers)) == b"%d" % (one - other)


def test_a_number_of_two_million_digits_is_counted_in_linear_time() -> None:
    text, begun = b"9" * 2_000_000, time.thread_time()
    for _ in range(2):
        assert len(write_number(EXACT.add(read_number(text), Decimal(1)))) == len(text) + 1
    assert time.thread_time() - begun < 1.0, "with binary numbers it was a minute"


@pytest.mark.parametrize(("text", "number"), [(b"", 0), (b"x", 0), (b"-", 0), (b"12abc", 12), (b"-007", -7)])
def test_a_text_that_is_no_number_counts_as_what_it_begins_with(text: bytes, number: int) -> None:
    assert read_number(text) == number
