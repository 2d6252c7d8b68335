"""Files that a version of natsctl leaves behind: `python -m tests.support.stored_version CLONE OUT`.

Run once for each version from now on, with a clone of its commit; `tests/store/test_upgrade.py` opens what it wrote
with every later version. OUT gets `clean.tar.gz` and `killed.tar.gz`: the store of a server that was stopped and of
one that was killed, what the server said of its content (`expected.json`), and a backup of one stream. Segments have
4 KiB, so that a small folder holds sealed, rewritten, merged and compressed ones.
"""

import asyncio
import base64
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.support.raw_client import RawClient

SERVER: Final = """
import functools, sys
import natsctl.store.options as options
options.StoreOptions = functools.partial(options.StoreOptions, segment_bytes=4096)
from natsctl.cli.main import main
sys.argv[1:] = ["server", "run", "-js", "-a", "127.0.0.1", "-p", "-1", "-sd", {folder!r}]
sys.argv += ["--ports_file_dir", {folder!r}]
main()
"""
BACKUP: Final = "orders.tgz"
STREAMS: Final[tuple[dict[str, object], ...]] = (
    {"name": "ORDERS", "subjects": ["orders.>"], "duplicate_window": 60_000_000_000, "allow_msg_ttl": True},
    {"name": "WORK", "subjects": ["work.>"], "retention": "workqueue"},
    {"name": "INTEREST", "subjects": ["interest.>"], "retention": "interest"},
    {"name": "PACKED", "subjects": ["packed.>"], "compression": "s2"},
    {"name": "LATEST", "subjects": ["latest.>"], "max_msgs_per_subject": 1},
    {"name": "SHORT", "subjects": ["short.>"], "max_msgs": 20},
    {"name": "KV_settings", "subjects": ["$KV.settings.>"], "max_msgs_per_subject": 3, "allow_rollup_hdrs": True},
    {"name": "COUNTS", "subjects": ["counts.>"], "allow_msg_counter": True},
    {"name": "LATER", "subjects": ["later.>"], "allow_msg_schedules": True},
    {"name": "EMPTY", "subjects": ["empty"]},
    {"name": "GONE", "subjects": ["gone"]},
)
CONSUMERS: Final[tuple[tuple[str, dict[str, object]], ...]] = (
    ("ORDERS", {"durable_name": "billing", "ack_policy": "explicit", "ack_wait": 3_600_000_000_000}),
    ("ORDERS", {"durable_name": "audit", "ack_policy": "all", "filter_subject": "orders.1"}),
    ("WORK", {"durable_name": "worker", "ack_policy": "explicit", "ack_wait": 3_600_000_000_000}),
    ("INTEREST", {"durable_name": "i1", "ack_policy": "explicit", "ack_wait": 3_600_000_000_000}),
    ("INTEREST", {"durable_name": "i2", "ack_policy": "none", "filter_subject": "interest.2"}),
    ("PACKED", {"durable_name": "p", "ack_policy": "explicit", "deliver_policy": "last"}),
)


def unpack(archive: Path, folder: Path) -> None:
    """Extract files that were kept, with Python's safe filter in the releases that have it (3.11.4 and later)."""
    with tarfile.open(archive) as kept:
        kept.extraction_filter = getattr(tarfile, "data_filter", None)
        kept.extractall(folder)


async def api(client: RawClient, verb: str, body: object = None) -> Any:
    _, answer = await client.request(f"$JS.API.{verb}".encode(), json.dumps(body).encode() if body else b"")
    return json.loads(answer)


async def shown(client: RawClient, name: str) -> dict[str, Any]:
    """Return what a server says of a stream: configuration, state, messages and consumers."""
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


