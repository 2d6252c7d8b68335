"""Folders and backups that earlier versions wrote: they open as they were, in every later version.

`versions/` has a folder for each commit: stores of a server that was stopped and of one that was killed, with segments
of 4 KiB, and what the server said of them: streams of every retention, a compressed one, one with a message per
subject, a bucket, consumers with messages pending, erased and deleted messages, a purge, a deleted stream. The next one
is made by `python -m tests.support.stored_version CLONE tests/store/versions/COMMIT`.

Files of 176cf60 have no identities; they get them as they are written.
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.options import EncryptionOptions, ServerOptions
from natsctl.store.disk import PosixDisk
from natsctl.store.frame import FILE_HEAD_BYTES, parse_file_head
from natsctl.store.layout import UNMARKED_TEXT
from natsctl.store.options import StoreOptions
from natsctl.store.store import Store
from tests.support.raw_client import RawClient
from tests.support.stored_version import BACKUP, api, shown, unpack

VERSIONS = Path(__file__).with_name("versions")
STORES = ("clean.tar.gz", "killed.tar.gz")
ARCHIVES = sorted(str(path.relative_to(VERSIONS)) for path in VERSIONS.glob("*/*.tar.gz") if path.name in STORES)


def unpacked(name, folder):
    unpack(VERSIONS / name, folder)
    return folder, json.loads((folder / "expected.json").read_text())


@pytest.fixture(params=["clean", "killed"])
def old(request, tmp_path):
    """Return a folder of the version before identities, and what was in it."""
    return unpacked(f"176cf60/{request.param}.tar.gz", tmp_path)


def opened(path):
    store = Store(
        PosixDisk(path / "jetstream"),
        StoreOptions(segment_bytes=4096),
        iter(range(7, 10**6)).__next__,
        lambda: 0,
        print,
    )
    return store, store.open()


def closed(path):
    store, report = opened(path)
    store.close()
    return report


async def judge(path, expected, starts, encryption=EncryptionOptions()):
    """Start a server on a folder several times, and compare what it says of its streams."""
    for _ in range(starts):
        options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=path, encryption=encryption)
        async with ServerInstance(options, Log(with_time=False)) as server:
            client = await RawClient.connect(server.url)
            assert (await api(client, "STREAM.NAMES"))["streams"] == sorted(expected)
            for name, before in expected.items():
                assert await shown(client, name) == before, name
            await client.close()


@pytest.mark.parametrize("name", ARCHIVES)
async def test_a_folder_of_an_old_version_is_served_as_it_was(name, tmp_path):
    await judge(*unpacked(name, tmp_path), starts=3)


@pytest.mark.parametrize("name", ARCHIVES)
async def test_a_folder_of_an_old_version_is_encrypted_and_served_as_it_was(name, tmp_path):
    path, expected = unpacked(name, tmp_path)
    await judge(path, expected, 2, EncryptionOptions("key"))
    contents = [file.read_bytes() for file in (path / "jetstream").rglob("*") if file.is_file()]
    assert not [content for content in contents if b"ORDERS" in content or b"orders." in content]


@pytest.mark.parametrize("name", ["chacha", "aes"])
async def test_an_encrypted_folder_of_an_old_version_opens_with_its_key(name, tmp_path):
    """Made from f020478/killed with the key "kept", by the first version that encrypts."""
    await judge(*unpacked(f"format3/{name}.tar.gz", tmp_path), 2, EncryptionOptions("kept", cipher=name))


@pytest.mark.parametrize("name", [name for name in ARCHIVES if not name.startswith("176cf60")])
async def test_a_backup_of_an_old_version_is_restored(name, tmp_path):
    path, expected = unpacked(name, tmp_path)
    options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path / "new")
    async with ServerInstance(options, Log(with_time=False)) as server:
        command = [sys.executable, "-m", "natsctl", "-s", server.url, "stream", "restore", str(path / BACKUP), "-j"]
        restore = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert await restore.wait() == 0
        client = await RawClient.connect(server.url)
        restored = await shown(client, "ORDERS")
        await client.close()
    before = expected["ORDERS"]
    assert restored["messages"] == before["messages"] and restored["config"] == before["config"]
    assert restored["consumers"].keys() == before["consumers"].keys()
    for consumer, kept in restored["consumers"].items():
        assert kept["ack_floor"] == before["consumers"][consumer]["ack_floor"]
        assert kept["num_ack_pending"] == before["consumers"][consumer]["num_ack_pending"]


def test_files_get_their_marks_as_they_are_written(old):
    path, _ = old
    assert (path / "jetstream" / "FORMAT").read_bytes() == UNMARKED_TEXT
    store, report = opened(path)
    assert not report.damaged and not report.notes and report.streams == 8
    before = {file: file.read_bytes() for file in path.rglob("*") if file.suffix == ".seg"}
    stream = store.streams["$G/ORDERS"]
    for _ in range(40):
        stream.append(b"orders.0", b"", bytes(200), 0)
        store._commit_all()
    stream.set_meta(stream.meta)
    stream.rewrite(stream.records())
    store.close()
    assert all(file.read_bytes() == data for file, data in before.items() if "s000001" not in str(file))
    heads = {
        file.name: parse_file_head(file.read_bytes()[:FILE_HEAD_BYTES])
        for file in sorted((path / "jetstream/streams/s000001").iterdir())
        if file.suffix in (".seg", ".log")
    }
    assert [head.is_marked for name, head in heads.items() if name.endswith(".seg")].count(True) >= 2
    assert not heads["00000000000000000001-0.seg"].is_marked and heads["journal-1.log"].is_marked
    assert len({head.identity for head in heads.values() if head.is_marked}) == 1
    assert not closed(path).damaged


@pytest.mark.parametrize("kind", ["journal-0.log", "00000000000000000001-0.seg", "meta"])
def test_files_without_marks_are_judged_by_the_high_water_file(old, kind):
    path, _ = old
    closed(path)
    streams = path / "jetstream" / "streams"
    (streams / "s000001" / kind).write_bytes((streams / "s000004" / kind).read_bytes())
    assert list(closed(path).damaged) == ["$G/ORDERS"]


def test_a_file_without_marks_is_refused_where_newer_ones_have_them(old):
    path, _ = old
    folder = path / "jetstream" / "streams" / "s000001"
    kept = (folder / "journal-0.log").read_bytes()
    store, _ = opened(path)
    stream = store.streams["$G/ORDERS"]
    stream.rewrite(stream.records())
    stream.set_meta(stream.meta)
    store.close()
    (path / "jetstream" / "WITNESS").unlink()
    (folder / "journal-1.log").unlink()
    (folder / "journal-0.log").write_bytes(kept)
    assert not closed(path).damaged  # without the high-water file an earlier generation of its own cannot be recognised
    head = parse_file_head(kept[:FILE_HEAD_BYTES])._replace(generation=1)
    (path / "jetstream" / "WITNESS").unlink()
    (folder / "journal-0.log").unlink()
    (folder / "journal-1.log").write_bytes(head.encode() + kept[FILE_HEAD_BYTES:])
    assert "has no identity" in closed(path).damaged["$G/ORDERS"]


def test_the_old_version_refuses_the_new_format(old):
    """Its rule: FORMAT must be its own text, byte by byte.

    Else StoreFormatError ends the start before anything is read.
    """
    path, _ = old
    closed(path)
    text = (path / "jetstream" / "FORMAT").read_bytes()
    assert text != UNMARKED_TEXT and json.loads(text)["min_reader"] == 2
