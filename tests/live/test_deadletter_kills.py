"""Dead letters survive kills: copies are made and messages replayed once, on one server and on a cluster of three."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from natsctl.client.deadletters.letters import LetterFilter, read_letters
from natsctl.client.messaging.consumers import pull
from natsctl.client.messaging.feed import Start, feed_of_stream
from natsctl.testing.process import ServerProcess
from tests.support.servers import Cluster, managing

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

SEED = 20261129
MESSAGES, KILLS = 1000, 10
WITHIN_S = 120.0
STREAMS = {"L": "limits", "W": "workqueue", "I": "interest"}


class Account(NamedTuple):
    """An account, and how many replicas its streams have."""

    url: str
    replicas: int
    folder: Path

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "NATS_URL": self.url, "HOME": str(self.folder), "NO_COLOR": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "natsctl", *words], cwd=self.folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0, (words, err)
        return out + err

    def kill(self, chance: random.Random, *words: str) -> bool:
        """Start a command and kill it at a random moment; return whether it was still running."""
        process = self.start(*words)
        time.sleep(chance.uniform(0.4, 1.6))
        process.kill()
        process.communicate()
        return process.returncode < 0


@pytest.fixture(params=["natsctl", pytest.param("cluster", marks=pytest.mark.reference)])
def account(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Account]:
    folder = tmp_path / "work"
    folder.mkdir()
    if request.param == "cluster":
        with Cluster(tmp_path) as cluster:
            yield Account(cluster.url(), 3, folder)
        return
    with ServerProcess(tmp_path / "server", "natsctl") as server:
        yield Account(server.url, 1, folder)


def document(replicas: int) -> dict[str, Any]:
    def stream(name: str, retention: str) -> dict[str, Any]:
        consumer = {"name": "C", "ack_wait": "500ms", "max_deliver": 1, "max_ack_pending": MESSAGES}
        return {
            "name": name, "subjects": [f"{name}.>"], "retention": retention, "num_replicas": replicas,
            "dead_letters": {"copy": True}, "consumers": [consumer],
        }  # fmt: skip

    return {"owner": "shop", "streams": [stream(name, retention) for name, retention in STREAMS.items()]}


async def fail(url: str) -> None:
    """Publish messages that each consumer gives up."""
    async with managing(url) as manager:
        for name in STREAMS:
            for number in range(MESSAGES):
                await manager.connection.publish(
                    f"{name}.{number % 7}", b"%d" % number, headers={"Nats-Msg-Id": f"{number}"}
                )
            await manager.connection.flush(WITHIN_S)
            async for _ in pull(manager, name, "C", {"batch": MESSAGES, "expires": 20 * 10**9}):
                pass
        until_s = time.monotonic() + WITHIN_S
        for name in STREAMS:
            while len(letters := await read_letters(manager, LetterFilter(name))) < MESSAGES:
                assert time.monotonic() < until_s, (name, len(letters))
                async for _ in pull(manager, name, "C", {"batch": 1, "no_wait": True}):
                    pass
                await asyncio.sleep(0.2)


async def contents(url: str, stream: str) -> list[tuple[bytes, str]]:
    """Return the bodies of a stream, each with the sequence of its original, "" for originals."""
    async with managing(url) as manager:
        stored = []
        async with await feed_of_stream(manager, stream, [">"], Start(), direct=True, to_end=True) as feed:
            while (message := feed.now() or await feed.next()) is not None:
                stored.append((message.body, message.headers.get("Dead-Letter-Sequence", "")))
        return stored


async def copies(url: str, stream: str) -> Counter[str]:
    """Return how often each message was copied, by its sequence."""
    sequences = [seq for _, seq in await contents(url, f"DEADLETTERS_{stream}")]
    return Counter(seq for seq in sequences if seq)


def test_each_message_is_copied_and_replayed_once_through_ten_kills(account: Account) -> None:
    chance = random.Random(SEED)
    path = account.folder / "shop.json"
    path.write_text(json.dumps(document(account.replicas)))
    account.run("apply", "-f", str(path), "--yes")
    asyncio.run(fail(account.url))

    running = sum(account.kill(chance, "dlq", "run", "--copy") for _ in range(KILLS))
    assert running == KILLS
    account.run("dlq", "run", "--once")
    for stream in STREAMS:
        copied = asyncio.run(copies(account.url, stream))
        assert (len(copied), set(copied.values())) == (MESSAGES, {1}), stream

    killed = sum(account.kill(chance, "dlq", "replay", "--all", "--rate", "250") for _ in range(KILLS))
    assert killed >= KILLS - 2
    account.run("dlq", "replay", "--all")
    for stream, retention in STREAMS.items():
        stored = asyncio.run(contents(account.url, stream))
        replays = Counter(seq for _, seq in stored if seq)
        assert (len(replays), set(replays.values())) == (MESSAGES, {1}), stream
        assert {body for body, seq in stored if seq} == {b"%d" % number for number in range(MESSAGES)}
        assert len(stored) == (2 * MESSAGES if retention == "limits" else MESSAGES), stream
        capture = account.run("stream", "info", f"DEADLETTERS_{stream}", "-j")
        assert json.loads(capture)["state"]["messages"] == 0, stream
    assert "0 to create, 0 to update, 0 to replace, 0 to remove" in account.run("plan", "-f", str(path))
