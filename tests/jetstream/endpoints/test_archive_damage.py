"""Archives that were changed on the way, or made to do harm: refused, with nothing left behind."""

from random import Random
from tarfile import PAX_FORMAT, TarInfo
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.archive import tar
from natsctl.api.archive.archive import PAUSE, ArchivedStream, uvarint
from natsctl.api.archive.archive_reader import ArchiveReader
from natsctl.api.archive.archive_v1 import WriterV1
from natsctl.api.archive.archive_v2 import MAGIC
from natsctl.api.archive.s2 import FrameWriter, crc32c, mask
from natsctl.api.stream import StreamConfig
from natsctl.jetstream.engine_options import JetStreamOptions
from tests.jetstream.endpoints.test_restore import restore
from tests.support import tiers
from tests.support.jet import Jet, ok
from tests.support.machine import Machine

STREAM_ID = b"\xff\x06\x00\x00S2sTwO"


def nothing_is_left(jet: Jet) -> bool:
    return not jet.machine.store.streams and jet.api("STREAM.NAMES")["total"] == 0


def saved(version: int) -> tuple[dict[str, Any], bytes]:
    """Return the archive of a stream with everything in it."""
    jet = Jet(Machine(seed=version, options=JetStreamOptions(archive_version=version)))
    jet.stream()
    for number in range(40):
        header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number if number % 3 else b""
        jet.wire.publish(f"s.{number % 5}", b"some text, some text %d" % number, header=header)
    jet.consumer()
    jet.ack(jet.pull(b"5")[1])
    jet.api("STREAM.MSG.DELETE.S", {"seq": 7})
    return jet.backup()


ARCHIVES = {"v1": saved(1), "v2": saved(2)}


@pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("kind", ARCHIVES)
def test_one_flipped_bit_anywhere_is_noticed(kind: str, step: int) -> None:
    document, archive = ARCHIVES[kind]
    jet, rng = Jet(), Random(1)
    for at in (*range(40), *range(40, len(archive), step)):  # the header of the first frame in any case
        bad = bytearray(archive)
        bad[at] ^= 1 << rng.randrange(8)
        answer = restore(jet, document, bytes(bad), step=4096)
        if "error" in answer:
            assert answer["error"]["err_code"] == 10062, f"byte {at}"
            assert nothing_is_left(jet), f"byte {at}"
        else:  # a copy from elsewhere in a run of zeros
            assert cramjam.snappy.decompress(bytes(bad)) == cramjam.snappy.decompress(archive), f"byte {at}"
            ok(jet.api("STREAM.DELETE.S"))
    assert ok(restore(jet, document, archive, step=4096))["state"]["messages"] == 39


@pytest.mark.parametrize("kind", ARCHIVES)
@tiers.examples(150)
@given(st.data())
def test_content_that_was_changed_before_it_was_framed_is_taken_whole_or_refused(
    kind: str, data: st.DataObject
) -> None:
    document, archive = ARCHIVES[kind]
    content = bytearray(cramjam.snappy.decompress(archive))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        size = data.draw(st.integers(0, 9))
        content[at : at + size] = data.draw(st.binary(max_size=9))
    jet = Jet()
    answer = restore(jet, document, FrameWriter().write(bytes(content)), step=4096)
    assert not jet.machine.store.faults
    if "error" in answer:
        assert answer["error"]["err_code"] == 10062
        assert nothing_is_left(jet)
    else:
        assert jet.api("STREAM.INFO.S")["state"]["messages"] <= 40


@tiers.examples(60)
@given(st.data())
def test_pieces_that_are_missing_doubled_or_swapped_are_noticed(data: st.DataObject) -> None:
    document, archive = ARCHIVES[data.draw(st.sampled_from(sorted(ARCHIVES)))]
    first, second = sorted(data.draw(st.lists(st.integers(11, len(archive)), min_size=2, max_size=2, unique=True)))
    head, middle, rest = archive[:first], archive[first:second], archive[second:]
    changed = data.draw(st.sampled_from([head + rest, head + middle + middle + rest, head + rest + middle]))
    if changed == archive:
        return
    jet = Jet()
    answer = restore(jet, document, changed, step=4096)
    if "error" in answer:
        assert nothing_is_left(jet)
    else:
        assert jet.api("STREAM.INFO.S")["state"] == document["state"] | {"consumer_count": 1}


