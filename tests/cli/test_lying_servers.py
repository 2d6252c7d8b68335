"""Every command that reads what a server sends, on servers whose answers are not what they should be."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from natsctl.cli.events import events
from natsctl.testing.process import ServerProcess
from tests.cli.conftest import clear
from tests.cli.test_every_command import ALLOWED, LEAVES, _not_json, _words
from tests.support import tiers
from tests.support.commands import Done, Run
from tests.support.lying_server import BODIES, DEEP, ESCAPE, LyingServer, one_changed
from tests.support.request_differential import Reference

CONF: Final = """
accounts { SYS { users: [{ user: s, password: p }] }, A { jetstream: enabled, users: [{ user: a, password: p }] } }
system_account: SYS
no_auth_user: a
"""
STREAMS: Final[dict[str, dict[str, Any]]] = {
    "S": {"subjects": ["s.*"]},
    "CNT": {"subjects": ["cnt.*"], "allow_msg_counter": True},
    "KV_B": {"subjects": ["$KV.B.>"], "max_msgs_per_subject": 3, "allow_rollup_hdrs": True, "allow_direct": True},
    "OBJ_O": {"subjects": ["$O.O.C.>", "$O.O.M.>"], "allow_rollup_hdrs": True, "discard": "new"},
}
MESSAGES: Final = {
    "s.a": "hello",
    "$KV.B.k": "v",
    "$O.O.C.N": "content",
    "$O.O.M.ZmlsZS50eHQ=": '{"name":"file.txt","bucket":"O","nuid":"N","size":7,"chunks":1}',
}
_OFFLINE = (
    "context", "cheat", "schema", "errors", "jwt", "auth", "completion", "cluster", "pipeline", "spark", "bench",
)  # fmt: skip
_OTHER = (
    "convert", "validate", "migrate", "latency", "sql", "reply", "service serve", "server passwd", "server mappings",
    "server repair", "stream export", "stream import", "audit analyze", "audit query",
    "audit checks", "backup verify",
)  # fmt: skip
"""Commands without a server, with files of their own, and those that end only by Ctrl-C."""
COMMANDS: Final = [
    *((name, function) for name, function in LEAVES if not name.startswith((*_OFFLINE, *_OTHER))),
    ("events --stream OBJ_O", events),
]
_OF_SYSTEM = ("server", "top", "audit")
MAX_CPU_S: Final = 10.0
"""CPU that no command needs, on a busy machine either: one that reads a list without an end takes more."""

pytestmark = pytest.mark.ours("the answers are made up, and both servers' are alike")


@pytest.fixture
def published() -> None:
    """Allow for documents that are not of their schema: with -j they are what the server sent."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("lying")
    (folder / "accounts.conf").write_text(CONF)
    with ServerProcess(folder, "natsctl", "-c", str(folder / "accounts.conf")) as process:
        yield process