async def fill(client: RawClient) -> None:
    """Give a server streams of every kind, and consumers with messages pending."""
    rng = random.Random(21)
    for config in STREAMS:
        assert "error" not in await api(client, f"STREAM.CREATE.{config['name']}", config), config
    for stream, config in CONSUMERS:
        body = {"stream_name": stream, "config": config}
        assert "error" not in await api(client, f"CONSUMER.DURABLE.CREATE.{stream}.{config['durable_name']}", body)
    for n in range(60):
        for subject in ("orders", "work", "interest", "packed", "latest", "short", "$KV.settings"):
            header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\nTrace: %d\r\n\r\n" % (n, n) if subject == "orders" else b""
            await publish(client, b"%s.%d" % (subject.encode(), n % 7), rng.randbytes(rng.randint(0, 300)), header)
        await publish(client, b"counts.%d" % (n % 3), b"", b"NATS/1.0\r\nNats-Incr: %d\r\n\r\n" % n)
    await publish(
        client,
        b"later.a",
        b"now",
        b"NATS/1.0\r\nNats-Schedule: @at 2099-01-01T00:00:00Z\r\nNats-Schedule-Target: later.b\r\n\r\n",
    )
    await publish(client, b"orders.ttl", b"kept", b"NATS/1.0\r\nNats-TTL: 900000h\r\n\r\n")
    for stream, consumer, batch, acks in (
        ("ORDERS", "billing", 20, 7),
        ("WORK", "worker", 50, 40),
        ("INTEREST", "i1", 60, 51),
    ):
        await consume(client, stream, consumer, batch, acks)
    for seq in (5, 17, 33):
        await api(client, "STREAM.MSG.DELETE.ORDERS", {"seq": seq, "no_erase": seq == 17})
    await api(client, "STREAM.PURGE.PACKED", {"seq": 12})
    await api(client, "STREAM.PURGE.KV_settings", {"filter": "$KV.settings.3"})
    await api(client, "STREAM.DELETE.GONE")
    await publish(client, b"orders.9", b"the last", b"")


async def publish(client: RawClient, subject: bytes, payload: bytes, header: bytes) -> None:
    """Publish a message and hold its ack to be one."""
    _, body = await client.request(subject, payload, header=header)
    answer = json.loads(body)
    assert "error" not in answer, answer


async def consume(client: RawClient, stream: str, consumer: str, batch: int, acks: int) -> None:
    """Fetch messages and acknowledge the first of them; all acks are confirmed."""
    replies: list[bytes] = []
    client.subscribe(b"_B.%s" % consumer.encode(), lambda _s, reply, _h, _b: replies.append(reply))
    client.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode(),
        json.dumps({"batch": batch}).encode(),
        b"_B.%s" % consumer.encode(),
    )
    while len(replies) < batch:
        await client.flush()
    for reply in replies[:acks]:
        await client.request(reply, b"+ACK")


async def record(clone: Path, folder: Path, killed: bool) -> None:
    """Have the server of `clone` fill `folder`, and stop or kill it."""
    command = [sys.executable, "-c", SERVER.format(folder=str(folder))]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("NATS")}
    with subprocess.Popen(command, cwd=clone, env=environment) as server:
        try:
            client = await RawClient.connect(await url_of(folder))
            await fill(client)
            names = (await api(client, "STREAM.NAMES"))["streams"]
            expected = {name: await shown(client, name) for name in names}
            backup = [sys.executable, "-m", "natsctl", "-s", await url_of(folder), "str", "backup", "ORDERS"]
            subprocess.run([*backup, str(folder / BACKUP)], cwd=clone, env=environment, check=True)
            (folder / "expected.json").write_text(json.dumps(expected, indent=1))
            if not killed:
                await client.close()
        finally:
            server.send_signal(signal.SIGKILL if killed else signal.SIGTERM)


async def url_of(folder: Path) -> str:
    """Return the address that the server writes into a file once it listens."""
    while not (found := list(folder.glob("*.ports"))):
        await asyncio.sleep(0.05)
    return str(json.loads(found[0].read_text())["nats"][0])


def main() -> None:
    clone, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name in ("clean", "killed"):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(record(clone, Path(folder), name == "killed"))
            with tarfile.open(out / f"{name}.tar.gz", "w:gz") as archive:
                for part in ("jetstream", "expected.json", BACKUP):
                    archive.add(Path(folder) / part, part)


if __name__ == "__main__":
    main()
