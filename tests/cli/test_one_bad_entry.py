"""Lists with one entry that cannot be read: the others are shown, it is reported, and the exit status is 1."""

import json
import socket
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from natsctl.testing.process import ServerProcess
from tests.support.commands import Done, Run
from tests.support.lying_server import LyingServer, json_only

METADATA: Final = [
    "garbage", "", "[]", "null", "{}", '{"name":7}', '{"name":"bad","nuid":"N","size":"x"}', '{"name":"bad","size":-1}',
    '{"name":"bad","size":1e400}', '{"name":"bad","options":[]}', '{"name":"bad","headers":{"a":7}}',
    '{"name":"\\ud800"}', '{"name":"bad","chunks":' + "9" * 5000 + "}", '{"a":' * 100_000,
]  # fmt: skip


@pytest.fixture
def bucket(natsctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands on a bucket with the objects a, b and c."""
    monkeypatch.chdir(tmp_path)
    assert natsctl("object", "add", "O").code == 0
    for name in "abc":
        Path(name).write_text(name)
        assert natsctl("object", "put", "O", name, "-f").code == 0
    return natsctl


def damage(natsctl: Run, metadata: str, name: str = "b") -> None:
    subject = f"$O.O.M.{urlsafe_b64encode(name.encode()).decode()}"
    done = natsctl("pub", subject, "-J", "-q", "--no-templates", "-H", "Nats-Rollup:sub", stdin=metadata.encode())
    assert done.code == 0, done.err


def check(natsctl: Run, words: str, names: list[str], bad: str) -> None:
    """Hold a list to the names of its good entries, without and with -j; stderr names the bad one."""
    done = natsctl(*words.split(), "-j")
    assert (done.code, [one.get("name") or one["config"]["name"] for one in done.json]) == (1, names), done.err
    assert bad in done.error["description"]
    done = natsctl(*words.split())
    assert (done.code, bad in done.err) == (1, True), done.err
    assert all(name in done.out for name in names)


@pytest.mark.parametrize("metadata", METADATA, ids=lambda text: text[:30])
def test_object_lists_show_the_others(bucket: Run, metadata: str) -> None:
    damage(bucket, metadata)
    check(bucket, "object ls O", ["a", "c"], "object b is not understood")
    watched = bucket("object", "watch", "O", "--wait", "100ms", "-j")
    assert (watched.code, [one["name"] for one in watched.lines]) == (1, ["a", "c"])
    watched = bucket("object", "watch", "O", "--wait", "100ms")  # reported once, at once
    assert (watched.code, watched.err.count("object b is not understood")) == (1, 1), watched.err
    assert watched.err.index("object b") < watched.err.index("1 fault reported above")
    assert bucket("object", "get", "O", "a", "-O", "-").out == "a"


@pytest.mark.parametrize("metadata", METADATA[:8], ids=lambda text: text[:30])
def test_a_damaged_object_can_be_replaced_and_deleted(bucket: Run, metadata: str) -> None:
    damage(bucket, metadata)
    assert bucket("object", "put", "O", "b", "-f").code == 0
    assert bucket("object", "get", "O", "b", "-O", "-").out == "b"
    damage(bucket, metadata)
    assert bucket("object", "rm", "O", "b", "-f").code == 0
    done = bucket("object", "ls", "O", "-n")
    assert (done.code, done.out) == (0, "a\nc\n")


def test_chunks_of_a_damaged_object_are_removed_with_it_where_they_are_known(bucket: Run) -> None:
    stored = bucket("object", "info", "O", "b", "-j").json
    damage(bucket, json.dumps({**stored, "size": "x"}))
    assert bucket("object", "rm", "O", "b", "-f", "-j").json["purged"] == 1


class Responder:
    """Answers to $SRV requests as the test says, next to a service that is well."""

    def __init__(self, url: str, answers: list[bytes]) -> None:
        self._socket = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        self._socket.sendall(b'CONNECT {"verbose":false}\r\nSUB $SRV.> 1\r\nPING\r\n')
        self._lines = self._socket.makefile("rb")
        while self._lines.readline() != b"PONG\r\n":
            pass
        self._answers = answers
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for line in self._lines:
            if line.startswith(b"MSG"):
                reply = line.split()[3]
                for body in self._answers:
                    self._socket.sendall(b"PUB %b %d\r\n%b\r\n" % (reply, len(body), body))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._lines.close()
        self._socket.close()


WELL: Final = (
    b'{"name":"well","id":"W","version":"1.0.0","started":"2026-01-01T00:00:00Z",'
    b'"endpoints":[{"name":"echo","subject":"well.echo"}]}'
)
ILL: Final = [b"garbage", b"", b"[]", b"{}", WELL.replace(b'"W"', b"7"), WELL.replace(b'"1.0.0"', b"null")]


def test_bad_responders_hide_no_service(natsctl: Run, shared_server: ServerProcess) -> None:
    responder = Responder(shared_server.url, [*ILL, WELL])
    try:
        check(natsctl, "service ls", ["well"], "is not understood")
        check(natsctl, "service ping", ["well"], "is not understood")
        for words in ("service stats well", "service info well"):
            for flag in ((), ("-j",)):
                done = natsctl(*words.split(), *flag)
                assert (done.code, "W" in done.out) == (1, True), done.err
                faults = done.err.count("is not understood")  # some ask for information and statistics
                assert faults and faults % len(ILL) == 0, done.err
    finally:
        responder.close()


@pytest.fixture
def changed(
    shared_server: ServerProcess, natsctl: Run, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Runs a command behind a server that changes its answers."""
    monkeypatch.chdir(tmp_path)

    def run(change: Callable[[Any], Any], *words: str) -> Done:
        with LyingServer(shared_server.url, json_only(change)) as liar:
            return command(liar.url)(*words)

    yield run


LISTS: Final = {
    "stream ls": "streams", "stream report": "streams", "con ls S": "consumers", "con report S": "consumers",
    "kv ls": "streams", "object ls": "streams", "backup folder": "streams", "counter ls": "streams",
    "stream find": "streams", "stream ls --wide": "streams", "con ls S --wide": "consumers",
}  # fmt: skip
SPARING: Final = ("stream ls", "con ls S", "kv ls", "object ls")
"""Lists that read only the fields that they show."""
DAMAGE: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "config": lambda entry: {**entry, "config": 7},
    "created": lambda entry: {**entry, "created": []},
    "number": lambda entry: 7,
    "nothing": lambda entry: None,
    "field": lambda entry: {**entry, "config": {**entry["config"], "max_deliver": "x", "max_msgs": {}}},
}


