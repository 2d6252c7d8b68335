"""Clients of the kill loop and the journal in which they record what was acknowledged.

Publishers keep a window of unacked messages, a worker double-acks, an eraser writes and erases keys. The journal is a
file outside the server that is synced; what each message must hold follows from its number.
"""

import asyncio
import os
import random
import zlib
from pathlib import Path
from typing import Any, Final

import orjson

from natsctl.api.errors import ErrCode
from tests.support.raw_client import RawClient


def expected_payload(publisher: int, number: int) -> bytes:
    """Return the payload of a publisher's message: its name, and filling of a length that depends on it."""
    name = b"%d:%d:" % (publisher, number)
    mark = zlib.crc32(name)
    return name + (b"%08x" % mark) * (4 + mark % 40)


def read_name(payload: bytes) -> tuple[int, int] | None:
    """Return publisher and number of a payload, None when it is not one of ours byte for byte."""
    parts = payload.split(b":", 2)
    if len(parts) != 3 or not parts[0].isdigit() or not parts[1].isdigit():
        return None
    publisher, number = int(parts[0]), int(parts[1])
    return (publisher, number) if payload == expected_payload(publisher, number) else None


class Journal:
    """Acks and confirmations in the order of their arrival; `flush` writes and syncs what came since the last one."""

    def __init__(self, path: Path) -> None:
        """Start a new journal at `path`."""
        self.path = path
        self.acks: dict[int, tuple[int, int]] = {}
        self.confirmed: set[int] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._lines: list[bytes] = []

    def acked(self, publisher: int, number: int, seq: int) -> None:
        """Note that the server acknowledged a message under `seq`."""
        self.acks[seq] = (publisher, number)
        self._line(b"A %d %d %d\n" % (publisher, number, seq))

    def confirm(self, seq: int) -> None:
        """Note that the server confirmed the double ack of stream sequence `seq`."""
        self.confirmed.add(seq)
        self._line(b"C %d\n" % seq)

    def flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            os.write(self._file, b"".join(lines))
            os.fdatasync(self._file)

    def close(self) -> None:
        self.flush()
        os.close(self._file)

    def load(self) -> dict[int, tuple[int, int]]:
        self.flush()
        lines = [line.split() for line in self.path.read_bytes().splitlines()]
        return {int(line[3]): (int(line[1]), int(line[2])) for line in lines if line[0] == b"A"}

    def _line(self, line: bytes) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.flush)
        self._lines.append(line)


WINDOW: Final = 32
"""Unacked messages of one publisher."""

FETCH: Final = 200
"""Messages of one request of the worker."""

REPEAT_WITHIN_NS: Final = 3_600_000_000_000
"""Duplicate window of the streams whose publishers repeat: longer than several starts on a busy machine take."""


