"""Requests on one plain socket: the same results as over nats-py, and nothing that nats-py should word."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from natsctl.api.errors import NatsctlError, NotAuthorisedError, UnreachableError, UsageError
from natsctl.cli.framework.output import emit_name_pages
from natsctl.client.blocking import FIRST_READ_BYTES, READ_BYTES, BlockingConnection, completed
from natsctl.client.connection import ConnectionLostError
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.one_shot import NeedsMoreError, open_plain, open_wire
from natsctl.client.servers import Target, resolve
from natsctl.client.settings import Settings
from tests.client.conftest import serving

SUBJECT = "$JS.API.STREAM.INFO.ORDERS"


def _target(url: str, timeout_s: float | None = None, **settings: Any) -> Target:
    return resolve(Settings(url=url, timeout_s=timeout_s, **settings), {"HOME": "/nowhere"})


@contextmanager
def _plain(target: Target, *, changes: bool = False) -> Iterator[Any]:
    connection = open_plain(target, "test")
    connection.changes = changes
    try:
        yield connection
    finally:
        connection.shut()


def _outcome(target: Target, *, plain: bool, wait_s: float | None = None) -> object:
    """Return the answer of a request, or the failure it ends with, on either connection."""

    async def over_nats_py() -> Any:
        async with await connect(target, name="test") as connection:
            connection.timeout_s = wait_s or connection.timeout_s
            return (await Manager(connection).stream_info("ORDERS")).raw

    try:
        if not plain:
            return asyncio.run(over_nats_py())
        with _plain(target) as connection:
            connection.timeout_s = wait_s or connection.timeout_s
            return completed(Manager(connection).stream_info("ORDERS")).raw
    except NatsctlError as failure:
        return type(failure), str(failure), failure.hint, failure.subject, failure.exit_code


@pytest.mark.both
@pytest.mark.parametrize("domain", ["", "elsewhere"])
def test_results_and_errors_of_a_server_are_those_over_nats_py(server: Any, domain: str) -> None:
    target = _target(server.url, jetstream_domain=domain)
    assert _outcome(target, plain=True) == _outcome(target, plain=False)


@pytest.mark.parametrize(
    "answer", [b'{"config": {"name": "ORDERS"}, "new": [1.5]}', b"+OK", b"[]", b'{"error": {"code": 404}}']
)
def test_an_answer_is_understood_as_over_nats_py(fake: Any, answer: bytes) -> None:
    fake.answers[SUBJECT] = answer
    with serving(fake) as url:
        assert _outcome(_target(url), plain=True) == _outcome(_target(url), plain=False)


def test_no_answer_is_worded_as_over_nats_py(fake: Any) -> None:
    with serving(fake) as url:
        ours, theirs = (_outcome(_target(url), plain=plain, wait_s=0.1) for plain in (True, False))
    assert ours == theirs
    assert "no answer on" in str(ours)


def test_a_silent_server_is_unreachable_within_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = _target(f"127.0.0.1:{silent.getsockname()[1]}", 0.1)
        with pytest.raises(UnreachableError, match=r"within 0\.1s"):
            open_plain(target, "test")


@pytest.mark.parametrize("fault", ["refused", "fatal"])
def test_a_refused_subject_and_a_lost_connection_are_left_to_nats_py(fake: Any, fault: str) -> None:
    getattr(fake, fault).add(SUBJECT)
    with serving(fake) as url, _plain(_target(url)) as connection, pytest.raises(NeedsMoreError):
        completed(connection.request(SUBJECT))


@pytest.mark.parametrize("sending", ["publish", "request"])
def test_a_message_that_was_perhaps_taken_is_not_sent_again(fake: Any, sending: str) -> None:
    fake.fatal.add(SUBJECT)
    lost = pytest.raises(ConnectionLostError, match="was lost")
    with serving(fake) as url, _plain(_target(url), changes=True) as connection, lost:
        completed(getattr(connection, sending)(SUBJECT))
    with serving(fake) as url, _plain(_target(url)) as connection, pytest.raises(NeedsMoreError):
        completed(getattr(connection, sending)(SUBJECT))


@pytest.mark.parametrize("sending", ["publish", "request"])
def test_a_message_that_was_refused_is_left_to_nats_py(fake: Any, sending: str) -> None:
    fake.refused.add(SUBJECT)
    with serving(fake) as url, _plain(_target(url), changes=True) as connection, pytest.raises(NeedsMoreError):
        completed(getattr(connection, sending)(SUBJECT))


class _Inboxes(set[str]):
    def __contains__(self, subject: object) -> bool:
        return str(subject).startswith("_INBOX.")


def test_a_message_without_an_inbox_for_its_answer_is_not_sent_again(fake: Any) -> None:
    fake.refused = _Inboxes()
    with serving(fake) as url:
        refused = pytest.raises(NotAuthorisedError, match=r"not authorised to subscribe to _INBOX\.\w+\.\*")
        with _plain(_target(url), changes=True) as connection, refused:
            completed(connection.request(SUBJECT))
        with _plain(_target(url)) as connection, pytest.raises(NeedsMoreError):
            completed(connection.request(SUBJECT))


def test_a_message_is_published_as_over_nats_py(server: Any) -> None:
    """The same message comes, with its reply subject and headers, and the server has it when `publish` returns."""

    async def heard(*, plain: bool) -> Any:
        async with await connect(_target(server.url), name="test") as connection:
            arriving = await connection.subscribe("shop.*")
            await connection.flush()
            sent: dict[str, Any] = {"reply": "answers", "headers": (("Kind", "ä"), ("Kind", "b"))}
            if plain:
                with _plain(_target(server.url), changes=True) as other:
                    completed(other.publish("shop.a", b"1\r\n2", **sent))
                    completed(other.publish("shop.b"))
                    completed(other.flush())
            else:
                await connection.publish("shop.a", b"1\r\n2", **sent)
                await connection.publish("shop.b")
            found = [await arriving.next(60), await arriving.next(60)]
            return [(one.subject, one.reply, one.body, one.headers.pairs) for one in found if one is not None]

    ours = asyncio.run(heard(plain=True))
    assert ours == asyncio.run(heard(plain=False))
    assert [one[:3] for one in ours] == [("shop.a", "answers", b"1\r\n2"), ("shop.b", "", b"")]


def test_pages_of_a_list_are_asked_for_ahead(fake: Any) -> None:
    names = "$JS.API.STREAM.NAMES"
    fake.first[names] = b'{"total": 5, "limit": 2, "streams": ["A", "B"]}'
    fake.answers[names] = b'{"total": 5, "limit": 2, "streams": ["C", "B"]}'
    with serving(fake) as url, _plain(_target(url)) as connection:
        assert completed(Manager(connection).stream_names()) == ["A", "B", "C"]
        fake.first[names] = b'{"total": 5, "limit": 2, "streams": ["A", "B"]}'
        fake.answers[names] = b'{"error": {"code": 500, "description": "boom"}}'
        with pytest.raises(NatsctlError, match="boom"):
            completed(Manager(connection).stream_names())
    assert [json.loads(body)["offset"] for _, body in fake.published] == [0, 2, 4] * 2


def test_answers_are_read_in_any_order_and_dropped_unread(fake: Any) -> None:
    fake.answers |= {"a": b"1", "b": b"2", "c": b"3"}
    with serving(fake) as url:
        wire = open_wire(_target(url), "test", 60)
        a, b, c = (wire.ask(subject, b"", b"") for subject in "abc")
        wire.forget(b)
        assert [wire.answer(reply, 60) for reply in (c, a, a)] == [(b"", b"3"), (b"", b"1"), (b"", b"1")]
        wire.flush(60)
        wire.close()


def test_names_of_a_list_that_is_read_again_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def pages(attempt: Any) -> AsyncIterator[list[str]]:
        yield ["A", "B"]
        if attempt == 1:
            raise NeedsMoreError
        yield ["C"]

    def ask(show: Any) -> int:
        with pytest.raises(NeedsMoreError):
            completed(show(1))
        return completed(show(2))

    assert emit_name_pages(ask, pages) == 3
    assert capsys.readouterr().out == "A\nB\nC\n"


@pytest.mark.parametrize("subject", ["", "a b", "a\udc80"])
def test_what_cannot_be_sent_is_left_to_nats_py(fake: Any, subject: str) -> None:
    fake.answers["b"] = b""
    with serving(fake) as url, _plain(_target(url), changes=True) as connection:
        completed(connection.request("b"))
        with pytest.raises(NeedsMoreError):
            completed(connection.request(subject))
        with pytest.raises(NeedsMoreError):
            completed(connection.request("a", bytes(2 * 1024 * 1024)))
        with pytest.raises(NeedsMoreError):
            completed(connection.publish(subject))
        with pytest.raises(NeedsMoreError):
            completed(connection.publish("a", reply="b c"))
    assert fake.published == [("b", b"")]


@pytest.mark.parametrize("tls", [False, True])
def test_a_refused_login_or_tls_that_the_server_wants_is_left_to_nats_py(fake: Any, tls: bool) -> None:
    fake.info["tls_required"], fake.login_error = tls, "" if tls else "Authorization Violation"
    with serving(fake) as url, pytest.raises(NeedsMoreError):
        open_plain(_target(url), "test")
    assert bool(fake.connects) is not tls


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("127.0.0.1:1", {}),
        ("127.0.0.1:1,127.0.0.1:2", {}),
        ("tls://127.0.0.1:1", {}),
        ("ws://127.0.0.1:1", {}),
        ("127.0.0.1:1", {"tls_first": True}),
        ("127.0.0.1:1", {"socks_proxy": "127.0.0.1:2"}),
        ("ann:secret@127.0.0.1:1", {"token": "t"}),
        ("127.0.0.1:1", {"user": "ann", "password": "op://vault/nats/password"}),
        ("127.0.0.1:1", {"token": "file:///nowhere"}),
        ("127.0.0.1:1", {"creds": "/nowhere"}),
    ],
)
def test_other_targets_are_left_to_nats_py(url: str, settings: dict[str, Any]) -> None:
    with pytest.raises(NeedsMoreError):
        open_plain(_target(url, **settings), "test")


def test_an_unreadable_secret_is_a_usage_error(fake: Any) -> None:
    with serving(fake) as url, pytest.raises(UsageError, match="token: not base64"):
        open_plain(_target(url, token="data:;base64,?"), "test")


def test_several_requests_share_an_inbox(fake: Any) -> None:
    fake.answers["a"] = b"1"
    with serving(fake) as url, _plain(_target(url, inbox_prefix="_MINE")) as connection:
        assert [completed(connection.request("a")).body for _ in range(3)] == [b"1"] * 3
    assert len(fake.subscribed) == 1
    assert fake.subscribed[0].startswith("_MINE.")


def test_one_message_is_sent_at_once_and_its_answer_read_into_a_small_buffer(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    send, read = BlockingConnection.send, BlockingConnection.read

    def counted_send(wire: BlockingConnection, data: bytes) -> None:
        calls.append(0)
        send(wire, data)

    def counted_read(wire: BlockingConnection, timeout_s: float, max_bytes: int = READ_BYTES) -> bytes:
        calls.append(max_bytes)
        return read(wire, timeout_s, max_bytes)

    fake.answers.update(a=b"1", b=bytes(4 * FIRST_READ_BYTES))
    with serving(fake) as url, _plain(_target(url)) as connection:
        monkeypatch.setattr(BlockingConnection, "send", counted_send)
        monkeypatch.setattr(BlockingConnection, "read", counted_read)
        for _ in range(3):
            completed(connection.request("a", b"body", headers=[("K", "v")]))
        assert calls == [0, FIRST_READ_BYTES] * 3
        calls.clear()
        assert completed(connection.request("b")).body == fake.answers["b"]
        assert calls[:3] == [0, FIRST_READ_BYTES, READ_BYTES]


def test_a_coroutine_that_waits_is_a_fault_of_the_program() -> None:
    with asyncio.Runner() as runner, pytest.raises(RuntimeError, match="plain connection"):
        completed(runner.get_loop().create_future())
