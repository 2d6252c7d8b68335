"""Clients of the simulated engine, the random requests that they send, and the streams and consumers of one session.

A client asks without waiting and notes the answers. `Program` draws one random request of every kind that a stream
allows; `draw_cast` draws the streams and consumers.
"""

import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from natsctl.api import headers
from natsctl.api.times import format_time
from natsctl.store.message import StoredMessage
from tests.support.engine_model import ConsumerModel, StreamModel
from tests.support.engine_requests import Attempt, BlocksRead, Wanted, takes
from tests.support.machine import Machine, Message

Heard = Callable[[Message], None]


class Client:
    def __init__(self, machine: Machine, name: str = "c", api: str = "$JS.API") -> None:
        """Connect; `name` distinguishes its inboxes from those of others, `api` leads to its streams."""
        self.machine = machine
        self.wire = machine.connect()
        self._name = name
        self._api = api
        self.wire.subscribe(f"_INBOX.{name}.>")
        self._pulls: dict[bytes, ConsumerModel] = {}
        self._asked: dict[bytes, Heard] = {}
        self._number = 0

    def ask(self, subject: str, body: object, heard: Heard, header: bytes = b"", tail: str = "") -> None:
        """Send a request; `heard` is called with each answer once `collect` finds it. `tail` ends the reply subject."""
        self._number += 1
        inbox = f"_INBOX.{self._name}.{self._number}"
        self._asked[inbox.encode()] = heard
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.wire.publish(subject, payload, inbox + tail, header)

    def collect(self) -> None:
        """Hand out the answers that arrived; raises Violation where one breaks a promise."""
        for message in self.wire.take():
            consumer = self._pulls.get(message.sid)
            if consumer is not None:
                consumer.arrived(message)
            elif not message.status:  # it had no subscriber
                self._asked[b".".join(message.subject.split(b".")[:3])](message)

    # What it asks

    def publish(self, attempt: Attempt, model: StreamModel, tail: str = "") -> None:
        """Publish a message and note that in the stream's model."""
        attempt.ts_ns = self.machine.clock.now_ns()
        attempt.far = self._api != "$JS.API"
        model.step.attempts.append(attempt)

        def heard(message: Message) -> None:
            answer = message.json() if message.payload else {}
            if "seq" in answer or "error" in answer:
                attempt.answer = answer

        subject = attempt.subject.decode()
        if subject.startswith("$KV.") and attempt.far:
            subject = f"{self._api}.{subject}"
        self.ask(subject, attempt.payload, heard, attempt.header, tail)

    def send_fast(self, attempt: Attempt, batch: str, tail: str, size: int) -> None:
        """Publish one message of a fast batch; the batch's ack is that of its last one."""

        def heard(message: Message) -> None:
            answer = message.json()
            if "type" not in answer and answer.get("count") == size:
                attempt.answer = answer

        inbox = f"_INBOX.{self._name}.{batch}"
        self._asked[inbox.encode()] = heard
        self.wire.publish(attempt.subject.decode(), attempt.payload, inbox + tail, attempt.header)

    def remove(
        self, model: StreamModel, verb: str, body: dict[str, Any], wanted: Wanted, *, surely: bool = True
    ) -> None:
        """Ask for a deletion or a purge of what `wanted` takes; `surely`: of all of that."""
        step = model.step
        step.removers.append(wanted)

        def heard(message: Message) -> None:
            if "error" in message.json():
                step.removers.remove(wanted)
            elif surely:
                step.confirmed.append(wanted)

        self.ask(f"{self._api}.STREAM.{verb}.{model.name}", body, heard)

    def update(self, model: StreamModel, config: dict[str, Any]) -> None:
        """Ask for another configuration; which one holds after a crash is looked up."""
        model.step.configs.append(model.config)
        model.step.configs.append(config)

        def heard(message: Message) -> None:
            if "error" not in message.json():
                model.config = config

        self.ask(f"{self._api}.STREAM.UPDATE.{model.name}", config, heard)

    def read_blocks(self, model: StreamModel, wish: dict[str, Any]) -> None:
        """Ask for messages as they lie in the log."""

        def heard(message: Message) -> None:
            model.step.blocks.append(BlocksRead.of(wish, message))

        self.ask(f"{self._api}.STREAM.BLOCKS.{model.name}", wish, heard)

    def fetch(self, consumer: ConsumerModel, batch: int) -> None:
        subject = f"{self._api}.CONSUMER.MSG.NEXT.{consumer.model.name}.{consumer.name}"
        inbox = f"_INBOX.p{self._name}.{consumer.name}"
        if consumer not in self._pulls.values():
            self._pulls[self.wire.subscribe(inbox)] = consumer
        self.wire.publish(subject, msgspec.json.encode({"batch": batch, "no_wait": True}), inbox)

    def ack(self, consumer: ConsumerModel, seq: int, message: Message, payload: bytes, *, confirm: bool) -> None:
        """Answer a delivery, and wait for the answer to that."""
        final = payload in (b"", b"+ACK", b"+TERM")
        if final:
            consumer.acked.add(seq)

        def heard(answer: Message) -> None:
            if final:
                consumer.confirmed.add(seq)

        if confirm:
            self.ask(message.reply.decode(), payload, heard)
        else:
            self.wire.publish(message.reply.decode(), payload)


