"""A stream configured with `compression: s2` lies compressed on disk, and its clients do not notice."""

import pytest

from natsctl.store.options import StoreOptions
from natsctl.store.packed import PackedFile, open_segment
from tests.support.jet import Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import SimDisk

OPTIONS = StoreOptions(segment_bytes=4096, tail_index_bytes=512)


@pytest.fixture
def jet():
    return Jet(Machine(store_options=OPTIONS))


def packed(jet):
    paths = [path for path in jet.machine.disk.files() if path.endswith(".seg")]
    return [isinstance(open_segment(jet.machine.disk, path), PackedFile) for path in paths]


def publish(jet, count):
    for n in range(count):
        jet.publish(*[f'{{"number": {n}, "text": "the same text in each of the messages"}}'] * 10)


def test_segments_of_an_s2_stream_are_compressed_and_its_info_counts_plain_bytes(jet):
    plain = Jet(Machine(store_options=OPTIONS))
    plain.stream("S")
    publish(plain, 20)
    assert not any(packed(plain))
    assert jet.stream("S", compression="s2")["config"]["compression"] == "s2"
    publish(jet, 20)
    assert packed(jet)[:-1] and all(packed(jet)[:-1]) and not packed(jet)[-1]
    assert ok(jet.api("STREAM.INFO.S"))["state"]["bytes"] == ok(plain.api("STREAM.INFO.S"))["state"]["bytes"]


@pytest.mark.parametrize("crash", [SimDisk.kill, SimDisk.power_loss])
def test_compression_goes_on_after_a_restart_and_stops_with_an_update(jet, crash):
    config = jet.stream("S", compression="s2")["config"]
    publish(jet, 20)
    jet = Jet(jet.machine.restarted(crash))
    before = len(packed(jet))
    publish(jet, 20)
    assert len(packed(jet)) > before and all(packed(jet)[:-1])
    ok(jet.api("STREAM.UPDATE.S", {**config, "compression": "none"}))
    publish(jet, 20)
    assert packed(jet).count(False) > 3 and any(packed(jet))
    jet.consumer("C")
    assert len(jet.pull({"batch": 1000, "no_wait": True})) == 601  # and the status that there are no more


def test_a_message_deleted_from_a_compressed_segment_is_erased(jet):
    jet.stream("S", compression="s2")
    jet.publish("a secret that nobody else knows of")
    publish(jet, 20)
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 1}))
    files = [open_segment(jet.machine.disk, path) for path in jet.machine.disk.files() if path.endswith(".seg")]
    assert not any(b"secret" in file.pread(file.size(), 0) for file in files)
    assert jet.api("STREAM.MSG.GET.S", {"seq": 2})["message"]["seq"] == 2