@pytest.mark.parametrize("words", LISTS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_lists_of_the_api_show_the_others(natsctl: Run, changed: Run, words: str, damage: str) -> None:
    setup = (
        "stream add S --subjects s", "stream add T --subjects t", "con add S C1 --pull", "con add S C2 --pull",
        "kv add K1", "kv add K2", "object add O1", "object add O2", "stream add N --subjects n --allow-counter",
    )  # fmt: skip
    for line in setup:
        assert natsctl(*line.split()).code == 0
    key = LISTS[words]
    bad = {"kv": "KV_K1", "object": "OBJ_O1", "con": "C1"}.get(words.split()[0], "T")
    good = {"kv": "K2", "object": "O2", "con": "C2", "counter": "N"}.get(words.split()[0], "S")

    def change(answer: dict[str, Any]) -> dict[str, Any]:
        if isinstance(answer.get(key), list) and answer[key] and isinstance(answer[key][0], dict):
            answer[key] = [
                DAMAGE[damage](entry) if bad in (entry.get("name"), entry["config"].get("name")) else entry
                for entry in answer[key]
            ]
        return answer

    done = changed(change, *words.split())
    is_whole = damage == "field" and words in SPARING
    assert (done.code, "is not understood" in done.err) == ((0, False) if is_whole else (1, True)), done.err
    assert not is_whole or bad.rpartition("_")[2] in done.out
    assert good in done.out + done.err or words.startswith("counter")


@pytest.mark.parametrize("words", ["stream ls -n", "con ls S -n"])
def test_names_that_are_none_are_left_out(natsctl: Run, changed: Run, words: str) -> None:
    for line in ("stream add S --subjects s", "con add S C --pull"):
        assert natsctl(*line.split()).code == 0
    key = "consumers" if words.startswith("con") else "streams"

    def change(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, key: [7, "S", ["x"]]} if key in answer else answer

    done = changed(change, *words.split())
    assert (done.code, done.out, done.err.count("is not understood")) == (1, "S\n", 2)


@pytest.mark.parametrize("command", ["stream-check", "consumer-check"])
def test_checks_of_copies_leave_a_bad_server_out(natsctl: Run, command: str) -> None:
    consumer = {"name": "C", "config": {}, "delivered": {}, "ack_floor": {}}
    stream = {"name": "S", "state": {}, "cluster": {}, "consumer_detail": [consumer]}
    good = {"account_details": [{"name": "A", "stream_detail": [stream]}]}
    answers = [
        {"server": {"id": name, "name": name}, "data": data}
        for name, data in (("N1", good), ("N2", {"account_details": [7]}))
    ]
    done = natsctl("server", command, "--stdin", "-j", stdin=json.dumps(answers).encode())
    assert (done.code, [one["server"] for one in done.json]) == (1, ["N1"]), done.err
    assert "Server N2 is not understood" in done.error["description"]


BAD: Final = (
    b'{"server":{"id":"BAD","name":"bad"},'
    b'"statsz":{"sent":{"msgs":"x"},"cpu":["x"],"mem":"x","connections":{"a":1},"jetstream":7}}'
)


@pytest.mark.parametrize(
    ("words", "last"),
    [(f"server watch {what} --count 2 --every 100ms", "1 fault reported above") for what in ("servers", "jetstream")]
    + [("server list 3 --timeout 1s", "2 of 3 servers answered")],
)
def test_a_bad_server_is_reported_once_and_before_other_errors(
    tmp_path: Path, command: Run, words: str, last: str
) -> None:
    (tmp_path / "c.conf").write_text("accounts { SYS { users: [{ user: s, password: p }] } }\nsystem_account: SYS\n")
    with (
        ServerProcess(tmp_path, "natsctl", "-c", str(tmp_path / "c.conf")) as server,
        LyingServer(
            server.url.replace("//", "//s:p@"),
            extra=lambda names: b"MSG %b %d\r\n%b\r\n" % (names, len(BAD), BAD) if b"INBOX" in names else b"",
        ) as liar,
    ):
        done = command(liar.url)(*words.split())
        assert done.err.count("Server bad is not understood") == 1, done.err
        assert 0 < done.err.index("Server bad") < done.err.index(last)
        assert done.code == (5 if "list" in words else 1)
