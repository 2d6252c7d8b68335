"""Archives between natsctl and released servers, both ways: what those wrote, and what they make of ours.

`data/releases/<version>` was saved by that nats-server: messages with headers, ids and TTLs, gaps at both ends, and
consumers of every kind in the middle of their work; `before` is what the server said of it. Where the environment
names other releases (`NATS_SERVER_RELEASES`, paths of binaries), our archives are restored there.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess, reference_binary
from tests.support.jet import Jet, ok
from tests.support.raw_client import RawClient

RELEASES = Path(__file__).parents[1] / "data" / "releases"
VERSIONS = sorted(path.stem for path in RELEASES.glob("*.s2"))
NEWER = {"allow_msg_ttl": False, "compression": "none", "consumer_limits": {}}
"""What configurations of old servers lack."""
POSITIONS = ("num_ack_pending", "num_redelivered", "num_pending")


def consumer_of(info: dict[str, Any]) -> dict[str, Any]:
    """Return what an archive can keep of a consumer."""
    config = {key: value for key, value in info["config"].items() if key not in ("metadata", "name")}
    places = {key: (info[key]["consumer_seq"], info[key]["stream_seq"]) for key in ("delivered", "ack_floor")}
    return {"config": config, **places, **{key: info[key] for key in POSITIONS}}


def stream_of(info: dict[str, Any]) -> dict[str, Any]:
    config = {**NEWER, **info["config"]}
    config.pop("metadata", None)
    return {"config": config, "state": {**info["state"], "consumer_count": 0}}


def message_hash(get: Callable[[int], dict[str, Any]], first_seq: int, last_seq: int) -> str:
    """Return one hash over all messages, as `before` has it."""
    total = hashlib.sha256()
    for seq in range(first_seq, last_seq + 1):
        if message := get(seq).get("message"):
            parts = [message["seq"], message["subject"], message.get("hdrs"), message.get("data"), message["time"]]
            total.update(json.dumps(parts).encode())
    return total.hexdigest()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_archive_of_a_released_server_comes_back_exactly(version: str) -> None:
    jet = Jet()
    document = json.loads((RELEASES / f"{version}.json").read_text())
    before = document.pop("before")
    to = ok(jet.api("STREAM.RESTORE.S", document))["deliver_subject"]
    assert jet.wire.request(to, (RELEASES / f"{version}.s2").read_bytes()).payload == b""
    ok(jet.wire.request(to))
    info = jet.api("STREAM.INFO.S", {"deleted_details": True})
    assert stream_of(info) == stream_of(before)
    found = message_hash(lambda seq: jet.api("STREAM.MSG.GET.S", {"seq": seq}), 3, 63)
    assert found == before["hash"]
    consumers = {one["name"]: consumer_of(one) for one in jet.api("CONSUMER.LIST.S", {})["consumers"]}
    expected = {name: consumer_of(one) for name, one in before["consumers"].items()}
    if version == "2.15.2":
        expected["PUSH"] |= {
            "delivered": (0, 63),
            "ack_floor": (0, 63),
        }  # it will begin at 77; version 2 tells nothing beyond the last sequence
    else:
        del expected["MEM"]  # version 1 of the reference leaves consumers in memory out
    # Neither format keeps the list of a last_per_subject consumer: what was published twice is owed twice.
    assert consumers["LPS"].pop("num_pending") >= expected["LPS"].pop("num_pending")
    assert consumers == expected


def ours() -> tuple[dict[str, Any], bytes, Any, Any]:
    jet = Jet()
    jet.stream(duplicate_window=120 * 10**9)
    for number in range(30):
        header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number if number % 3 else b""
        jet.wire.publish(f"s.{number % 7}", b"text %d" % number, header=header)
    jet.consumer(ack_wait=3600 * 10**9)
    jet.double_ack(jet.pull(b"6")[0])
    for seq in (1, 9, 30):
        ok(jet.api("STREAM.MSG.DELETE.S", {"seq": seq}))
    document, archive = jet.backup()
    return document, archive, jet.api("STREAM.INFO.S", {"deleted_details": True}), jet.info()


def binaries() -> list[str]:
    named = [path for path in os.environ.get("NATS_SERVER_RELEASES", "").split(os.pathsep) if path]
    return named + ([binary] if (binary := reference_binary()) else [])


@pytest.mark.reference
@pytest.mark.skipif(not binaries(), reason="nats-server is not on PATH")
@pytest.mark.parametrize("binary", binaries())
async def test_a_released_server_restores_our_archive(
    binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(binary).parent), prepend=os.pathsep)
    document, archive, stream, consumer = ours()
    with ServerProcess(tmp_path / "server", "reference") as server:
        client = await RawClient.connect(server.url)

        async def api(verb: str, body: object = None) -> Any:
            payload = b"" if body is None else json.dumps(body).encode()
            return json.loads((await client.request(f"$JS.API.{verb}".encode(), payload))[1])

        to = ok(await api("STREAM.RESTORE.S", document))["deliver_subject"].encode()
        assert (await client.request(to, archive))[1] == b""
        ok(json.loads((await client.request(to))[1]))
        assert stream_of(await api("STREAM.INFO.S", {"deleted_details": True})) == stream_of(stream)
        assert consumer_of(await api("CONSUMER.INFO.S.C")) == consumer_of(consumer)
        await client.close()
