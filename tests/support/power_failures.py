"""Power and disk failures on real file systems: `python -m tests.support.power_failures --fs ext4 --sessions 10`.

Theory of operation. A file system is made on a loop device whose backing file is served by this process through
/dev/fuse, so that every block that the file system writes, and every flush that it sends, arrives here in order. A
store works on it, driven by the program of `store_simulation`; with the native module, its threads write the commits
that only append, several at a time. Afterwards the power fails as often as asked, at any entry of
that list: what was flushed before is on the disk, and of what came after the last flush any part may be, down to single
sectors. Each image is mounted, so that the file system repairs itself, a store is opened on it, and the ledger as it
was at that moment judges. In a session of its own (`fail_disk`) the device answers EIO from some moment on, to every
write or to some; what was confirmed is judged on what the device has taken. Needs root, /dev/fuse, loop devices and
mkfs of the file system.
"""

import argparse
import contextlib
import ctypes
import errno
import os
import pickle
import random
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from natsctl.native import lib
from natsctl.store.disk import PosixDisk
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Commit
from natsctl.store.store import Store
from tests.support.native_disk import AppendingSession
from tests.support.native_threads import NativeCommits
from tests.support.simdisk import Plan, no_faults
from tests.support.store_model import Violation
from tests.support.store_simulation import look_for

SECTOR_BYTES: Final = 512
SIZES: Final = {"ext4": 48 << 20, "xfs": 320 << 20}
"""Bytes of an image; XFS wants 300 MB."""
MAKE: Final = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}
OPTIONS: Final = {"ext4": "loop,noatime", "xfs": "loop,noatime,nouuid"}
"""XFS refuses a file system that it has mounted, and every image is a copy of one."""
STEPS: Final = 600
"""Steps of the program in one session."""
STEPS_WITH_ERRORS: Final = 150
"""Steps that follow once the device answers errors."""
TOGETHER: Final = 0.3
"""Probability that all commits that were begun are run at the same time, in place of one."""
SAMPLE: Final = 0.5
"""Probability that the power may fail in a commit."""

UNMOUNT_ATTEMPTS: Final = 40

_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_WRITE = struct.Struct("<QQIIQII")
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _WRITES, _STATFS, _RELEASE, _FSYNC = 1, 2, 3, 14, 15, 16, 17, 18, 20
_FLUSH, _INIT, _OPENDIR, _RELEASEDIR, _ACCESS, _DESTROY, _BATCH_FORGET = 25, 26, 27, 29, 34, 38, 42
_FILE_ID: Final = 2
_BIG_WRITES, _MAX_PAGES, _DIRECT_IO = 1 << 5, 1 << 22, 1
_MESSAGE_BYTES: Final = (1 << 20) + 4096


class Write(NamedTuple):
    """One write of a block device; a flush is one without bytes."""

    offset: int
    data: bytes


class Mark(NamedTuple):
    """Entries of the list in which the promises did not change, and the ledger and what was erased by then."""

    start: int
    end: int
    ledger: bytes
    erased: list[tuple[str, bytes]]


def image_after(base: Path, image: Path, writes: list[Write], cut: int, rng: random.Random) -> None:
    """Make the image that a power failure after `cut` entries leaves of `base`."""
    flushed = max((at for at in range(cut) if not writes[at].data), default=-1) + 1
    shutil.copyfile(base, image)
    survival = rng.choice((0.0, 0.5, 0.9, 1.0))
    with image.open("r+b") as file:
        for at, (offset, data) in enumerate(writes[:cut]):
            if at < flushed or rng.random() < survival:
                os.pwrite(file.fileno(), data, offset)
            elif rng.random() < 0.3:  # torn: some of its sectors
                for start in range(0, len(data), SECTOR_BYTES):
                    if rng.random() < 0.5:
                        os.pwrite(file.fileno(), data[start : start + SECTOR_BYTES], offset + start)