SECOND: Final = 1_000_000_000
ACKS: Final = (b"", b"+ACK", b"+ACK", b"-NAK", b"+WPI", b"+TERM")
START, APPEND, COMMIT = range(3)


class Program:
    """The random choices of one session, over all of its lives."""

    def __init__(self, rng: random.Random, models: dict[str, StreamModel], consumers: list[ConsumerModel]) -> None:
        self._rng = rng
        self._models = models
        self._consumers = consumers
        self._made = 0
        self._ids: list[bytes] = []

    def act(self, client: Client) -> None:
        """Send one request, or a few that belong together."""
        kinds: tuple[tuple[Callable[[Client, StreamModel], None], int], ...] = (
            (self._publish, 30),
            (self._batch, 6),
            (self._fast_batch, 5),
            (self._schedule, 5),
            (self._delete, 4),
            (self._purge, 3),
            (self._update, 1),
            (self._fetch, 12),
            (self._ack, 24),
        )
        kind = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        kind(client, self._models[self._rng.choice(sorted(self._models))])

    # Publishing

    def _attempt(self, model: StreamModel, pairs: list[tuple[bytes, bytes]] | None = None, tail: str = "") -> Attempt:
        self._made += 1
        token = b"t%d" % self._made
        subject = f"{model.prefix}.{tail or self._rng.choice(model.tails)}".encode()
        pairs = pairs or []
        if model.config.get("allow_msg_counter"):
            incr = self._rng.randint(-9, 99)
            header = headers.encode([*pairs, (headers.INCR, b"%d" % incr), (b"X-Token", token)])
            return Attempt(token, subject, header, b"", incr=incr)
        size = self._rng.choice((0, 0, 0, 30, 300))
        if size:
            pairs = [*pairs, (b"X-Pad", b"x" * size)]
        return Attempt(token, subject, headers.encode(pairs) if pairs else b"", token)

    def _publish(self, client: Client, model: StreamModel) -> None:
        if model.origin is not None:
            return
        for _ in range(self._rng.choice((1, 1, 2, 5))):
            pairs: list[tuple[bytes, bytes]] = []
            wish = self._rng.choice(("", "", "id", "id", "last", "rollup", "ttl", "ttl"))
            counter = model.config.get("allow_msg_counter")
            msg_id, expected = b"", None
            if wish == "id":
                msg_id = self._draw_id(model)
                pairs.append((headers.MSG_ID, msg_id))
            elif wish == "last" and not counter:
                expected = model.before.last_seq + self._rng.choice((0, 0, 1))
                pairs.append((headers.EXPECTED_LAST_SEQ, b"%d" % expected))
            elif wish == "rollup" and model.config.get("allow_rollup_hdrs") and self._rng.random() < 0.5:
                pairs.append((headers.ROLLUP, self._rng.choice((b"sub", b"sub", b"all"))))
            elif wish == "ttl" and model.config.get("allow_msg_ttl"):
                pairs.append((headers.TTL, self._rng.choice((b"1", b"2s", b"5s", b"never"))))
            attempt = self._attempt(model, pairs)
            attempt.msg_id, attempt.expected_last = msg_id, expected
            client.publish(attempt, model)

    def _draw_id(self, model: StreamModel) -> bytes:
        """Return an id that is new, or one that was used before."""
        if not self._ids or self._rng.random() < 0.5:
            self._ids.append(b"id%d" % len(self._ids))
            return self._ids[-1]
        return self._rng.choice(self._ids[-8:])

    def _batch(self, client: Client, model: StreamModel) -> None:
        if not model.config.get("allow_atomic"):
            return
        size, number = self._rng.randint(2, 6), self._made + 1
        for place in range(1, size + 1):
            pairs = [(headers.BATCH_ID, b"b%d" % number), (headers.BATCH_SEQUENCE, b"%d" % place)]
            if place == size:
                pairs.append((headers.BATCH_COMMIT, b"1"))
            attempt = self._attempt(model, pairs)
            attempt.batch = number
            client.publish(attempt, model)

    def _fast_batch(self, client: Client, model: StreamModel) -> None:
        if not model.config.get("allow_batched"):
            return
        size = self._rng.randint(2, 6)
        attempts = [self._attempt(model) for _ in range(size)]

        for place, attempt in enumerate(attempts, 1):
            op = COMMIT if place == size else START if place == 1 else APPEND
            attempt.ts_ns = client.machine.clock.now_ns()
            model.step.attempts.append(attempt)
            tail = f".2.fail.{place}.{op}.$FI"
            client.send_fast(attempt, attempts[0].token.decode(), tail, size)

    def _schedule(self, client: Client, model: StreamModel) -> None:
        if not model.config.get("allow_msg_schedules"):
            return
        due_ns = client.machine.clock.now_ns() + self._rng.randint(1, 5) * SECOND
        pairs = [
            (headers.SCHEDULE, f"@at {format_time(due_ns)}".encode()),
            (headers.SCHEDULE_TARGET, f"{model.prefix}.{self._rng.choice(model.tails)}".encode()),
            (b"X-Due", b"%d" % due_ns),
        ]
        client.publish(self._attempt(model, pairs, tail=f"plan.{self._rng.randint(1, 3)}"), model)

    # Removing and changing

    def _delete(self, client: Client, model: StreamModel) -> None:
        if not model.before.messages:
            return
        seq = self._rng.choice(sorted(model.before.messages))
        erase = {"no_erase": self._rng.random() < 0.5}
        client.remove(model, "MSG.DELETE", {"seq": seq, **erase}, lambda message: message.seq == seq)

    def _purge(self, client: Client, model: StreamModel) -> None:
        kind = self._rng.choice(("all", "filter", "filter", "seq", "keep", "both"))
        pattern = f"{model.prefix}.{self._rng.choice(model.tails)}" if kind in ("filter", "both") else ">"
        below = self._rng.randint(1, model.before.last_seq + 1) if kind in ("seq", "both") else 0
        body: dict[str, Any] = {"filter": pattern} if pattern != ">" else {}
        body |= {"seq": below} if below else {"keep": self._rng.randint(1, 4)} if kind == "keep" else {}
        match = takes(pattern)

        def wanted(message: StoredMessage) -> bool:
            return match(message) and (not below or message.seq < below)

        client.remove(model, "PURGE", body, wanted, surely=kind != "keep")

    def _update(self, client: Client, model: StreamModel) -> None:
        if model.mirrors:
            return
        change = self._rng.choice(
            (
                {"max_msgs": 12},
                {"max_msgs": 4},
                {"max_msgs": -1},
                {"max_msgs_per_subject": 2},
                {"max_msgs_per_subject": 1},
                {"max_age": 0},
            )
        )
        client.update(model, {**model.config, **change})

    # Consuming

    def _fetch(self, client: Client, model: StreamModel) -> None:
        consumer = self._rng.choice(self._consumers)
        client.fetch(consumer, self._rng.randint(1, 8))

    def _ack(self, client: Client, model: StreamModel) -> None:
        consumer = self._rng.choice(self._consumers)
        for _ in range(self._rng.choice((1, 1, 4))):
            if consumer.held:
                seq, message = consumer.held.pop(self._rng.randrange(len(consumer.held)))
                client.ack(consumer, seq, message, self._rng.choice(ACKS), confirm=self._rng.random() < 0.6)


