"""The native reader makes the same runs as the plain one, and refuses wrong arguments."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.native import lib
from natsctl.wire.client import encode_pub
from natsctl.wire.ops import PUB, RUN
from natsctl.wire.publish_run import PublishRun, gather_runs

pytestmark = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")

subjects = st.sampled_from([b"a", b"a.b", b"a..b", b"a.", b"_x", b"$x"])
replies = st.sampled_from([b"", b"", b"_INBOX.a.1", b"r", b"x.$FI", b"$FI", b"_R_.x", b"$JS.x"])
headers = st.sampled_from([b"", b"", b"", b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"])
payloads = st.sampled_from([b"", b"+ACK", b"-NAK", b"x" * 50])
numbers = st.sampled_from([b"1", b"7", b"9999999999999999999", b"10000000000000000000", b"", b"x"])
acks = st.builds(
    lambda consumer, parts: b"$JS.ACK.%b.%b" % (consumer, b".".join(parts)),
    st.sampled_from([b"S.C", b"S.D", b"S", b"."]),
    st.lists(numbers, min_size=4, max_size=6),
)
plain_acks = st.sampled_from([b"$JS.ACK.S.C.1.2.3.4.5", b"$JS.ACK.S.C.1.3.4.5.6", b"$JS.ACK.S.D.1.3.4.5.6"])
message = st.tuples(subjects | acks | plain_acks, replies, headers, payloads)


@st.composite
def messages(draw: st.DrawFn) -> list[tuple[bytes, ...]]:
    """Return messages with neighbors that are alike, as those of clients are."""
    parts = draw(st.lists(st.tuples(message, st.integers(1, 6)), max_size=8))
    return [item for item, count in parts for _ in range(count)]


@given(messages())
def test_the_readers_make_the_same_runs(items: list[Any]) -> None:
    assert lib is not None
    ops: list[Any] = []
    chunk = b"".join([encode_pub(*item) for item in items])
    assert lib.read_ops(chunk, 4096, 1 << 20, ops, True) == len(chunk)
    expected = gather_runs([(PUB, *item) for item in items])
    assert [op[1].ops() if op[0] == RUN else op for op in ops] == [
        op[1].ops() if op[0] == RUN else op for op in expected
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("part", (3, 2)),
        ("part", (0, 99)),
        ("reply", (99,)),
        ("reply", (-1,)),
        ("subject", (4,)),
        ("same_subject", (4,)),
        ("same_route", (4, 1, True)),
        ("same_route", (0, -1, True)),
        ("messages", ("", 0)),
        ("frames", (1, 2, 3)),
        ("entries", (-1,)),
    ],
)
def test_wrong_arguments_raise(name: str, words: tuple[Any, ...]) -> None:
    assert lib is not None
    ops: list[Any] = []
    lib.read_ops(encode_pub(b"a", b"", b"", b"") * 4, 4096, 1 << 20, ops, True)
    with pytest.raises((TypeError, IndexError, OverflowError, ValueError)):
        getattr(ops[0][1], name)(*words)


def test_a_part_of_a_run_may_be_empty() -> None:
    assert len(PublishRun([(PUB, b"a", b"", b"", b"")] * 4).part(2, 2)) == 0
