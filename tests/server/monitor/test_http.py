import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import h11
import pytest

from natsctl.server.monitor import http
from natsctl.server.monitor.http import HttpPage, HttpRequest, HttpServer

PATIENCE_S = 30.0


def answer(request: HttpRequest) -> HttpPage:
    if request.target == "/raise":
        raise RuntimeError("no page")
    if request.target == "/break":
        return HttpPage(200, broken())
    if request.target == "/long":
        return HttpPage(200, (b"x" * 1000 for _ in range(1000)))
    if request.target == "/short":
        return HttpPage(200, iter((b"a", b"", b"b")))
    return HttpPage(200, f"{request.method} {request.target}".encode(), "text/plain")


def broken() -> Iterator[bytes]:
    yield b"x" * http.CHUNK_BYTES
    raise RuntimeError("half a page")


@asynccontextmanager
async def serving(faults: list[str] | None = None) -> AsyncIterator[int]:
    told = faults if faults is not None else []
    server = HttpServer("127.0.0.1", -1, answer, lambda where, error: told.append(f"{where}: {error}"))
    await server.start()
    try:
        yield server.port
    finally:
        await server.stop()


async def talk(port: int, data: bytes, most_s: float = PATIENCE_S) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), most_s)
    finally:
        writer.close()


def get(path: str, *more: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: here", *more, "", ""]).encode()


LAST = "Connection: close"


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with serving() as port:
        text = await talk(port, b"".join(get(f"/{number}") for number in range(20)) + get("/last", LAST))
    assert text.count(b"HTTP/1.1 200 OK") == 21
    assert [text.index(b"GET /%d" % number) for number in range(20)] == sorted(
        text.index(b"GET /%d" % number) for number in range(20)
    )


async def test_a_short_body_made_of_pieces_has_a_length_and_a_long_one_is_chunked() -> None:
    async with serving() as port:
        short, long = await talk(port, get("/short", LAST)), await talk(port, get("/long", LAST))
    assert b"Content-Length: 2\r\n" in short
    assert short.endswith(b"\r\n\r\nab")
    assert b"transfer-encoding: chunked" in long.lower()
    assert long.count(b"x") == 1_000_000


async def test_http_1_0_gets_a_long_body_until_the_connection_closes() -> None:
    async with serving() as port:
        text = await talk(port, b"GET /long HTTP/1.0\r\n\r\n")
    head, _, body = text.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert body == b"x" * 1_000_000


async def test_head_has_no_body() -> None:
    async with serving() as port:
        for path in ("/page", "/long", "/short"):
            text = await talk(port, get(path, LAST, method="HEAD"))
            assert text.startswith(b"HTTP/1.1 200 OK\r\n")
            assert text.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 80_000, b"431 Request Header Fields Too Large"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", b"501 Not Implemented"),
    ],
)
async def test_what_is_no_request_is_told_so_and_cut_off(data: bytes, status: bytes) -> None:
    async with serving() as port:
        assert (await talk(port, data)).startswith(b"HTTP/1.1 %b\r\n" % status)


async def test_a_body_that_nobody_reads_does_not_end_the_connection_unless_it_is_large() -> None:
    async with serving() as port:
        small = get("/one", "Content-Length: 5", method="POST") + b"12345" + get("/two", LAST)
        assert (await talk(port, small)).count(b"HTTP/1.1 200 OK") == 2
        large = get("/one", "Content-Length: 9999999", method="POST") + b"x" * 200_000 + get("/two", LAST)
        assert (await talk(port, large)).count(b"HTTP/1.1 200 OK") == 1


async def test_a_page_that_fails_is_told_to_the_log_and_costs_its_connection_alone() -> None:
    faults: list[str] = []
    async with serving(faults) as port:
        assert (await talk(port, get("/raise", LAST))).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert b"\r\n0\r\n\r\n" not in await _until_cut(port)
        assert (await talk(port, get("/still-here", LAST))).endswith(b"GET /still-here")
    assert faults == ["the answer to GET /raise: no page", "the answer to GET /break: half a page"]


async def _until_cut(port: int) -> bytes:
    try:
        return await talk(port, get("/break"))
    except ConnectionError:
        return b""


async def test_who_is_slow_with_a_request_is_cut_off() -> None:
    with patch.object(http, "HEAD_S", 0.05):
        async with serving() as port:
            assert await talk(port, b"GET / HT") == b""
            assert await talk(port, b"") == b""


async def test_of_many_heads_at_once_one_is_parsed_a_round_of_the_loop_and_a_body_in_little_pieces() -> None:
    rounds, parsed, events = 0, list[int](), list[int]()

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    class Wire(h11.Connection):
        def next_event(self) -> Any:
            event = super().next_event()
            (parsed if isinstance(event, h11.Request) else events).append(rounds)
            return event

    body = b"1\r\na\r\n" * 6_000 + b"0\r\n\r\n"
    data = get("/a", "Transfer-Encoding: chunked", method="POST") + body + get("/b", *["A:"] * 1_000, LAST)
    counter = asyncio.create_task(count())
    with patch.object(h11, "Connection", Wire):
        async with serving() as port:
            texts = await asyncio.gather(*(talk(port, data) for _ in range(10)))
    counter.cancel()
    assert [text.count(b"HTTP/1.1 200 OK") for text in texts] == [2] * 10
    assert len(parsed) == len(set(parsed)) == 20
    assert max(Counter(events).values()) <= http.READ_BYTES // 6 + 2


async def test_who_does_not_read_holds_a_chunk_and_is_cut_off() -> None:
    made = 0

    def endless() -> Iterator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield b"x" * http.CHUNK_BYTES

    server = HttpServer("127.0.0.1", -1, lambda request: HttpPage(200, endless()))
    await server.start()
    with patch.object(http, "WRITE_S", 0.2):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(get("/"))
        async with asyncio.timeout(PATIENCE_S):
            before = -1
            while before != made or not made:
                before = made
                for _ in range(30):
                    await asyncio.sleep(0.01)
        await asyncio.wait_for(_drained(reader), PATIENCE_S)
        writer.close()
        assert made == before
    await server.stop()


async def _drained(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(1 << 20):
            pass
    except ConnectionError:
        pass


async def test_a_full_listener_closes_who_is_idle_for_longest_or_refuses_the_newest() -> None:
    with patch.object(http, "MAX_CONNECTIONS", 2):
        async with serving() as port:
            first = await asyncio.open_connection("127.0.0.1", port)
            first[1].write(get("/a"))
            await first[0].readuntil(b"/a")
            second = await asyncio.open_connection("127.0.0.1", port)
            second[1].write(get("/b"))
            await second[0].readuntil(b"/b")
            assert (await talk(port, get("/c", LAST))).endswith(b"GET /c")
            assert await asyncio.wait_for(first[0].read(), PATIENCE_S) == b""
            for _, writer in (first, second):
                writer.close()


async def test_stopping_ends_idle_connections() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/a"))
        await reader.readuntil(b"/a")
    assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
    writer.close()
