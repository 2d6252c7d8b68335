"""The same requests to natsctl's engine in memory and to the reference server over TCP: the answers must be the same.

`requests/*.jsonl` holds one request per line: subject, body, header block. They build on each other in order.
"""

from __future__ import annotations

import json
import re
import select
import socket
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from natsctl.testing.machine import Machine
from natsctl.testing.process import ServerProcess
from natsctl.wire import ops
from natsctl.wire.ops import encode_pub
from natsctl.wire.parser import ServerParser
from tests.support.differential import normalised

REQUESTS: Final = Path(__file__).with_name("requests")
VARYING: Final = {"created", "ts", "cluster", "first_ts", "last_ts", "time", "api", "last_active"}
"""Keys whose values differ from run to run."""
QUIET_S: Final = 0.02
"""How long to listen for an answer more than the engine gave; longer where it gave none."""
SILENT_S: Final = 0.3
PATIENCE_S: Final = 10.0
"""How long to wait for as many answers as the engine gave."""


class InMemory:
    """A client of natsctl's engine."""

    def __init__(self) -> None:
        self._wire = Machine().connect()
        self._number = 0

    def ask(self, subject: str, body: bytes, header: bytes) -> list[tuple[bytes, bytes]]:
        """Return every answer to one request."""
        self._number += 1
        sid = self._wire.subscribe(f"_INBOX.{self._number}")
        self._wire.publish(subject, body, f"_INBOX.{self._number}", header)
        self._wire.unsubscribe(sid)
        return [(m.header, m.payload) for m in self._wire.take(sid)]


class OverTcp:
    """A client of a real server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self._parser = ServerParser()
        self._number = 0
        self._socket.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.> 1\r\n')

    def ask(self, subject: str, body: bytes, header: bytes, expected: int) -> list[tuple[bytes, bytes]]:
        """Return every answer to one request: read until there are as many as expected and nothing comes any more."""
        self._number += 1
        inbox = b"_INBOX.%d" % self._number
        self._socket.sendall(encode_pub(subject.encode(), inbox, header, body))
        answers: list[tuple[bytes, bytes]] = []
        quiet_s = QUIET_S if expected else SILENT_S
        while select.select([self._socket], [], [], PATIENCE_S if len(answers) < expected else quiet_s)[0]:
            heard = self._parser.feed(self._socket.recv(1 << 20))
            answers += [(op[4], op[5]) for op in heard if op[0] == ops.MSG and op[1] == inbox]
        return answers

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def comparable(value: Any) -> Any:
    """Return JSON without what differs from run to run."""
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if not isinstance(value, dict):
        return normalised(value) if isinstance(value, str) else value
    return {key: "varies" if key in VARYING else comparable(item) for key, item in value.items()}


def shown(answers: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Return answers as texts that can be compared, key order included."""
    texts = []
    for header, payload in answers:
        lines = re.sub(rb"(Nats-Time-Stamp: )[^\r]*", rb"\1varies", normalised(header)).decode()
        try:
            texts.append((lines, json.dumps(comparable(json.loads(payload)))))
        except ValueError:
            texts.append((lines, payload.decode("latin-1")))
    return texts


@pytest.mark.reference
@pytest.mark.reference
@pytest.mark.parametrize("name", sorted(path.stem for path in REQUESTS.glob("*.jsonl")))
def test_both_answer_the_same(name: str, tmp_path: Path) -> None:
    requests = [json.loads(line) for line in (REQUESTS / f"{name}.jsonl").read_text().splitlines()]
    assert len(requests) > 50
    differences = []
    with ServerProcess(tmp_path / "reference", "reference") as process:
        # It removes the folder of the last stream's account late, under the feet of the next one: but not a full one.
        streams = process.store_dir / "jetstream" / "$G" / "streams"
        streams.mkdir(parents=True)
        (streams / "kept").touch()
        reference, ours = OverTcp(process.url), InMemory()
        for subject, body, header in requests:
            asked = (subject, body.encode("latin-1"), header.encode("latin-1"))
            answers = ours.ask(*asked)
            expected, got = shown(reference.ask(*asked, len(answers))), shown(answers)
            if "STREAM.DELETE" in subject:
                process.await_removals()
            if expected != got:
                differences.append(f"{subject} {body[:200]}\n  reference {expected}\n  natsctl   {got}")
        reference.close()
    assert not differences, "\n".join(differences)
