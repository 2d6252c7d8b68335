"""Runs of the native module, beside the operations that they stand for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.native import lib

pytestmark = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")

subjects = st.sampled_from([b"a", b"a.b", b"a.c", b"a.b.c", b"a..b", b"a.", b"s.1"])
replies = st.sampled_from([b"", b"", b"_INBOX.a.1", b"_INBOX.a.2", b"_INBOX.b.1.2", b"r"])
messages = st.lists(st.tuples(subjects, replies, st.binary(max_size=50)), min_size=4, max_size=20)


def run_of(items: list[tuple[bytes, bytes, bytes]]) -> Any:
    assert lib is not None
    lines = [b"PUB %b %b%d\r\n%b\r\n" % (s, r and r + b" ", len(p), p) for s, r, p in items]
    ops: list[Any] = []
    chunk = b"".join(lines)
    assert lib.read_ops(chunk, 4096, 1 << 20, ops, True) == len(chunk)
    ((kind, run),) = ops
    assert kind == 10
    return run


@given(messages, st.data())
def test_a_run_says_what_its_operations_say(items: list[Any], data: st.DataObject) -> None:
    run = run_of(items)
    start = data.draw(st.integers(0, len(items)))
    part, items = run.part(start, len(items)), items[start:]
    assert len(part) == len(items)
    assert part.ops() == list(part) == [(0, s, r, b"", p) for s, r, p in items]
    assert part.subjects() == [s for s, _, _ in items]
    assert part.payloads() == [p for _, _, p in items]
    assert part.entries(7) == [(seq, s, r) for seq, (s, r, _) in enumerate(items, 7)]
    assert [part.reply(at) for at in range(len(part))] == [r for _, r, _ in items]
    assert part.subject == (items[0][0] if items else b"")
    assert part.bytes == sum(len(p) for _, _, p in items)
    assert part.longest == max((len(p) for _, _, p in items), default=0)
    assert part.has_replies == any(r for _, r, _ in items)


def end_of(items: list[Any], holds: Any) -> int:
    return next((at for at, item in enumerate(items) if not holds(item)), len(items))


@given(messages, st.booleans())
def test_a_run_is_cut_by_subject_and_by_route(items: list[Any], longer: bool) -> None:
    run, first = run_of(items), items[0][0]
    assert run.one_subject() == end_of(items, lambda item: item[0] == first)
    size = len(first.rpartition(b".")[0]) + 1
    if size == 1:
        return

    def takes_the_route(item: Any) -> bool:
        subject = item[0]
        if subject[:size] != first[:size] or len(subject) == size:
            return False
        return b"." not in subject[size:] or (longer and b".." not in subject and not subject.endswith(b"."))

    assert run.one_route(size, longer) == end_of(items, takes_the_route)


@given(messages, st.integers(0, 2**62))
def test_acks_of_a_run(items: list[Any], first: int) -> None:
    assert lib is not None
    run, entries = run_of(items), [(seq, s, r) for seq, (s, r, _) in enumerate(items, first)]
    assert run.acks(first, b'{"x"', b" 9 ", 1, len(items)) == lib.ack_frames(entries, b'{"x"', b" 9 ", 1, len(items))
    for start, (_, reply, _) in enumerate(items):
        assert run.one_reply(start) == start + end_of(items[start:], lambda item, own=reply: item[1] == own)
    for shared in (b"_INBOX.a.", b"_INBOX.b."):
        assert run.one_inbox(1, shared) == lib.one_inbox(entries, 1, shared)


numbers = st.sampled_from([b"1", b"7", b"9999999999999999999", b"10000000000000000000", b"", b"x"])
acks = st.tuples(st.sampled_from([b"S.C", b"S.D", b"S"]), st.lists(numbers, min_size=4, max_size=6), replies)


@given(st.lists(st.tuples(acks, st.sampled_from([b"", b"+ACK", b"-NAK"])), min_size=1, max_size=24))
def test_acks_of_one_consumer_are_a_run(given: list[Any]) -> None:
    assert lib is not None
    items = [(b"$JS.ACK.%b.%b" % (name, b".".join(parts)), reply, body) for (name, parts, reply), body in given]
    items = [item for item in items if not item[0].endswith(b" ")]
    chunk = b"".join([b"PUB %b %b%d\r\n%b\r\n" % (s, r and r + b" ", len(p), p) for s, r, p in items])
    ops: list[Any] = []
    lib.read_ops(chunk, 4096, 1 << 20, ops, True)
    plain = [op for kind, *rest in ops for op in (rest[0].ops() if kind == 10 else [(kind, *rest)])]
    assert plain == [(0, s, r, b"", p) for s, r, p in items]
    for run in (op[1] for op in ops if op[0] == 10):
        assert len({b".".join(subject.split(b".")[:4]) for subject in run.subjects()}) == 1
        assert not run.has_replies and set(run.payloads()) <= {b"", b"+ACK"}
        assert run.acked() == [int(subject.split(b".")[5]) for subject in run.subjects()]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("part", (3, 2)),
        ("part", (0, 99)),
        ("reply", (99,)),
        ("reply", (-1,)),
        ("one_reply", (99,)),
        ("acks", (1, b"", b"", 0, 99)),
        ("acks", (1, "", b"", 0, 1)),
        ("messages", ("", 0)),
        ("frames", (1, 2, 3)),
        ("__getitem__", (99,)),
        ("entries", (-1,)),
    ],
)
def test_wrong_arguments_raise(name: str, words: tuple[Any, ...]) -> None:
    run = run_of([(b"a", b"", b"")] * 4)
    with pytest.raises((TypeError, IndexError, OverflowError)):
        getattr(run, name)(*words)