class Recorder:
    """A folder with one file, `disk`, whose writes and flushes are listed.

    `failing` is the share of writes and flushes that are answered with EIO, and `refused` counts them.
    """

    def __init__(self, image: Path, folder: Path) -> None:
        self.writes: list[Write] = []
        self.failing = 0.0
        self.refused = 0
        self._rng = random.Random(0)
        self._image = os.open(image, os.O_RDWR | os.O_CLOEXEC)
        self._size = os.fstat(self._image).st_size
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._folder = folder
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"natsctl", os.fsencode(folder), b"fuse", 0, options.encode()):
            raise OSError(ctypes.get_errno(), "fuse can not be mounted")
        self._thread = threading.Thread(target=self._serve, name="natsctl-blocks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        unmount(self._folder)
        self._thread.join()
        os.close(self._device)
        os.close(self._image)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, _MESSAGE_BYTES)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                raise
            _, code, unique, node, *_ = _IN.unpack_from(request)
            if code in (_FORGET, _BATCH_FORGET):
                continue
            answer = self._answer(code, node, request[_IN.size :])
            fault, body = (answer, b"") if isinstance(answer, int) else (0, answer)
            with contextlib.suppress(FileNotFoundError):  # the request was given up
                os.write(self._device, _OUT.pack(_OUT.size + len(body), -fault, unique) + body)

    def _answer(self, code: int, node: int, body: bytes) -> bytes | int:
        if code in (_WRITES, _FSYNC) and self._rng.random() < self.failing:
            self.refused += 1
            return errno.EIO
        if code == _INIT:
            flags = struct.unpack_from("<IIII", body)[3] & (_BIG_WRITES | _MAX_PAGES)
            return struct.pack("<IIIIHHIIHH32x", 7, 31, 1 << 17, flags, 16, 12, 1 << 20, 1, 256, 0)
        if code == _LOOKUP:
            if body.rstrip(b"\0") != b"disk":
                return errno.ENOENT
            return struct.pack("<QQQQII", _FILE_ID, 0, 60, 60, 0, 0) + self._attributes(_FILE_ID)
        if code == _GETATTR:
            return struct.pack("<QII", 60, 0, 0) + self._attributes(node)
        if code in (_OPEN, _OPENDIR):
            return struct.pack("<QII", 0, _DIRECT_IO if code == _OPEN else 0, 0)
        if code == _READ:
            _, offset, size, *_ = struct.unpack_from("<QQI", body)
            return os.pread(self._image, size, offset)
        if code == _WRITES:
            _, offset, size, *_ = _WRITE.unpack_from(body)
            data = body[_WRITE.size : _WRITE.size + size]
            os.pwrite(self._image, data, offset)
            self.writes.append(Write(offset, data))
            return struct.pack("<II", size, 0)
        if code == _FSYNC:
            self.writes.append(Write(0, b""))
            return b""
        if code == _STATFS:
            return struct.pack("<QQQQQIII4x24x", 1 << 20, 1 << 20, 1 << 20, 100, 100, 4096, 255, 4096)
        return b"" if code in (_RELEASE, _FLUSH, _RELEASEDIR, _ACCESS, _DESTROY) else errno.ENOSYS

    def _attributes(self, node: int) -> bytes:
        mode = stat.S_IFREG | 0o600 if node == _FILE_ID else stat.S_IFDIR | 0o700
        size = self._size if node == _FILE_ID else 0
        return _ATTR.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


class RealDisk(PosixDisk):
    """A mounted file system in the place of the simulated disk."""

    __slots__ = ("faults", "plan")

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.faults = 0
        self.plan: Plan = no_faults

    def contents(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted(self._root.rglob("*")) if path.is_file()]

    def forget(self, data: bytes) -> None:
        """No-op: freed blocks are the file system's."""


