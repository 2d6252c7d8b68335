"""Names are printed page by page: the first are there while the second page is held back."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.ours("a client answers in place of the API, which is the same on any server")

PAGE = 2
CREATED = "2026-01-01T00:00:00Z"
STATE = {"messages": 0, "bytes": 0, "first_seq": 1, "first_ts": "", "last_seq": 0, "last_ts": "", "consumer_count": 0}


def stream_info(name: str) -> Any:
    return {"created": CREATED, "state": STATE, "config": {"name": name, "retention": "limits", "storage": "file"}}


def consumer_info(name: str) -> Any:
    return {"stream_name": "S", "name": name, "created": CREATED, "config": {"ack_policy": "none"}}


LISTS: dict[str, tuple[str, str, Callable[[str], Any], list[str]]] = {
    "stream ls -n": ("STREAM.NAMES", "streams", str, ["A", "B", "C", "D", "E"]),
    "kv ls -n": ("STREAM.NAMES", "streams", lambda name: f"KV_{name}", ["A", "B", "C", "D", "E"]),
    "stream template ls": ("STREAM.TEMPLATE.NAMES", "streams", str, ["A", "B", "C", "D", "E"]),
    "stream find --empty -n": ("STREAM.LIST", "streams", stream_info, ["A", "B", "C", "D", "E"]),
    "consumer ls S -n": ("CONSUMER.NAMES.S", "consumers", str, ["A", "B", "C", "D", "E"]),
    "consumer find S --pull -n": ("CONSUMER.LIST.S", "consumers", consumer_info, ["A", "B", "C", "D", "E"]),
}


class Api:
    """Answers a list below `HELD` in place of a server; every page but the first waits for `release`."""

    def __init__(self, client: RawClient, verb: str, key: str, entries: list[Any]) -> None:
        self._client = client
        self._key = key
        self._entries = entries
        self._held: list[tuple[bytes, int]] = []
        self._released = False
        self.asked: list[int] = []
        client.subscribe(f"HELD.{verb}".encode(), self._on_request)

    def _on_request(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        offset = int(json.loads(payload or b"{}").get("offset", 0))
        self.asked.append(offset)
        if offset and not self._released:
            self._held.append((reply, offset))
        else:
            self._answer(reply, offset)

    def _answer(self, reply: bytes, offset: int) -> None:
        page = {"total": len(self._entries), "offset": offset, "limit": PAGE}
        page[self._key] = self._entries[offset : offset + PAGE]  # type: ignore[assignment]  # a JSON object
        self._client.publish(reply, json.dumps(page).encode())

    def release(self) -> None:
        """Answer what was held back, in the other order, and all that comes."""
        self._released = True
        for reply, offset in reversed(self._held):
            self._answer(reply, offset)


@asynccontextmanager
async def running(
    line: str, server: ServerProcess, *more: str
) -> AsyncIterator[tuple[Api, asyncio.subprocess.Process]]:
    verb, key, entry, names = LISTS[line]
    client = await RawClient.connect(server.url)
    api = Api(client, verb, key, [entry(name) for name in names])
    await client.flush()
    words = [*line.split(), *more, "-s", server.url, "--js-api-prefix", "HELD", "--timeout", "60s"]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "natsctl", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield api, child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        await client.close()


@pytest.mark.parametrize("line", LISTS)
async def test_names_of_the_first_page_are_there_while_the_second_is_held_back(
    shared_server: ServerProcess, line: str
) -> None:
    async with running(line, shared_server) as (api, child):
        assert child.stdout is not None
        async with asyncio.timeout(60):
            first = [await child.stdout.readline() for _ in range(PAGE)]
            assert first == [b"A\n", b"B\n"]
            api.release()
            rest, errors = await child.communicate()
    assert (rest, errors, child.returncode) == (b"C\nD\nE\n", b"", 0)
    assert sorted(api.asked) == [0, 2, 4]


async def test_a_reader_that_goes_after_the_first_page_ends_the_list_quietly(shared_server: ServerProcess) -> None:
    async with running("stream ls -n", shared_server) as (api, child):
        assert child.stdout is not None
        assert child.stderr is not None
        async with asyncio.timeout(60):
            await child.stdout.readline()
            child.stdout._transport.close()  # type: ignore[attr-defined]  # a StreamReader has no close of its own
            api.release()
            errors = await child.stderr.read()
            assert (await child.wait(), errors) == (0, b"")


async def test_what_is_sorted_waits_for_every_page(shared_server: ServerProcess) -> None:
    async with running("stream ls -n", shared_server, "--reverse") as (api, child):
        api.release()
        out, _ = await child.communicate()
    assert out.split() == [b"E", b"D", b"C", b"B", b"A"]
