import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, Request
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason, Opcode

from natsctl.server.websocket.protocol import (
    COMPRESSED,
    FINAL,
    BoundedDeflate,
    Deflater,
    FrameError,
    WebSocketReader,
    WebSocketWriter,
    close_answer,
    close_frame,
    frame,
)

from .upgrades import BINARY, MASK, masked


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


def reader(*, compressed: bool = True, limit: int = 1 << 20) -> WebSocketReader:
    return WebSocketReader(compressed=compressed, masked=True, limit=limit)


def read(data: bytes, **options: Any) -> list[tuple[Opcode, bytes]]:
    return [(event.opcode, event.payload) for event in reader(**options).feed(data)]


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        (frame(BINARY, b"x"), "mask bit missing"),
        (masked(BINARY | 0x20, b"x"), "RSV2 and RSV3 must be clear"),
        (masked(FINAL | Opcode.PING | COMPRESSED, b"x"), "control frame must not be compressed"),
        (masked(FINAL | Opcode.PING, b"x" * 126), "control frame length bigger than maximum allowed of 125 bytes"),
        (masked(Opcode.PING, b"x"), "control frame does not have final bit set"),
        (masked(FINAL | Opcode.CONTINUATION, b"x"), "invalid continuation frame"),
        (masked(Opcode.BINARY, b"x") + masked(BINARY, b"x"), "new message started before final frame"),
        (masked(COMPRESSED | Opcode.BINARY, b"") + masked(COMPRESSED | FINAL, b""), "invalid continuation frame"),
        (masked(FINAL | 3, b"x"), "unknown opcode 3"),
        (masked(FINAL | 11, b"x"), "unknown opcode 11"),
        (bytes([BINARY, 0xFF]) + b"\xff" * 8 + MASK, "invalid 64-bit payload length"),
        (masked(BINARY | COMPRESSED, b"\xff\xff\xff\xff"), "flate: corrupt input"),
    ],
)
def test_what_is_wrong_with_a_frame_is_told_in_the_references_words(frames: bytes, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        read(frames)


def test_compressed_frames_come_only_where_compression_was_agreed() -> None:
    with pytest.raises(FrameError, match="without negotiated permessage-deflate"):
        read(masked(BINARY | COMPRESSED, deflated(b"x")), compressed=False)


def test_text_that_is_no_utf8_is_taken() -> None:
    assert read(masked(FINAL | Opcode.TEXT, b"\xff")) == [(Opcode.TEXT, b"\xff")]


@given(
    messages=st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=5),
    size=st.integers(1, 40),
    cut=st.integers(1, 64),
)
def test_messages_arrive_whole_however_frames_and_chunks_are_cut(
    messages: list[tuple[bytes, bool]], size: int, cut: int
) -> None:
    sent = b""
    for data, packed in messages:
        body = deflated(data) if packed else data
        parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
        for at, part in enumerate(parts):
            head = Opcode.CONTINUATION if at else Opcode.BINARY | (COMPRESSED if packed else 0)
            sent += masked(head | (FINAL if at == len(parts) - 1 else 0), part)
            sent += masked(FINAL | Opcode.PING, b"in between")
    frames, got, pings = reader(), b"", 0
    for at in range(0, len(sent), cut):
        for opcode, payload in frames.feed(sent[at : at + cut]):
            if opcode is Opcode.PING:
                assert payload == b"in between"
                pings += 1
            else:
                got += payload
    assert got == b"".join(data for data, _ in messages)
    assert pings == sent.count(masked(FINAL | Opcode.PING, b"in between"))


def test_a_bomb_is_stopped_at_the_limit() -> None:
    bomb = masked(BINARY | COMPRESSED, deflated(b"\0" * 50_000_000))
    with pytest.raises(FrameError, match="maximum payload exceeded") as caught:
        read(bomb, limit=1000)
    assert caught.value.status == CloseReason.MESSAGE_TOO_BIG


def test_the_limit_is_for_each_message() -> None:
    one = masked(BINARY | COMPRESSED, deflated(b"x" * 1000))
    assert b"".join(payload for _, payload in read(one * 5, limit=1000)) == b"x" * 5000


def test_small_output_is_left_uncompressed() -> None:
    writer = WebSocketWriter(Deflater())
    assert writer.messages(b"x" * 64) == frame(BINARY, b"x" * 64)
    assert writer.messages(b"x" * 65)[0] == BINARY | COMPRESSED


@pytest.mark.parametrize(("whole", "compress"), [(False, False), (False, True), (True, True)])
def test_what_is_written_can_be_read(whole: bool, compress: bool) -> None:
    data = b"".join(b"%d" % at for at in range(20_000))
    written = WebSocketWriter(Deflater() if compress else None, browser=True, whole=whole).messages(data)
    back = WebSocketReader(compressed=compress, masked=False, limit=1 << 20)
    assert b"".join(event.payload for event in back.feed(written)) == data
    assert (len(written) > 4096 and written[1] == 126 and written[2:4] == b"\x10\x00") == (not whole)


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        (b"", frame(FINAL | Opcode.CLOSE, b"")),
        (b"\x03\xe8bye", close_frame(1000, "bye")),
        (b"\x03\xe8\xff", close_frame(1007, "invalid utf8 body in close frame")),
        (b"\x0f\xa0", close_frame(4000)),
    ],
)
def test_a_close_frame_is_answered(payload: bytes, answer: bytes) -> None:
    assert close_answer(payload) == answer


@pytest.mark.parametrize(
    "payload", [b"x", b"\x03\xe7", b"\x03\xed", b"\x03\xee", b"\x03\xf7", b"\x04\x00", b"\x13\x88"]
)
def test_a_close_frame_that_is_none_is_a_fault(payload: bytes) -> None:
    with pytest.raises(FrameError):
        close_answer(payload)


def test_a_long_reason_is_cut_to_what_a_control_frame_takes() -> None:
    told = close_frame(1002, "é" * 100)
    assert told[1] <= 125 and told.endswith(b"...")
    told[4:].decode()


@given(st.lists(st.binary(min_size=1, max_size=500), min_size=1, max_size=5))
def test_nothing_of_one_message_is_needed_to_read_the_next(messages: list[bytes]) -> None:
    deflater = Deflater()
    for message in messages:
        packed = deflater.pack(message * 3) + b"\x00\x00\xff\xff"
        assert zlib.decompressobj(-15).decompress(packed) == message * 3


def test_what_a_hub_sends_is_inflated_up_to_a_limit() -> None:
    ends = [WSConnection(kind) for kind in (ConnectionType.CLIENT, ConnectionType.SERVER)]
    leaf, hub = ends
    hub.receive_data(leaf.send(Request(host="h", target="/", extensions=[BoundedDeflate(1000)])))
    list(hub.events())
    leaf.receive_data(hub.send(AcceptConnection(extensions=[PerMessageDeflate()])))
    list(leaf.events())
    for size in (1000, 1000):
        leaf.receive_data(hub.send(BytesMessage(data=b"x" * size)))
        assert b"".join(bytes(event.data) for event in leaf.events() if isinstance(event, BytesMessage)) == b"x" * size
    hub.receive_data(leaf.send(BytesMessage(data=b"y" * 500)))
    assert [event.data for event in hub.events() if isinstance(event, BytesMessage)] == [b"y" * 500]
    leaf.receive_data(hub.send(BytesMessage(data=b"x" * 1_000_000)))
    with pytest.raises(FrameError, match="maximum payload exceeded"):
        list(leaf.events())
