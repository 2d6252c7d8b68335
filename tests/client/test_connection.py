"""The connection: failures told by who must act, nothing waited for in vain."""

import asyncio
import io
from typing import Any

import pytest

from natsctl.api.errors import NotAuthorisedError, UnreachableError, UsageError
from natsctl.client.connection import Connection, Tracer
from natsctl.client.manager import Manager
from tests.client.conftest import connected


async def test_a_server_that_says_nothing_is_unreachable_within_the_timeout() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        with pytest.raises(UnreachableError, match=r"within 0\.05s"):
            await connected(f"127.0.0.1:{port}", 0.05)


async def test_a_refused_login_is_not_authorised_and_shows_no_secret(fake: Any) -> None:
    fake.login_error = "Authorization Violation"
    async with fake.running():
        with pytest.raises(NotAuthorisedError) as raised:
            await connected(fake.url, user="ann", password="secret")
    assert "secret" not in str(raised.value)
    assert raised.value.exit_code == 6
    assert (fake.connects[0]["user"], fake.connects[0]["pass"]) == ("ann", "secret")


async def test_a_refused_publish_is_told_by_flush(fake: Any) -> None:
    fake.refused.add("secret.subject")
    async with fake.running(), await connected(fake.url) as connection:
        await connection.publish("secret.subject", b"x")
        with pytest.raises(NotAuthorisedError):
            await connection.flush()


async def test_a_refused_subscription_fails_its_reader(fake: Any) -> None:
    fake.refused.add("Secret.>")
    async with fake.running(), await connected(fake.url) as connection:
        subscription = await connection.subscribe("Secret.>")
        with pytest.raises(NotAuthorisedError, match=r"subscribe to Secret\.>"):
            await subscription.next(30.0)


async def test_the_end_is_told_although_the_socket_is_not_closed_yet(fake: Any) -> None:
    fake.fatal.add("bye")
    async with fake.running(), await connected(fake.url) as connection:
        closing = asyncio.Event()
        connection._client._transport.wait_closed = closing.wait
        with pytest.raises(UnreachableError, match="lost"):
            await connection.request("bye")
        assert connection.lost
        closing.set()


async def test_no_answer_is_unreachable_after_the_timeout(fake: Any) -> None:
    async with fake.running(), await connected(fake.url) as connection:
        with pytest.raises(UnreachableError, match=r"no answer on nobody within 0\.1s"):
            await connection.request("nobody", timeout_s=0.1)


@pytest.mark.parametrize(
    ("subject", "body", "headers", "text"),
    [
        ("a", b"", {"bad key": "v"}, "eader"),
        ("", b"", None, "invalid subject"),
        ("a b", b"", None, "invalid subject"),
        ("a\r\nPUB x 0", b"", None, "invalid subject"),
        ("a", b"123456789", None, "at most 8"),
    ],
)
async def test_what_cannot_be_sent_is_a_usage_error(
    fake: Any, subject: str, body: bytes, headers: dict[str, str] | None, text: str
) -> None:
    fake.info["max_payload"] = 8
    async with fake.running(), await connected(fake.url) as connection:
        with pytest.raises(UsageError, match=text):
            await connection.publish(subject, body, headers=headers)


async def test_tls_that_was_asked_for_and_is_not_there_is_refused(fake: Any) -> None:
    async with fake.running():
        with pytest.raises(UnreachableError, match="does not offer TLS"):
            await connected(fake.url.replace("nats://", "tls://"))


async def test_trace_shows_requests_and_answers_and_no_login(fake: Any) -> None:
    shown = io.StringIO()
    fake.answers["$JS.API.INFO"] = b'{"memory":0}'
    fake.info["auth_required"] = True
    async with fake.running(), await connected(fake.url, user="ann", password="secret") as connection:
        connection.tracer = Tracer(shown)
        await Manager(connection).account_info()
    assert ">>> $JS.API.INFO\n" in shown.getvalue()
    assert '<<< $JS.API.INFO\n{"memory":0}\n' in shown.getvalue()
    assert "secret" not in shown.getvalue()


@pytest.mark.both
async def test_a_subscription_reads_every_message_up_to_its_limit(server: Any) -> None:
    async with await connected(server.url) as connection, await connected(server.url) as publisher:
        subscription = await connection.subscribe("burst", limit=500)
        await connection.flush()
        for number in range(600):
            await publisher.publish("burst", b"%d" % number, headers={"N": str(number)} if number % 2 else None)
        await publisher.flush()
        bodies = [message.body async for message in subscription]
        assert bodies == [b"%d" % number for number in range(500)]
        assert subscription.dropped == 0


@pytest.mark.both
async def test_no_responders_is_an_answer_with_status_503(server: Any) -> None:
    async with await connected(server.url) as connection:
        answer = await connection.request("nobody.here")
        assert (answer.status, answer.body) == (503, b"")


BODY = bytes(512 * 1024)
TIMES = 20


async def _publish(connection: Connection, going: asyncio.Event) -> None:
    for number in range(2000):
        await connection.publish("nobody", BODY)
        if number > 8:
            going.set()


async def test_a_cancellation_is_never_dropped(server: Any) -> None:
    async with await connected(server.url) as connection:
        for _ in range(TIMES):
            going = asyncio.Event()
            task = asyncio.create_task(_publish(connection, going))
            await going.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await connection.flush()
