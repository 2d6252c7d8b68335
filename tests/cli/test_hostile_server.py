"""Commands on a server that lies: names that lead elsewhere, text that a terminal would obey, JSON without end."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.commands import Done

Command = Callable[[str], Callable[..., Done]]
Say = Callable[[str, bytes], bytes]

Run = Callable[..., Done]

ESCAPE: Final = "\x1b]0;owned\x07\x1b[2J"
CONFIG: Final = {
    "name": "S", "subjects": ["s.>"], "retention": "limits", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1,
    "max_age": 0, "max_msgs_per_subject": -1, "max_msg_size": -1, "discard": "old", "storage": "file",
    "num_replicas": 1, "duplicate_window": 120_000_000_000,
}  # fmt: skip
ZERO: Final = "2024-01-01T00:00:00Z"
STATE: Final = {
    "messages": 1, "bytes": 10, "first_seq": 1, "first_ts": ZERO, "last_seq": 1, "last_ts": ZERO, "consumer_count": 1,
}  # fmt: skip
CONSUMER: Final = {
    "stream_name": "S", "name": "C", "created": ZERO, "delivered": {"consumer_seq": 0, "stream_seq": 0},
    "ack_floor": {"consumer_seq": 0, "stream_seq": 0}, "num_ack_pending": 0, "num_redelivered": 0, "num_waiting": 0,
    "num_pending": 0,
    "config": {"durable_name": "C", "deliver_policy": "all", "ack_policy": "explicit", "ack_wait": 30_000_000_000,
               "max_deliver": -1, "replay_policy": "instant"},
}  # fmt: skip


class Liar:
    """A server whose answers a test makes up."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        info = {"server_id": ESCAPE, "server_name": ESCAPE, "version": "2.15.2", "headers": True, "proto": 1,
                "max_payload": 1 << 20, "jetstream": True, "client_id": 1, "go": "go1.22"}  # fmt: skip
        sids: dict[bytes, bytes] = {}
        with suppress(OSError, ValueError), peer, peer.makefile("rb") as lines:
            peer.sendall(b"INFO " + json.dumps(info).encode() + b"\r\n")
            for line in lines:
                words = line.split()
                if words[:1] == [b"PING"]:
                    peer.sendall(b"PONG\r\n")
                elif words[:1] == [b"SUB"]:
                    sids[words[1].removesuffix(b"*")] = words[-1]
                elif words[:1] == [b"PUB"]:
                    body = lines.read(int(words[-1]) + 2)[:-2]
                    inbox = words[2] if len(words) == 4 else b""
                    sid = next((sid for prefix, sid in sids.items() if inbox.startswith(prefix)), b"1")
                    said = self._say(words[1].decode(), body)
                    peer.sendall(b"MSG %b %b %d\r\n%b\r\n" % (inbox, sid, len(said), said))


def naming(name: str) -> Say:
    """Answer as a server with one stream and one consumer of that name."""

    def say(subject: str, body: bytes) -> bytes:
        info = {"config": {**CONFIG, "name": name}, "created": ZERO, "state": STATE}
        consumer = {**CONSUMER, "name": name, "config": {**CONSUMER["config"], "durable_name": name}}  # type: ignore[dict-item]
        page = {"total": 1, "offset": 0, "limit": 256}
        answers: dict[str, dict[str, Any]] = {
            "STREAM.LIST": {**page, "streams": [info]},
            "STREAM.NAMES": {**page, "streams": [name]},
            "STREAM.INFO": info,
            "CONSUMER.LIST": {**page, "consumers": [consumer]},
            "CONSUMER.NAMES": {**page, "consumers": [name]},
            "CONSUMER.INFO": consumer,
        }
        none = {"error": {"code": 404, "err_code": 10059, "description": f"no {name} {ESCAPE}"}}
        return json.dumps(answers.get(".".join(subject.split(".")[2:4]), none)).encode()

    return say


@pytest.fixture
def lied(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command in a folder of its own against a server that says what `say` returns."""
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)

    def run(say: Say, *words: str) -> Done:
        with closing(Liar(say)) as liar:
            return command(liar.url)("--timeout", "5s", *words)

    yield run


def entries(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "OUT" not in path.relative_to(folder).parts[:3]}


NAMES: Final = ("../../evil", "/abs", "a/b", "..", ".", "", "\0", "a\nb", ESCAPE, "\u202e", "\ud800", "x" * 300)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize(
    "words", ["account backup OUT", "backup OUT", "str ls", "str info S", "con ls S", "con report S"]
)
def test_a_name_leads_nowhere_and_drives_no_terminal(lied: Run, tmp_path: Path, name: str, words: str) -> None:
    name = str(tmp_path / "abs" / "evil") if name == "/abs" else name
    before = entries(tmp_path)
    done = lied(naming(name), *words.split())
    assert entries(tmp_path) == before
    assert "unexpected" not in done.err
    assert not [char for char in done.out + done.err if not (char.isprintable() or char == "\n")]


def test_consumers_and_streams_whose_files_would_have_one_name_are_both_saved(natsctl: Run, tmp_path: Path) -> None:
    for stream in ("A", "A_consumer_B"):
        assert natsctl("str", "add", stream, "--subjects", stream, "--defaults").code == 0
    assert natsctl("con", "add", "A", "B", "--pull", "--defaults").code == 0
    assert natsctl("backup", str(tmp_path / "saved")).code == 0
    for stream in ("A", "A_consumer_B"):
        assert natsctl("str", "rm", stream, "-f").code == 0
    assert natsctl("restore", str(tmp_path / "saved")).code == 0
    assert natsctl("str", "ls", "-n").out == "A\nA_consumer_B\n"
    assert natsctl("con", "ls", "A", "-n").out == "B\n"


def test_json_without_end_is_an_answer_that_is_not_understood(lied: Run) -> None:
    body = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    done = lied(lambda subject, _: body, "str", "info", "S")
    assert (done.code, "is not JSON" in done.err) == (1, True), done.err
