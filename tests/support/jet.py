"""A JetStream client of a `Machine`: create streams and consumers, publish, pull, acknowledge, inspect."""

from typing import Any, Final

import msgspec

from tests.support.machine import Machine, Message, Wire

SECOND: Final = 1_000_000_000


class Jet:
    """A client of a machine; every call returns when the machine is idle again."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine or Machine()
        self.wire: Wire = self.machine.connect()

    # Streams and consumers

    def api(self, verb: str, body: object = b"") -> Any:
        return self.wire.request(f"$JS.API.{verb}", body)

    def stream(self, name: str = "S", *subjects: str, **config: Any) -> Any:
        """Create a stream and return its info; its subject is `s.>` unless others are given."""
        body = {"name": name, "subjects": list(subjects) or ["s.>"], **config}
        return ok(self.api(f"STREAM.CREATE.{name}", body))

    def consumer(self, name: str = "C", stream: str = "S", **config: Any) -> Any:
        """Create a durable consumer, with explicit acks by default, and return its info."""
        config = {"durable_name": name, "ack_policy": "explicit", **config}
        return ok(self.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", {"stream_name": stream, "config": config}))

    def ephemeral(self, stream: str = "S", **config: Any) -> Any:
        body = {"stream_name": stream, "config": {"ack_policy": "explicit", **config}}
        return ok(self.api(f"CONSUMER.CREATE.{stream}", body))

    def info(self, name: str = "C", stream: str = "S") -> Any:
        return ok(self.api(f"CONSUMER.INFO.{stream}.{name}"))

    def counts(self, name: str = "C", stream: str = "S") -> dict[str, Any]:
        """Return the positions and counters of a consumer, without times."""
        info = self.info(name, stream)
        delivered, floor = info["delivered"], info["ack_floor"]
        return {
            "delivered": (delivered["consumer_seq"], delivered["stream_seq"]),
            "floor": (floor["consumer_seq"], floor["stream_seq"]),
            "ack_pending": info["num_ack_pending"],
            "redelivered": info["num_redelivered"],
            "waiting": info["num_waiting"],
            "pending": info["num_pending"],
        }

    def backup(self, name: str = "S", **options: Any) -> tuple[dict[str, Any], bytes]:
        """Return a backup of a stream: its configuration and state, and the archive of a snapshot."""
        sid = self.listen("backup.in")
        answer = ok(self.api(f"STREAM.SNAPSHOT.{name}", {"deliver_subject": "backup.in", **options}))
        parts = []
        while messages := self.heard(sid):
            for message in messages:
                parts.append(message.payload)
                if message.reply:
                    self.ack(message)
        self.wire.unsubscribe(sid)
        return {"config": answer["config"], "state": answer["state"]}, b"".join(parts)

    # Messages

    def publish(self, *payloads: str, subject: str = "s.a") -> None:
        for payload in payloads:
            self.wire.publish(subject, payload.encode())

    def publish_many(self, number: int, subject: str = "s.a") -> None:
        """Publish `number` messages "1", "2", … in one chunk."""
        lines = [b"PUB %b %d\r\n%d\r\n" % (subject.encode(), len(str(i)), i) for i in range(1, number + 1)]
        self.wire.send(b"".join(lines))

    def pull(self, body: object = b"", name: str = "C", stream: str = "S", inbox: str = "") -> list[Message]:
        """Send a pull request and return the messages that arrived until the machine was idle."""
        inbox = inbox or f"_INBOX.pull.{self.machine.rng.getrandbits(40)}"
        sid = self.wire.subscribe(inbox)
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.wire.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", payload, inbox)
        return self.wire.take(sid)

    def ack(self, message: Message, payload: bytes = b"") -> None:
        self.wire.publish(message.reply.decode(), payload)

    def double_ack(self, message: Message, payload: bytes = b"") -> list[Message]:
        inbox = f"_INBOX.ack.{self.machine.rng.getrandbits(40)}"
        sid = self.wire.subscribe(inbox)
        self.wire.publish(message.reply.decode(), payload, inbox)
        answers = self.wire.take(sid)
        self.wire.unsubscribe(sid)
        return answers

    def listen(self, subject: str) -> bytes:
        return self.wire.subscribe(subject)

    def heard(self, sid: bytes) -> list[Message]:
        return self.wire.take(sid)

    def advance(self, seconds: float) -> None:
        self.machine.advance(int(seconds * SECOND))


def ok(answer: Any) -> Any:
    assert "error" not in answer, answer["error"]
    return answer


def texts(messages: list[Message]) -> list[str]:
    """Return the payloads of messages, and `<status>` for status messages."""
    return [f"<{m.status.decode()}>" if m.status else m.payload.decode() for m in messages]


def numbers(message: Message) -> tuple[int, int, int, int]:
    """Return (deliveries, stream sequence, consumer sequence, pending) of an ack subject."""
    tokens = message.reply.split(b".")
    return int(tokens[4]), int(tokens[5]), int(tokens[6]), int(tokens[8])