@pytest.fixture
def lied(server: ServerProcess, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command behind a server that lies, with the streams above."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("content")
    clear(server)
    with closing(Reference(server.url)) as asked:
        for name, config in STREAMS.items():
            asked.ask(f"STREAM.CREATE.{name}", json.dumps({"name": name, "retention": "limits", **config}).encode())
        consumer = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
        asked.ask("CONSUMER.DURABLE.CREATE.S.C", json.dumps(consumer).encode())
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as raw:
        sent = "".join(f"PUB {subject} {len(body)}\r\n{body}\r\n" for subject, body in MESSAGES.items())
        raw.sendall(f'CONNECT {{"verbose":false}}\r\n{sent}PING\r\n'.encode())
        assert b"PONG" in b"".join(iter(lambda: raw.recv(1 << 16)[-6:], b"PONG\r\n")) + b"PONG"

    def run(words: list[str], **changes: Any) -> Done:
        login = "s:p@" if words[0] in _OF_SYSTEM else ""
        with LyingServer(server.url.replace("//", f"//{login}"), **changes) as liar:
            return command(liar.url)(*words)

    return run


def fault(done: Done, as_json: bool) -> str:
    """Why the end of a command is not as documented, or ""."""
    if done.code not in ALLOWED:
        return f"exit status {done.code}: {done.err}"
    if "unexpected" in done.err or "Traceback" in done.err:
        return done.err
    if odd := {char for char in done.out + done.err if not (char.isprintable() or char in "\n\t")}:
        return "" if as_json else f"control characters {odd}"
    if as_json and done.out:
        return _not_json(done.out)
    if as_json and done.code and "description" not in json.loads(done.err.splitlines()[-1])["error"]:
        return f"no error object: {done.err}"
    return ""


def faults(lied: Run, number: int, every: int, **changes: Any) -> list[str]:
    """Run commands behind a lying server, each `every`th of them unless at full size."""
    found = []
    for name, function in COMMANDS[number % every :: every]:
        full = [word for word in _words(name, function, "200ms") if word != "--dry-run"]
        for words in (full, [word for word in full if word != "--json"]):
            begin_s = time.process_time()
            why = fault(lied(words, **changes), "--json" in words)
            if time.process_time() - begin_s > MAX_CPU_S:
                why = f"it took {time.process_time() - begin_s:.0f} s of CPU"
            if why:
                found.append(f"natsctl {' '.join(words)}: {why}")
    return found


@pytest.mark.sized
@pytest.mark.parametrize(("number", "name"), list(enumerate(BODIES)), ids=str)
def test_an_answer_of_another_form_is_reported_in_our_words(lied: Run, number: int, name: str) -> None:
    assert faults(lied, number, tiers.sized(len(BODIES), 8), body=BODIES[name]) == []


@pytest.mark.parametrize("seed", tiers.seeds(5, 60))
def test_one_odd_value_in_each_answer_is_reported_in_our_words(lied: Run, seed: int) -> None:
    assert faults(lied, seed, 30, body=one_changed(seed)) == []


BLOCKS: Final = {
    "no end": b"NATS/1.0\r\nNats-Sequence: 1",
    "numbers": b"NATS/1.0\r\nNats-Sequence: x\r\nNats-Num-Pending: -\r\nNats-Subject: \x1b[2J\r\n\r\n",
    "time": b"NATS/1.0\r\nNats-Sequence: 1\r\nNats-Time-Stamp: 7\r\n\r\n",
    "status": b"NATS/1.0 99999999999999999999999 \x1b[2J\r\n\r\n",
    "garbage": b"\xff\x00\r\n\r\n\r\n",
    "beyond": b"NATS/1.0\r\nNats-Sequence: " + b"9" * 5000 + b"\r\nNats-Num-Pending: 1e9\r\n\r\n",
}
READERS: Final = (
    "kv get B k", "kv ls B", "kv history B k", "kv watch B --wait 50ms", "con next S C --wait 50ms", "stream view S",
    "sub s.* --stream S --count 1 --wait 50ms", "object get O file.txt --force", "object ls O", "stream get S 1",
    "counter ls", "req nobody x", "service ls",
)  # fmt: skip


@pytest.mark.parametrize("words", READERS)
@pytest.mark.parametrize("name", BLOCKS)
def test_malformed_headers_are_reported_in_our_words(lied: Run, words: str, name: str) -> None:
    done = lied([*words.split(), "--timeout", "300ms"], block=lambda _: BLOCKS[name])
    assert fault(done, False) == ""


@pytest.mark.parametrize("words", READERS)
@pytest.mark.parametrize("reply", [b"$JS.ACK.S", b"$JS.ACK.S.C.x.y.z.a.b", b"$JS.ACK.S.C.1.-1.1.1.1", b"\x1b[2J"])
def test_replies_that_are_no_acks_are_reported_in_our_words(lied: Run, words: str, reply: bytes) -> None:
    assert fault(lied([*words.split(), "--timeout", "300ms"], reply=lambda _: reply), False) == ""


@pytest.mark.parametrize("words", ["str info S", "con ls S", "kv get B k", "str ls", "stream get S 1"])
def test_messages_nobody_asked_for_change_nothing(lied: Run, words: str) -> None:
    """They come before each answer: for an unknown subscription, and for an inbox that no request has."""
    unasked = b"MSG other 99 4\r\nnone\r\n"
    plain = lied([*words.split(), "-j"])
    odd = lied(
        [*words.split(), "-j"], extra=lambda names: unasked + b"MSG %b.none %b 2\r\n{}\r\n" % tuple(names.split()[:2])
    )
    assert (plain.code, odd.code, sorted(plain.json)) == (0, 0, sorted(odd.json))


def test_an_error_line_with_escape_codes_is_shown_and_not_obeyed(lied: Run) -> None:
    """The server's PONG becomes an error, for which it would close the connection."""
    line = b"-ERR 'Authorization Violation \x1b]0;owned\x07\xe2\x80\xae'\r\n"
    for words in ("str info S", "pub s.a x", "sub s.a --count 1 --wait 50ms", "account info", "server list"):
        done = lied([*words.split(), "--timeout", "300ms"], line=lambda sent: line if sent == b"PONG\r\n" else sent)
        assert fault(done, False) == ""


@pytest.mark.parametrize("words", ["top -j --max-refresh 3 -d 100ms", "server graph --count 3 --watch 100ms"])
def test_live_views_outlive_an_unreadable_answer(lied: Run, words: str) -> None:
    """The second answer with the server's figures is cut short."""
    figures = iter(range(100))

    def cut(body: bytes) -> bytes:
        return body[:-9] if b'"in_msgs"' in body and b'"max_payload"' in body and next(figures) == 1 else body

    done = lied(words.split(), body=cut)
    assert (done.code, "VARZ" in done.err, next(figures)) == (0, True, 3)
    assert len(done.out.splitlines()) == 2 or "Server" in done.out


INFO: Final = {"server_id": "X", "version": "2.15.2", "max_payload": 1 << 20, "headers": True, "proto": 1}
INFOS: Final = [
    b"[]", b"{}", b"null", b"7", b"", DEEP, b'{"server_id":"\xff"}', b'{"max_payload":1e400}',
    b'{"max_payload":' + b"9" * 5000 + b"}",
    *(json.dumps({**INFO, **odd}).encode() for odd in (
        {"max_payload": "x"}, {"max_payload": -1}, {"connect_urls": 7}, {"connect_urls": [None, ESCAPE, "x:999999"]},
        {"nonce": []}, {"server_id": [], "version": 7}, {"headers": "yes"}, {"client_id": {}}, {"tls_required": "no"},
        {"server_name": ESCAPE},
    )),
]  # fmt: skip


@pytest.mark.parametrize("info", INFOS, ids=lambda info: ascii(info[:40]))
@pytest.mark.parametrize("words", ["str ls", "pub a b", "sub a --count 1 --wait 50ms", "rtt --count 1"])
def test_an_odd_info_is_reported_in_our_words(command: Run, info: bytes, words: str) -> None:
    def serve() -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with suppress(OSError), peer:
                    peer.settimeout(2)
                    peer.sendall(b"INFO " + info + b"\r\n")
                    while data := peer.recv(1 << 16):
                        if b"PING\r\n" in data:
                            peer.sendall(b"PONG\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        done = command(f"nats://127.0.0.1:{listener.getsockname()[1]}")(*words.split(), "--timeout", "200ms")
        listener.shutdown(socket.SHUT_RDWR)
    assert fault(done, False) == ""