LIMITS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {},
    {"max_msgs": 10},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 2},
    {"max_bytes": 1500},
    {"max_age": 10 * SECOND},
    {"max_msgs": 15, "discard": "new"},
    {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
)
WISHES: Final[tuple[dict[str, Any], ...]] = (
    {"allow_rollup_hdrs": True},
    {"allow_msg_ttl": True},
    {"allow_msg_ttl": True, "allow_rollup_hdrs": True, "subject_delete_marker_ttl": 3 * SECOND},
    {"allow_atomic": True},
    {"allow_batched": True},
    {"allow_msg_schedules": True, "allow_rollup_hdrs": True},
)
KEY_VALUE: Final[dict[str, Any]] = {
    "discard": "new",
    "deny_delete": True,
    "allow_rollup_hdrs": True,
    "allow_direct": True,
}
"""Configuration of a KV bucket's stream, as clients create it."""
HISTORIES: Final[tuple[dict[str, Any], ...]] = (
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 3},
    {"max_msgs_per_subject": 1, "allow_msg_ttl": True, "subject_delete_marker_ttl": 3 * SECOND},
)
OBJECTS: Final[dict[str, Any]] = {"discard": "new", "allow_rollup_hdrs": True, "allow_direct": True}
"""Configuration of an object bucket's stream."""


