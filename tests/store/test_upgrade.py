"""Folders that version 176cf60 wrote: they open as they were, and get their marks as they are written.

`format1/` holds two of them, made by a server of that version with segments of 4 KiB (one stopped, one killed), and
what it said of them: streams of every retention, a compressed one, one with a message per subject, a bucket, consumers
with messages pending, erased and deleted messages, a purge, a deleted stream.
"""

import base64
import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from natsctl.server.instance import ServerInstance
from natsctl.server.options import ServerOptions
from natsctl.server.process.log import Log
from natsctl.store.disk import PosixDisk
from natsctl.store.frame import FILE_HEAD_BYTES, parse_file_head
from natsctl.store.layout import UNMARKED_TEXT
from natsctl.store.options import StoreOptions
from natsctl.store.store import Store
from tests.support.raw_client import RawClient

HERE = Path(__file__).with_name("format1")


@pytest.fixture(params=["clean", "killed"])
def old(request, tmp_path):
    """Return a folder of the old version, and what was in it."""
    with tarfile.open(HERE / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path, json.loads((tmp_path / "expected.json").read_text())


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


async def api(client, verb, body=None):
    _, answer = await client.request(f"$JS.API.{verb}".encode(), json.dumps(body).encode() if body else b"")
    return json.loads(answer)


async def shown(client, name):
    """Return what the server says of a stream, in the words of `expected.json`."""
    info = await api(client, f"STREAM.INFO.{name}", {"deleted_details": True})
    state = {key: value for key, value in info["state"].items() if key != "consumer_count"}
    messages = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        found = (await api(client, f"STREAM.MSG.GET.{name}", {"seq": seq})).get("message")
        if found is not None:
            payload = hashlib.sha256(base64.b64decode(found.get("data", ""))).hexdigest()[:16]
            messages.append([found["seq"], found["subject"], found.get("hdrs", ""), payload, found["time"]])
    consumers = {}
    for one in (await api(client, f"CONSUMER.LIST.{name}"))["consumers"]:
        kept = consumers[one["name"]] = {
            key: one[key] for key in ("created", "delivered", "ack_floor", "num_ack_pending", "num_pending")
        }
        for key in ("delivered", "ack_floor"):
            kept[key].pop("last_active", None)
    return {
        "created": info["created"],
        "config": info["config"],
        "state": state,
        "messages": messages,
        "consumers": consumers,
    }


async def test_a_folder_of_the_old_version_is_served_as_it_was(old):
    path, expected = old
    for _ in range(3):
        options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=path)
        async with ServerInstance(options, Log(with_time=False)) as server:
            client = await RawClient.connect(server.url)
            assert (await api(client, "STREAM.NAMES"))["streams"] == sorted(expected)
            for name, before in expected.items():
                assert await shown(client, name) == before, name
            await client.close()


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
