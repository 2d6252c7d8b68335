"""Each native function does what its specification in Python does, on any arguments."""

from typing import Any

import pytest

from natsctl.native import lib
from natsctl.store import frame
from natsctl.store.message import StoredMessage

native = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")
pytestmark = native


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("frame", (1, 2)),
        ("frame", (1, 2, 3, -4, 0, b"a", b"", b"")),
        ("frame", (1, 2, 3, 4, 0, "a", b"", b"")),
        ("frame_copies", (1, 2, 3, 4, [(1, 2, b"a", b"")])),
        ("frame_copies", (1, 2, 3, 4, [(1, 2, b"a", b"", None)])),
        ("read_ops", ("PUB", 1, 2, [], True)),
        ("read_ops", (b"PUB a 0\r\n\r\n", 100, 100, (), False)),
        ("read_ops", (b"PUB a 0\r\n\r\n" * 9, 100, 100, (), True)),
        ("ack_frames", ([([(1, b"a")], b"")], 0, 0, 0, b"", b" 7 ")),
        ("ack_frames", ([([(1, b"a", "r")], b"")], 0, 0, 0, b"", b" 7 ")),
        ("ack_frames", ([([(-1, b"a", b"r")], b"")], 0, 0, 0, b"", b" 7 ")),
        ("ack_frames", ([([(1, b"a", b"r")], b"")], 0, 0, -(2**62), b"", b" 7 ")),
        ("ack_frames", ([([(1, b"a", b"r")], b"")], 0, -2, 0, b"", b" 7 ")),
        ("ack_frames", ([([(1, b"a", b"r")], b"")], -2, 0, 0, b"", b" 7 ")),
        ("ack_frames", ([([(1, b"a", b"r")], "")], 0, 0, 0, b"", b" 7 ")),
        ("ack_frames", ([([(1, b"a", b"r")],)], 0, 0, 0, b"", b" 7 ")),
        ("ack_frames", ([7], 0, 0, 0, b"", b" 7 ")),
        ("message_frames", ([(b"a", b"", b"")], 0, b" 7 ", True, 99)),
        ("message_frames", ([(b"a", b"", b"", 7)], 0, b" 7 ", True, 99)),
        ("message_frames", ([7], 0, b" 7 ", True, 99)),
        ("message_frames", ([(b"a", b"", b"", b"")], -1, b" 7 ", True, 99)),
        ("read_frames", (b"x" * 80, 0, [0], 0, 0, int, [])),
        ("read_frames", (b"x" * 80, 0, [-1], 0, 0, StoredMessage, [])),
        ("read_frames", (b"x" * 80, 0, (), 0, 0, StoredMessage, [])),
        ("scan_messages", (b"x" * 80, 0, 1, 99, 0, 0, 0, 0, [], [])),
        ("scan_messages", (b"x" * 80, -1, 1, 99, 0, 0, 0, 0, {}, [])),
        ("scan_messages", (frame.encode_message(1, 0, 1, 0, 0, b"a", b"", b""), 0, 1, 99, 0, 0, 0, 0, {b"a": -1}, [])),
        ("first_deliveries", ([(1, 2, b"a", b"")], b"", 0, 0)),
        ("first_deliveries", ([(-1, 2, b"a", b"", b"")], b"", 0, 0)),
        ("first_deliveries", (7, b"", 0, 0)),
    ],
)
def test_wrong_arguments_raise(name: str, words: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, OverflowError, IndexError, SystemError)):
        getattr(lib, name)(*words)


class Index:
    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("frame", (1, 2, "3", 4, Index(), b"a", b"", b"")),
        ("read_frames", ("blob", 0, [0], 0, Index(), StoredMessage, [])),
        ("first_deliveries", ([], "prefix", 0, Index())),
        ("write_v2", ([("1", Index(), b"", b"", b"")],)),
    ],
)
def test_python_is_not_called_while_an_exception_is_set(name: str, words: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(lib, name)(*words)


def test_a_place_before_the_blob_is_not_read() -> None:
    assert lib is not None
    blob, found = bytearray(80), list[Any]()
    blob[3] = 40  # the length of a frame that begins one byte before
    assert lib.read_frames(bytes(blob), 0, [2**64 - 1], 0, 0, StoredMessage, found) == 0
    assert found == []


def test_a_list_that_a_number_empties_is_not_read_further() -> None:
    class Emptying:
        def __index__(self) -> int:
            messages.clear()
            return 1

    assert lib is not None
    messages: list[Any] = [(1, Emptying(), b"a" * 99, b"", b"b" * 99), (2, 2, b"a", b"", b"")]
    with pytest.raises(IndexError):
        lib.write_v2(messages)
