"""Power failures rebuilt from the writes of a block device, and the store on a real file system that meets them."""

import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import pytest

from natsctl.native import lib
from natsctl.store.file_commit import Append
from tests.support.native_threads import NativeThreads
from tests.support.power_failures import Write, able, fail_disk, fail_power, image_after, session_on
from tests.support.store_model import Violation
from tests.support.store_mutations import MUTATIONS


def real(test: Callable[..., None]) -> Callable[..., None]:
    skip = pytest.mark.skipif(not able("ext4"), reason="needs root, /dev/fuse, loop devices and mkfs.ext4")
    return pytest.mark.fuzz(skip(test))


def images(folder: Path, writes: list[Write], cut: int) -> set[bytes]:
    """Return the images that many power failures after `cut` entries leave."""
    base, image = folder / "base", folder / "image"
    base.write_bytes(bytes(2048))
    found = set()
    for seed in range(60):
        image_after(base, image, writes, cut, random.Random(seed))
        found.add(image.read_bytes())
    return found


def test_what_was_flushed_is_there_and_what_was_not_may_be(tmp_path: Path) -> None:
    writes = [Write(0, b"a" * 512), Write(0, b""), Write(512, b"b" * 1024), Write(0, b""), Write(1536, b"c" * 512)]
    assert {image[:512] for image in images(tmp_path, writes, 3)} == {b"a" * 512}
    after = {image[512:1536] for image in images(tmp_path, writes, 3)}
    assert after == {bytes(1024), b"b" * 1024, b"b" * 512 + bytes(512), bytes(512) + b"b" * 512}
    assert {image[512:1536] for image in images(tmp_path, writes, 4)} == {b"b" * 1024}
    assert {image[1536:] for image in images(tmp_path, writes, 4)} == {bytes(512)}
    assert {image[1536:] for image in images(tmp_path, writes, 5)} == {bytes(512), b"c" * 512}


@real
def test_no_promise_is_broken_on_ext4(tmp_path: Path) -> None:
    assert fail_power("ext4", 1, 8, tmp_path) > 100


@real
@pytest.mark.timeout(60)
def test_a_session_that_fails_with_its_store_open_ends(tmp_path: Path) -> None:
    with pytest.raises(Violation, match="planted"), session_on("ext4", 1, tmp_path) as (session, _):
        session.work()
        raise Violation("planted")
    assert "natsctl-blocks" not in {thread.name for thread in threading.enumerate()}


@real
def test_a_missing_sync_is_noticed_on_ext4(tmp_path: Path) -> None:
    in_python = mock.patch("tests.support.power_failures.lib", None)
    with MUTATIONS["ack_before_sync"](), in_python, pytest.raises(Violation):
        fail_power("ext4", 0, 25, tmp_path)


@real
@pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")
def test_a_sync_that_native_threads_leave_out_is_noticed_on_ext4(tmp_path: Path) -> None:
    submit = NativeThreads.submit

    def without_sync(self: NativeThreads, token: object, writes: Sequence[Append]) -> None:
        submit(self, token, tuple((fd, data, offset, False) for fd, data, offset, _ in writes))

    with mock.patch.object(NativeThreads, "submit", without_sync), pytest.raises(Violation):
        fail_power("ext4", 0, 25, tmp_path)


@real
def test_what_was_confirmed_outlives_a_device_that_answers_errors(tmp_path: Path) -> None:
    assert fail_disk("ext4", 1, tmp_path) > 0


@real
def test_a_sync_that_is_tried_again_is_noticed_on_ext4(tmp_path: Path) -> None:
    in_python = mock.patch("tests.support.power_failures.lib", None)
    with MUTATIONS["sync_retried"](), in_python, pytest.raises(Violation):
        for seed in (4, 9, 4, 9):  # the kernel may write at another moment
            fail_disk("ext4", seed, tmp_path)
