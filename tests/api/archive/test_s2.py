"""The frames around archives: Snappy out, Snappy and S2 in, every check counted."""

from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.archive import s2_rewrite
from natsctl.api.archive.s2 import FrameReader, FrameWriter, S2BlockError, S2FrameError, crc32c, decode_steps, mask
from natsctl.api.subject_index import finish
from tests.api.archive.s2_elements import block_of, elements
from tests.support import tiers

STREAM_ID = b"\xff\x06\x00\x00S2sTwO"
REFERENCE = (Path(__file__).parents[2] / "jetstream" / "data" / "reference_v2.s2").read_bytes()


def frame(kind: int, content: bytes, check: int | None = None) -> bytes:
    body = (mask(crc32c(content)) if check is None else check).to_bytes(4, "little") + content
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def read(data: bytes, step: int = 1 << 20) -> bytes:
    reader = FrameReader()
    out = b"".join(content for at in range(0, len(data), step) for content in reader.read(data[at : at + step]))
    assert reader.between_frames
    return out


def naive_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF


def test_the_check_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@pytest.mark.parametrize("size", [1, 65535, 65536, 65537, 140_000])
def test_the_check_of_long_data_is_put_together_rightly(size: int) -> None:
    data = bytes(at * 7 % 251 for at in range(size))
    assert crc32c(data) == naive_crc32c(data)


@tiers.examples(50)
@given(st.lists(st.binary(max_size=300)), st.integers(1, 50))
def test_what_is_written_is_read_however_it_is_cut(pieces: list[bytes], step: int) -> None:
    writer = FrameWriter()
    written = b"".join([*(writer.write(piece) for piece in [b"start", *pieces]), writer.finish()])
    assert read(written, step) == b"start" + b"".join(pieces)


def test_a_writer_keeps_nothing_back() -> None:
    assert read(FrameWriter().write(b"at once")) == b"at once"


def test_a_stream_of_the_reference_is_read_byte_by_byte_too() -> None:
    whole = read(REFERENCE)
    assert whole.startswith(b"NATSARC1")
    assert len(whole) == 10_200
    assert read(REFERENCE, 1) == whole


def test_skippable_frames_and_repeated_stream_ids_are_passed_over() -> None:
    padding = b"\xfe\x03\x00\x00abc"
    assert read(STREAM_ID + padding + frame(1, b"a") + STREAM_ID + frame(1, b"b")) == b"ab"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"garbage!", "not an S2 or Snappy"),
        (b"\xff\x06\x00\x00nonono", "not an S2 or Snappy"),
        (frame(1, b"a"), "not an S2 or Snappy"),
        (STREAM_ID + frame(2, b"a"), "unknown type 0x02"),
        (STREAM_ID + b"\x01\x02\x00\x00ab", "unknown type 0x01"),
        (STREAM_ID + frame(1, b"a", 5), "crc mismatch"),
        (STREAM_ID + frame(0, b"\xff\xff\xff\xff\x7f"), "over the limit"),
        (STREAM_ID + frame(0, b""), "no length"),
        (STREAM_ID + frame(0, b"\x05\x00a"), "expected 5 decompressed bytes"),
        (STREAM_ID + frame(0x80, b"a"), "unknown type 0x80"),
    ],
)
def test_a_damaged_frame_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(S2FrameError, match=text):
        list(FrameReader().read(data))


def test_a_changed_byte_anywhere_in_a_frame_is_noticed() -> None:
    writer = FrameWriter()
    good = writer.write(b"some content that is worth keeping, worth keeping, worth keeping")
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x41
        reader = FrameReader()
        try:
            content = b"".join(reader.read(bytes(bad)))
        except S2FrameError:
            continue
        assert content == b"", f"byte {at}"  # a longer length only waits for more


@given(st.binary(max_size=2000))
def test_blocks_of_plain_snappy_are_decoded_here_as_cramjam_decodes_them(data: bytes) -> None:
    block = bytes(cramjam.snappy.compress_raw(data * 3))
    assert finish(decode_steps(block)) == data * 3


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (b"\x03\x00a\x0d\x01", None),
        (b"\x06\x00a\x01\x00", None),
        # literal "ab", a copy of 4 from 2 back, then a repeat of 4: offset 0 means the last one
        (b"\x0a\x04ab\x01\x02\x01\x00", b"ababababab"),
        # the long forms of a repeat: one, two and three bytes of length
        (b"\x0e\x04ab\x01\x02\x15\x00\x00", b"ab" * 7),
        (b"\x8a\x02\x04ab\x01\x02\x19\x00\x00\x00", b"ab" * 133),
        (b"\x8a\x80\x04\x04ab\x01\x02\x1d\x00\x00\x00\x00", b"ab" * 32773),
        (b"\x8a\x02\x04ab\x01\x02\x19\x00", None),
    ],
)
def test_repeat_codes_are_understood(block: bytes, content: bytes | None) -> None:
    if content is None:
        with pytest.raises(S2BlockError):
            finish(decode_steps(block))
    else:
        assert finish(decode_steps(block)) == content


@pytest.mark.parametrize(
    "block",
    [b"", b"\xff\xff\xff\xff\xff\xff", b"\x01", b"\x04\x01\x05", b"\x04\x00a\x02\x09\x00", b"\x02\x04a", b"\x01\xf0"],
)
def test_a_damaged_block_is_refused(block: bytes) -> None:
    with pytest.raises(S2BlockError):
        finish(decode_steps(block))


@given(st.binary(max_size=200))
def test_any_block_is_decoded_or_refused(block: bytes) -> None:
    try:
        content = finish(decode_steps(block))
    except S2BlockError:
        return
    assert len(content) <= 8 << 20


@tiers.examples(60)
@given(elements)
def test_any_elements_decode_to_their_content(chosen: list[tuple[str, int, int]]) -> None:
    block, content = block_of(chosen)

    assert finish(decode_steps(block)) == content


@given(elements, st.integers(1, 5))
def test_groups_end_anywhere(chosen: list[tuple[str, int, int]], size: int) -> None:
    block, content = block_of(chosen[:12])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s2_rewrite, "_GROUP_COPIES", size)
        assert finish(decode_steps(block)) == content


@given(elements, st.integers(0, 1 << 20))
def test_a_block_that_was_cut_is_refused(chosen: list[tuple[str, int, int]], at: int) -> None:
    block, _ = block_of(chosen[:12])

    with pytest.raises(S2BlockError):
        finish(decode_steps(block[: at % len(block)]))


def test_repeats_of_more_than_the_whole_block_are_refused_before_they_are_spelled() -> None:
    block = b"\xff\xff\x7f\x00a\x02\x01\x00" + b"\x1d\x00\xff\xff\xff" * 1000

    with pytest.raises(S2BlockError, match="too much"):
        finish(decode_steps(block))
