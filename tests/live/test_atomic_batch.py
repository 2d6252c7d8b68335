"""Atomic batches of several publishers on a real server that is killed: each is there whole or not at all."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess
from tests.support.raw_client import RawClient

PUBLISHERS = 4
KILL_AFTER_ACKS = 60
MESSAGES_AT_ONCE = 200


def header(batch: str, place: int, size: int) -> bytes:
    commit = "Nats-Batch-Commit: 1\r\n" if place == size else ""
    batch_of = f"Nats-Batch-Id: {batch}\r\nNats-Batch-Sequence: {place}\r\n"
    return f"NATS/1.0\r\n{batch_of}{commit}Size: {size}\r\n\r\n".encode()


async def publish_batches(url: str, number: int, acked: set[str], enough: asyncio.Event) -> None:
    """Publish batches until the server is gone."""
    client = await RawClient.connect(url)
    answers: asyncio.Queue[Any] = asyncio.Queue()
    inbox = b"acks.%d" % number
    client.subscribe(inbox, lambda subject, reply, head, payload: answers.put_nowait(json.loads(payload)))
    rng = random.Random(number)
    for count in range(10_000):
        name, size = f"p{number}.{count}", rng.randint(2, 40)
        for place in range(1, size + 1):
            reply = inbox if place == size else b""
            client.publish(b"s.a", rng.randbytes(rng.randrange(1000)), reply, header(name, place, size))
        answer = asyncio.ensure_future(answers.get())
        gone = asyncio.ensure_future(client.closed.wait())
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not answer.done():
            answer.cancel()
            return
        assert answer.result()["batch"] == name
        acked.add(name)
        if len(acked) >= KILL_AFTER_ACKS:
            enough.set()


async def stored_batches(url: str) -> dict[str, list[tuple[int, int]]]:
    """Return (place, size) of each stored message by batch."""
    client = await RawClient.connect(url)
    last = json.loads((await client.request(b"$JS.API.STREAM.INFO.S"))[1])["state"]["last_seq"]
    found: dict[str, list[tuple[int, int]]] = {}
    for start in range(1, last + 1, MESSAGES_AT_ONCE):
        seqs = range(start, min(start + MESSAGES_AT_ONCE, last + 1))
        wanted = [client.request(b"$JS.API.STREAM.MSG.GET.S", b'{"seq":%d}' % seq, 20) for seq in seqs]
        for _, body in await asyncio.gather(*wanted):
            block = base64.b64decode(json.loads(body)["message"]["hdrs"]).decode()
            values = dict(line.split(": ", 1) for line in block.split("\r\n")[1:-2])
            place = (int(values["Nats-Batch-Sequence"]), int(values["Size"]))
            found.setdefault(values["Nats-Batch-Id"], []).append(place)
    await client.close()
    return found


async def session(folder: Path) -> None:
    acked: set[str] = set()
    enough = asyncio.Event()
    with ServerProcess(folder, "natsctl") as server:
        client = await RawClient.connect(server.url)
        await client.request(b"$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s.>"],"allow_atomic":true}')
        work = [asyncio.ensure_future(publish_batches(server.url, n, acked, enough)) for n in range(PUBLISHERS)]
        async with asyncio.timeout(90):
            await enough.wait()
        server.kill()
        await asyncio.gather(*work)
    with ServerProcess(folder, "natsctl") as server:
        found = await stored_batches(server.url)
    assert acked <= set(found)
    for name, places in found.items():
        size = places[0][1]
        assert [place for place, _ in places] == list(range(1, size + 1)), name


@pytest.mark.parametrize("round_number", range(2))
def test_kill_9_leaves_no_part_of_a_batch(round_number: int, tmp_path: Path) -> None:
    asyncio.run(session(tmp_path / str(round_number)))