def frame(content: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(content))
    body = mask(crc32c(content)).to_bytes(4, "little") + block
    return b"\x00" + len(body).to_bytes(3, "little") + body


def v1(*files: bytes) -> bytes:
    writer = WriterV1()
    return b"".join((*writer.beginning(ArchivedStream(StreamConfig(name="S", subjects=["s.>"])), []), *files))


def sized(name: str, size: int) -> bytes:
    info = TarInfo(name)
    info.size = size
    return info.tobuf(PAX_FORMAT)


def record(*numbers: int) -> bytes:
    return b"".join(map(uvarint, numbers))


BOMBS = {
    "a block that claims 4 GiB": STREAM_ID + b"\x00\x0a\x00\x00" + bytes(4) + b"\xff\xff\xff\xff\x0f" + b"x",
    "a block that repeats itself to 8 MiB": STREAM_ID
    + b"\x00\x10\x00\x00"
    + bytes(4)
    + b"\xff\xff\xff\x03"
    + b"\x00a\x02\x01\x00"
    + b"\x1d\x00\xff",
    "zeros without an end": STREAM_ID + frame(bytes(4 << 20)) * 40,
    "a tar file of 8 EiB": FrameWriter().write(v1(sized("msgs/1.blk", (8 << 60) - 1), b"\xff" * 2048)),
    "a record of 2 GiB": FrameWriter().write(v1(tar.entry("msgs/1.blk", b"\xff\xff\xff\x7f" + bytes(3000), 0))),
    "a file that climbs out": FrameWriter().write(v1(tar.entry("../../etc/meta.inf", b"{}", 0))),
    "a folder": FrameWriter().write(v1(tar.entry("obs/", b"", 0).replace(b"0\x00ustar", b"5\x00ustar"))),
    "consumers beyond counting": FrameWriter().write(
        MAGIC + record(10, 0, 0, 0, 29) + b"state.json" + b'{"consumer_count":2000000000}' + bytes(5)
    ),
    "a name of 1 GiB": FrameWriter().write(MAGIC + record(1 << 30, 0, 0, 0, 0)),
    "a payload of 8 EiB": FrameWriter().write(MAGIC + record(1, 0, 1, 0, (8 << 60) - 1)),
    "pending beyond counting": FrameWriter().write(
        v1(
            tar.entry("obs/C/meta.inf", b'{"Name":"C"}', 0),
            tar.entry("obs/C/o.dat", b"\x16\x02" + record(0, 0, 9, 9, 1 << 60, 2, 1, 1, 0), 0),
        )
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(name: str) -> None:
    jet = Jet()
    answer = restore(jet, {"config": {"name": "S", "subjects": ["s.>"]}, "state": {}}, BOMBS[name], step=64 << 10)
    assert answer["error"]["err_code"] == 10062
    assert nothing_is_left(jet)


def test_files_that_mean_nothing_are_passed_over_with_pauses() -> None:
    document, archive = ARCHIVES["v1"]
    content = bytes(cramjam.snappy.decompress(archive))
    files = b"".join(tar.entry(f"other/{number}", b"", 0) for number in range(1000))
    last_file_ends = len(content.rstrip(b"\0")) + -len(content.rstrip(b"\0")) % 512
    longer = FrameWriter().write(content[:last_file_ends] + files + tar.END)
    reader = ArchiveReader()
    assert sum(item is PAUSE for item in reader.read(longer)) > 1000 // 64
    reader.finish()
    assert ok(restore(Jet(), document, longer, step=4096))["state"]["messages"] == 39