class RealSession(AppendingSession):
    """The program of a simulated session on a mounted file system; `marks` say what holds in which part of the list."""

    def __init__(self, seed: int, root: Path, recorder: Recorder) -> None:
        super().__init__(seed)
        self.commits = None if lib is None else NativeCommits(lib)
        self._disk = RealDisk(root)  # type: ignore[assignment]
        self._recorder = recorder
        self._writes = recorder.writes
        self._together = random.Random(f"{seed}/together")
        self.marks: list[Mark] = []

    def work(self) -> None:
        self._open()
        for _ in range(STEPS):
            self._step()

    def work_on_failing_disk(self) -> Mark:
        """Take steps, the last of them on a device that answers errors; return what must be found behind them."""
        self._open()
        for _ in range(self._faults.randrange(STEPS)):
            self._step()
        self._recorder.failing = self._faults.choice((0.02, 0.2, 1.0))
        with contextlib.suppress(OSError):  # no file can be made any more, and the machine is given up
            for _ in range(STEPS_WITH_ERRORS):
                self._step()
        while self._flights:
            self._run_commit()
            self._finish()
        with contextlib.suppress(OSError):
            self._store.close()
        end = len(self._writes)
        return Mark(end, end, pickle.dumps(self._ledger), list(self._erased))

    def _is_of_disk(self, error: OSError, faults_before: int) -> bool:
        """Return whether a commit failed with the device: the kernel reports errors late, and remounts read-only."""
        return self._recorder.refused > 0 and error.errno in (errno.EIO, errno.EROFS)

    def _run_commit(self) -> None:
        start = len(self._writes)
        ledger = pickle.dumps(self._ledger)
        erased = list(self._erased)
        waiting = [flight for flight in self._flights if not flight.ran]
        if self._together.random() < TOGETHER:
            self._run_flights(waiting)
        else:
            super()._run_commit()
        if self._faults.random() < SAMPLE and len(self._writes) > start:
            self.marks.append(Mark(start, len(self._writes), ledger, erased))

    def _run_all(self, commits: Sequence[Commit]) -> list[OSError | StoreError | None]:
        """Do the disk work of commits, by native threads where there are any; return the error of each."""
        return super()._run_all(commits) if self.commits is None else self.commits.run(commits)

    def _check_disk_image(self) -> None:
        """Leave that to the power failures."""

    def _look_for(self, payloads: list[bytes]) -> None:
        """Leave that to the power failures."""

    def _keep_early_files(self) -> None:
        """Keep nothing: no file is misplaced here."""

    def end(self) -> None:
        """Settle what is in flight and close the store; native threads must have done a part of it."""
        self._settle()
        self._store.close()
        if self.commits is not None and not self.commits.jobs:
            raise Violation("the native threads wrote nothing")

    def stop(self) -> None:
        if self.commits is not None:
            self.commits.native.close()

    def judge(self, root: Path, mark: Mark) -> None:
        self._ledger = pickle.loads(mark.ledger)
        segments = [path.read_bytes() for path in root.rglob("*.seg")]
        look_for([payload for key, payload in mark.erased if key not in self._ledger.deletion_asked], segments)
        store = Store(RealDisk(root), self._options, self._draw_salt, lambda: self._now_ns, lambda text: None)
        found = store.open()
        try:
            self._ledger.judge(store.streams, found.damaged)
        finally:
            store.close()