class Publisher:
    """A publisher of numbered messages over one connection after another, with a journal of their acks."""

    def __init__(self, number: int, journal: Journal, subject: bytes, repeats: bool) -> None:
        """Prepare publisher `number`; with `repeats` it sends ids, and sends again what was not acked."""
        self.number, self.subject, self.repeats = number, subject, repeats
        self.next_number = 0
        self.errors: list[bytes] = []
        self._journal = journal
        self._outstanding: dict[int, None] = {}
        self._client: RawClient | None = None
        self._filling = False

    @property
    def outstanding(self) -> int:
        return len(self._outstanding)

    def start(self, client: RawClient, *, fill: bool = True) -> None:
        """Continue over a new connection; without `fill` only repetitions are sent."""
        self._client = client
        self._filling = fill
        client.subscribe(b"_INBOX.kill.%d.*" % self.number, self._acked)
        if self.repeats:
            for number in self._outstanding:
                self._send(number)
        else:
            self._outstanding.clear()
        while fill and len(self._outstanding) < WINDOW:
            self._send_next()

    def _send_next(self) -> None:
        number = self.next_number
        self.next_number += 1
        self._outstanding[number] = None
        self._send(number)

    def _send(self, number: int) -> None:
        assert self._client is not None
        header = b"NATS/1.0\r\nNats-Msg-Id: %d-%d\r\n\r\n" % (self.number, number) if self.repeats else b""
        reply = b"_INBOX.kill.%d.%d" % (self.number, number)
        self._client.publish(self.subject, expected_payload(self.number, number), reply, header)

    def _acked(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        number = int(subject.rpartition(b".")[2])
        self._outstanding.pop(number, None)
        answer = orjson.loads(payload) if payload else {}
        if "seq" in answer and "error" not in answer:
            self._journal.acked(self.number, number, answer["seq"])
        else:
            self.errors.append(payload or header)
        if self._filling and len(self._outstanding) < WINDOW:
            self._send_next()


class Worker:
    """A reader of a durable pull consumer that double-acks each message, and records confirmed ones that return."""

    def __init__(self, journal: Journal, stream: bytes, consumer: bytes) -> None:
        """Prepare; `returned` gathers confirmed sequences that were delivered again."""
        self.returned: list[int] = []
        self.delivered: dict[int, bytes] = {}
        """Payload by sequence of everything that came; an ack was sent for each."""
        self._next = b"$JS.API.CONSUMER.MSG.NEXT.%s.%s" % (stream, consumer)
        self._inbox = b"_INBOX.work.%s.%s" % (stream, consumer)
        self._journal = journal
        self._client: RawClient | None = None
        self._missing = 0

    def start(self, client: RawClient) -> None:
        self._client = client
        client.subscribe(self._inbox + b".next", self._delivered)
        client.subscribe(self._inbox + b".ack.*", self._confirmed)
        self._fetch()

    def _fetch(self) -> None:
        assert self._client is not None
        self._missing = FETCH
        body = orjson.dumps({"batch": FETCH, "expires": 500_000_000})
        self._client.publish(self._next, body, self._inbox + b".next")

    def _delivered(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        assert self._client is not None
        if not reply:
            asyncio.get_running_loop().call_later(0.02, self._fetch)  # a status: this request has ended
            return
        seq = int(reply.split(b".")[5])
        if seq in self._journal.confirmed:
            self.returned.append(seq)
        self.delivered[seq] = payload
        self._client.publish(reply, b"+ACK", b"%s.ack.%d" % (self._inbox, seq))
        self._missing -= 1
        if not self._missing:
            self._fetch()

    def _confirmed(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        if not header:  # a 503 has one: the ack had no subscriber
            self._journal.confirm(int(subject.rpartition(b".")[2]))


class Eraser:
    """A writer of keys in a compressed stream that keeps one message of each; it erases some of them again.

    Both go on at the same time, so that segments are written anew, compressed and unlinked under the erasures.
    """

    STREAM: Final = b"ERASE"
    CONFIG: Final = {
        "name": "ERASE",
        "subjects": ["ERASE.*"],
        "max_msgs_per_subject": 1,
        "compression": "s2",
    }
    KEYS: Final = 1500
    PAYLOAD_BYTES: Final = 8000
    ERASE_EVERY: Final = 8
    """Acks from one erasure to the next."""
    CHECKED: Final = 300
    """Erased messages and keys that are looked at after each start."""

    def __init__(self, seed: int) -> None:
        """Prepare; `errors` gathers answers that no healthy stream gives."""
        self.errors: list[bytes] = []
        self.acked = 0
        self.erased: dict[int, bytes] = {}
        """Payload by sequence of the messages whose erasure was confirmed."""
        self._random = random.Random(seed)
        self._newest: dict[int, int] = {}
        self._payloads: dict[int, bytes] = {}
        self._sent: dict[int, tuple[int, bytes]] = {}
        self._asked: dict[int, int] = {}
        """Key by sequence of the messages whose erasure was asked for."""
        self._replaced: dict[int, int] = {}
        """Key by sequence of those that were not there any more: a later message must have taken their place."""
        self._number = 0
        self._client: RawClient | None = None

    def start(self, client: RawClient) -> None:
        """Continue over a new connection; requests without an answer stay unknown."""
        self._client = client
        self._sent.clear()
        client.subscribe(b"_INBOX.erase.ack.*", self._was_acked)
        client.subscribe(b"_INBOX.erase.gone.*", self._was_erased)
        for _ in range(WINDOW // 2):
            self._send()

    def stop(self) -> None:
        self._client = None

    def _send(self) -> None:
        if self._client is None:
            return
        self._number += 1
        key, payload = self._random.randrange(self.KEYS), self._random.randbytes(self.PAYLOAD_BYTES)
        self._sent[self._number] = key, payload
        self._newest.pop(key, None)  # whether this one takes its place is unknown until the ack
        self._client.publish(b"%s.%d" % (self.STREAM, key), payload, b"_INBOX.erase.ack.%d" % self._number)

    def _was_acked(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        key, sent = self._sent.pop(int(subject.rpartition(b".")[2]), (-1, b""))
        answer = orjson.loads(payload) if payload else {}
        if "seq" not in answer or "error" in answer:
            self.errors.append(payload or header)
        elif key >= 0:
            self.acked += 1
            self._newest[key] = answer["seq"]
            self._payloads[answer["seq"]] = sent
            if len(self._payloads) > 2 * self.KEYS:
                self._payloads.pop(next(iter(self._payloads)))
            if self.acked % self.ERASE_EVERY == 0:
                self._erase()
        self._send()

    def _erase(self) -> None:
        """Erase the message of a key, most often one from long ago."""
        if self._client is None or not self._newest:
            return
        key = min(self._random.sample(sorted(self._newest), min(3, len(self._newest))), key=self._newest.__getitem__)
        seq = self._newest.pop(key)
        self._asked[seq] = key
        body = orjson.dumps({"seq": seq})
        self._client.publish(b"$JS.API.STREAM.MSG.DELETE." + self.STREAM, body, b"_INBOX.erase.gone.%d" % seq)

    def _was_erased(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        seq, answer = int(subject.rpartition(b".")[2]), orjson.loads(payload) if payload else {}
        if answer.get("success"):
            self.erased[seq] = self._payloads.get(seq, b"")
        elif answer.get("error", {}).get("err_code") == ErrCode.SEQUENCE_NOT_FOUND:
            self._replaced[seq] = self._asked[seq]
        else:
            self.errors.append(payload or header)

    async def check(self, client: RawClient) -> list[str]:
        """Return what is wrong with the stream after a start: keys that are lost, erased messages that are back."""
        wrong: list[str] = []
        for seq in list(self.erased)[-self.CHECKED :]:
            answer = await self._get(client, {"seq": seq})
            if "error" not in answer:
                wrong.append(f"{seq} is back after its erasure was confirmed")
        for seq, key in self._replaced.items():
            answer = await self._get(client, {"last_by_subj": f"ERASE.{key}"})
            erased_later = any(later > seq and its_key == key for later, its_key in self._asked.items())
            if answer.get("message", {}).get("seq", 0) <= seq and not erased_later:
                wrong.append(f"{seq} of key {key} was acked and is gone, there is {answer}")
        for key, seq in self._random.sample(sorted(self._newest.items()), min(self.CHECKED, len(self._newest))):
            answer = await self._get(client, {"last_by_subj": f"ERASE.{key}"})
            if answer.get("message", {}).get("seq", 0) < seq:
                wrong.append(f"key {key} was acked as {seq}, there is {answer}")
        return wrong

    async def _get(self, client: RawClient, body: dict[str, object]) -> dict[str, Any]:
        _, answer = await client.request(b"$JS.API.STREAM.MSG.GET." + self.STREAM, orjson.dumps(body), timeout_s=60)
        value: dict[str, Any] = orjson.loads(answer)
        return value

    def found_in(self, folder: Path) -> list[str]:
        """Return the erased messages whose bytes are still in a file below `folder`."""
        files = [path.read_bytes() for path in sorted(folder.rglob("*.seg"))]
        return [
            f"{seq} is still on the disk"
            for seq, payload in self.erased.items()
            if payload and any(payload[: self.PAYLOAD_BYTES // 2] in data for data in files)
        ]