def _wishes(rng: random.Random) -> dict[str, Any]:
    config: dict[str, Any] = {"duplicate_window": 10 * SECOND}
    for wish in WISHES:
        if rng.random() < 0.4:
            config |= wish
    return config


def _stream(name: str, **config: Any) -> StreamModel:
    return StreamModel(name, {"name": name, **config})


def draw_cast(rng: random.Random) -> tuple[dict[str, StreamModel], list[ConsumerModel]]:
    """Return streams and consumers.

    Limits (A), work queue (Q), interest (I), counters (N), mirror (M), source (X), KV bucket (K), object bucket (O).
    """
    common = {"A": _wishes(rng) | rng.choice(LIMITS), "Q": _wishes(rng), "I": _wishes(rng)}
    models = {name: _stream(name, subjects=[f"{name.lower()}.>"], **config) for name, config in common.items()}
    if models["A"].config.get("discard") == "new":
        models["A"].config.pop("allow_msg_schedules", None)
    models["Q"].config |= {"retention": "workqueue"}
    models["I"].config |= {"retention": "interest"}
    counter = rng.choice(({}, {"max_msgs_per_subject": 1}, {"allow_atomic": True}))
    models["N"] = _stream(
        "N", subjects=["n.>"], allow_msg_counter=True, allow_rollup_hdrs=True, duplicate_window=10 * SECOND, **counter
    )
    origin = models["A"]
    models["M"] = StreamModel("M", {"name": "M", "mirror": {"name": "A"}}, origin)
    sourcing = rng.choice(LIMITS[:7])
    models["X"] = StreamModel(
        "X", {"name": "X", "sources": [{"name": "A"}], "allow_rollup_hdrs": True, **sourcing}, origin
    )
    models["K"] = _stream("K", subjects=["$KV.K.>"], **KEY_VALUE, **rng.choice(HISTORIES))
    models["O"] = _stream("O", subjects=["$O.O.C.>", "$O.O.M.>"], **OBJECTS)
    for model in models.values():
        if rng.random() < 0.5:
            model.config["compression"] = "s2"
    consumers = [
        ConsumerModel("AC", models["A"]),
        ConsumerModel("AB", models["A"], "a.b"),
        ConsumerModel("QC", models["Q"]),
        ConsumerModel("IA", models["I"], "i.a"),
        ConsumerModel("IS", models["I"], "i.*"),
        ConsumerModel("XC", models["X"]),
        ConsumerModel("KW", models["K"]),
        ConsumerModel("OC", models["O"], "$O.O.C.a"),
    ]
    return models, consumers