@contextlib.contextmanager
def mounted(kind: str, image: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    options = OPTIONS[kind]
    subprocess.run(["mount", "-t", kind, "-o", options, str(image), str(folder)], check=True)
    try:
        yield folder
    finally:
        unmount(folder)


def unmount(folder: Path) -> None:
    """Unmount a folder once its loop device has closed; by force if it stays busy, which ends the Recorder too."""
    for _ in range(UNMOUNT_ATTEMPTS):
        if not subprocess.run(["umount", str(folder)], stderr=subprocess.DEVNULL).returncode:
            return
        time.sleep(0.05)
    subprocess.run(["umount", "-f", "-l", str(folder)], check=True)


@contextlib.contextmanager
def session_on(kind: str, seed: int, folder: Path) -> Iterator[tuple[RealSession, Recorder]]:
    """Return a session on a new file system, whose device `folder` has as `image`; unmount it afterwards."""
    base, image, blocks = folder / "base", folder / "image", folder / "blocks"
    with base.open("wb") as file:
        file.truncate(SIZES[kind])
    subprocess.run([*MAKE[kind], str(base)], check=True, stdout=subprocess.DEVNULL)
    shutil.copyfile(base, image)
    blocks.mkdir(exist_ok=True)
    recorder = Recorder(image, blocks)
    try:
        with mounted(kind, blocks / "disk", folder / "mount") as root:
            session = RealSession(seed, root / "store", recorder)
            try:
                yield session, recorder
            finally:
                session.stop()
    finally:
        recorder.close()


def judge_image(kind: str, image: Path, session: RealSession, mark: Mark, title: str) -> None:
    """Mount an image and let the session judge the store on it; raises Violation that begins with `title`."""
    with mounted(kind, image, image.parent / "mount") as root:
        try:
            session.judge(root / "store", mark)
        except Violation as violation:
            raise Violation(f"{kind}, seed {session.report.seed}, {title}: {violation}") from violation


def fail_power(kind: str, seed: int, cuts: int, folder: Path) -> int:
    """Run one session on a new file system and judge `cuts` power failures; return how many entries its list has."""
    with session_on(kind, seed, folder) as (session, recorder):
        session.work()
        session.end()
        writes = list(recorder.writes)
    rng = random.Random(seed)
    image = folder / "image"
    for number in range(cuts):
        mark = rng.choice(session.marks)
        cut = rng.randint(mark.start, mark.end)
        image.unlink()
        image = folder / f"image-{number}"  # a loop device that is still there would show blocks of the one before
        image_after(folder / "base", image, writes, cut, rng)
        judge_image(kind, image, session, mark, f"cut {cut} of {len(writes)}")
    return len(writes)


def fail_disk(kind: str, seed: int, folder: Path) -> int:
    """Run one session on a device that begins to answer errors, and judge what it has taken; return how many."""
    with session_on(kind, seed, folder) as (session, recorder):
        mark = session.work_on_failing_disk()
        if seed % 2 or kind == "xfs":  # which does not let itself be unmounted before it has written what it holds
            recorder.failing = 0.0  # what the kernel still holds may be written after all
    after = folder / "after"
    shutil.copyfile(folder / "image", after)
    judge_image(kind, after, session, mark, f"{recorder.refused} errors")
    return recorder.refused


def able(kind: str) -> bool:
    """Return whether this machine can make and mount such a file system."""
    needed: list[Callable[[], bool]] = [
        lambda: os.geteuid() == 0,
        lambda: os.access("/dev/fuse", os.R_OK | os.W_OK),
        lambda: os.access("/dev/loop-control", os.R_OK | os.W_OK),
        lambda: shutil.which(MAKE[kind][0]) is not None,
        lambda: f"\t{kind}\n" in Path("/proc/filesystems").read_text(),
    ]
    return all(check() for check in needed)


def main() -> int:
    """Run sessions and print what they did; the first broken promise ends the run and names its seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fs", choices=sorted(SIZES), default="ext4")
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--cuts", type=int, default=40, help="power failures of each session")
    parser.add_argument("--errors", action="store_true", help="answer errors instead of failing the power")
    options = parser.parse_args()
    if not able(options.fs):
        print(f"needs root, /dev/fuse, loop devices and mkfs.{options.fs}", file=sys.stderr)
        return 2
    print(f"commits that only append are written {'in Python' if lib is None else 'by native threads'}")
    entries = 0
    for seed in range(options.first, options.first + options.sessions):
        with tempfile.TemporaryDirectory(prefix="natsctl-power-") as folder:
            if options.errors:
                entries += fail_disk(options.fs, seed, Path(folder))
            else:
                entries += fail_power(options.fs, seed, options.cuts, Path(folder))
    if options.errors:
        print(f"{options.sessions} sessions on {options.fs}: {entries:,} errors of the device")
        return 0
    print(f"{options.sessions} sessions on {options.fs}: {entries:,} writes and flushes, ", end="")
    print(f"{options.sessions * options.cuts:,} power failures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
