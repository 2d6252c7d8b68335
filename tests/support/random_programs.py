"""Random programs for `tests.support.program_runner`: streams, consumers, publishes, pulls, acks, in every form.

A program knows nothing about what its steps will bring: names come from small pools, so that most steps meet something.
"""

import json
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Any, Final

from tests.support.program_runner import PATIENCE_S, STREAMS, Difference, ProgramRunner, Step

SECOND: Final = 1_000_000_000
HOUR: Final = 3600 * SECOND
LATER: Final = "2037-01-01T00:00:00Z"
PAST: Final = "2020-01-01T00:00:00Z"

CONSUMERS: Final = ("c", "d", "e")
LEAVES: Final = ("x", "y", "x.1", "y.2", "z.1.2")
FILTERS: Final = ("x", "y", "x.*", "*", ">", "*.*", "z.>", "*.1")
TARGETS: Final = ("push.1", "push.2", "push.3")
SAID: Final = ("", "1", "hello", "x" * 40, "y" * 200)

ANSWERS: Final = (
    b"", b"", b"+ACK", b"+OK", b"-NAK", b"-NAK", b'-NAK {"delay": 3600000000000}', b"-NAK 1h", b"+WPI", b"+TERM",
    b"+TERM why", b"+NXT", b"+NXT 2", b'+NXT {"batch":2,"no_wait":true}', b"odd", b"-NAK x",
)  # fmt: skip

Line = tuple[str, bytes, bytes, str]
"""Subject, header, payload and inbox of a message."""


def table(kind: str, /, **values: str) -> dict[str, tuple[float, Any]]:
    """Return fields of `kind` with their probability and values, with `values` in place of `$` and their names."""
    found: dict[str, tuple[float, Any]] = json.loads(_texts()[kind].substitute(values))
    return found


@lru_cache
def _texts() -> dict[str, Template]:
    tables = json.loads(Path(__file__).with_suffix(".json").read_text())
    return {kind: Template(json.dumps(rows)) for kind, rows in tables.items()}


class Chance:
    """A seed's choices, and the steps made so far."""

    def __init__(self, seed: int, upstreams: bool = False) -> None:
        self.rng = random.Random(seed)
        self.upstreams = upstreams
        self.streams = STREAMS[: self.rng.randint(1, 3)]
        self.known: set[str] = set()
        self.unlimited: set[str] = set()
        self.batches = 0
        self.steps: list[Step] = []

    def chosen(self, **chances: tuple[float, Any]) -> dict[str, Any]:
        """Return those fields that chance takes, each with one of its values (or what a function says)."""
        taken = {key: values for key, (chance, values) in chances.items() if self.rng.random() < chance}
        return {key: self.rng.choice(values) for key, values in taken.items()}

    def note(self, name: str, fields: dict[str, Any]) -> None:
        """Remember whether a stream may drop messages when others come."""
        if name not in self.known:
            self.unlimited.add(name)
        self.known.add(name)
        if {"max_msgs", "max_bytes", "max_msgs_per_subject", "retention"} & fields.keys():
            self.unlimited.discard(name)

    def sequence(self) -> int:
        return self.rng.choice((self.rng.randint(1, 30), self.rng.randint(1, 8), self.rng.randint(100, 110)))


def block(fields: dict[str, str]) -> bytes:
    return ("NATS/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in fields.items()) + "\r\n").encode()


def joined(fields: dict[str, str], header: bytes) -> bytes:
    return block(fields)[:-2] + (header.removeprefix(b"NATS/1.0\r\n") or b"\r\n")


class ConsumerSteps(Chance):
    def consumer_fields(self, name: str) -> dict[str, Any]:
        fields = self.chosen(**table("consumer", own=name.lower()))
        policy = fields.get("deliver_policy")
        if policy == "by_start_sequence":
            fields["opt_start_seq"] = self.rng.choice((1, 3, 8, 50))
        if policy == "by_start_time":
            fields["opt_start_time"] = self.rng.choice((PAST, LATER))
        if "filter_subject" in fields and self.rng.random() < 0.9:
            fields.pop("filter_subjects", None)
        if "backoff" in fields:
            fields["max_deliver"] = 5
        return fields | self.kind_fields()

    def kind_fields(self) -> dict[str, Any]:
        """Return what makes a consumer a push consumer, or one with priority groups."""
        kind = self.rng.random()
        if kind < 0.25:
            return {
                "deliver_subject": self.rng.choice(TARGETS),
                **self.chosen(
                    deliver_group=(0.15, ("g",)), flow_control=(0.15, (True,)), idle_heartbeat=(0.2, (HOUR,))
                ),
            }
        if kind < 0.4:
            return {
                "priority_groups": ["g"],
                "priority_policy": self.rng.choice(("overflow", "pinned_client", "prioritized")),
                **self.chosen(priority_timeout=(0.3, (HOUR,))),
            }
        return {}

    def consume(self, name: str, consumer: str) -> Step:
        fields = self.consumer_fields(name)
        fields["name"] = consumer
        if self.rng.random() < 0.6:
            fields["durable_name"] = consumer
        else:
            fields["inactive_threshold"] = HOUR
        body: dict[str, Any] = {"stream_name": name, "config": fields}
        if self.rng.random() < 0.2:
            body["action"] = self.rng.choice(("create", "update"))
        subject = f"$JS.API.CONSUMER.CREATE.{name}.{consumer}"
        if "filter_subject" in fields and self.rng.random() < 0.3:
            subject += "." + fields["filter_subject"]
        return Step("ask", subject, json.dumps(body).encode())

    def new_consumer(self, name: str) -> Step:
        return self.consume(name, self.rng.choice(CONSUMERS))

    def update_consumer(self, name: str) -> Step:
        consumer = self.rng.choice(CONSUMERS)
        fields = self.consumer_fields(name)
        keys = self.rng.sample(sorted(fields), min(len(fields), self.rng.randint(1, 2)))
        return Step("reuse", f"$JS.API.CONSUMER.CREATE.{name}.{consumer}", patch={key: fields[key] for key in keys})

    def pull(self, name: str) -> Step:
        consumer = self.rng.choice(CONSUMERS)
        body = self.chosen(**table("pull"))
        said = self.rng.choice((json.dumps(body), json.dumps(body), json.dumps(body), json.dumps(body), "", "3"))
        if said.startswith("{") and "no_wait" not in body and "expires" not in body and self.rng.random() < 0.7:
            said = json.dumps({**body, "no_wait": True})
        inbox = f"p{self.rng.randint(1, 99)}"
        return Step("ask", f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer}", said.encode(), inbox=inbox)

    def ack(self, _name: str) -> Step:
        return Step("ack", body=self.rng.choice(ANSWERS), number=self.rng.choice((0, 0, self.rng.randint(0, 50))))

    def manage(self, name: str) -> Step:
        consumer = self.rng.choice(CONSUMERS)
        own = name.lower()
        verb, body = self.rng.choice(
            (
                (f"CONSUMER.DELETE.{name}.{consumer}", {}),
                (f"CONSUMER.PAUSE.{name}.{consumer}", {"pause_until": LATER}),
                (f"CONSUMER.PAUSE.{name}.{consumer}", {}),
                (f"CONSUMER.PAUSE.{name}.{consumer}", {}),
                (f"CONSUMER.RESET.{name}.{consumer}", {}),
                (f"CONSUMER.RESET.{name}.{consumer}", {"seq": self.sequence()}),
                (f"CONSUMER.UNPIN.{name}.{consumer}", {"group": "g"}),
                (f"CONSUMER.LIST.{name}", {"offset": self.rng.randint(0, 3)}),
                ("STREAM.NAMES", {"subject": self.rng.choice((f"{own}.>", ">", "o.x", f"{own}.x"))}),
                ("STREAM.LIST", {"offset": self.rng.randint(0, 3)}),
                (
                    f"STREAM.INFO.{name}",
                    {"subjects_filter": f"{own}.{self.rng.choice(FILTERS)}", "offset": self.rng.randint(0, 3)},
                ),
            )
        )
        return Step("ask", f"$JS.API.{verb}", json.dumps(body).encode() if body else b"")

    def listen(self, _name: str) -> Step:
        """Return the beginning or the end of a subscription on a delivery subject."""
        target = self.rng.choice(TARGETS)
        return Step(self.rng.choice(("listen", "leave")), target, inbox=target)


class PublishSteps(Chance):
    def header(self, name: str) -> bytes:
        if self.rng.random() < 0.4:
            return b""
        own = name.lower()
        subject = f"{own}.{self.rng.choice(LEAVES)}"
        number = str(self.rng.randint(0, 12))
        fields = self.chosen(**table("header", name=name, own=own, subject=subject, number=number))
        return block(fields) if fields else b""

    def line(self, name: str) -> Line:
        subject = f"{name.lower()}.{self.rng.choice(LEAVES)}"
        return subject, self.header(name), self.rng.choice(SAID).encode(), ""

    def say(self, name: str) -> Step:
        """Return the last of one or more publishes; those before are in the program."""
        return self.spread([self.line(name) for _ in range(self.rng.choice((1, 1, 2, 6)))])

    def spread(self, lines: Sequence[Line]) -> Step:
        """Add all lines but the last to the program, each as a step; return the last."""
        self.steps += [Step("say", lines=(line,)) for line in lines[:-1]]
        return Step("say", lines=tuple(lines[-1:]))

    def chunk(self, name: str, lines: Sequence[Line]) -> Step:
        """Return all lines as one step where deliveries in between are not a matter of chance: nothing is dropped."""
        return Step("say", lines=tuple(lines)) if name in self.unlimited else self.spread(lines)

    def flood(self, name: str) -> Step:
        """Return plain publishes in one chunk, with replies or without."""
        inbox = self.rng.choice(("", "-"))
        lines = [
            (f"{name.lower()}.{self.rng.choice(LEAVES)}", b"", b"%d" % i, inbox) for i in range(self.rng.randint(3, 12))
        ]
        return self.chunk(name, lines)

    def atomic(self, name: str) -> Step:
        """Return a whole or a broken atomic batch in one chunk."""
        self.batches += 1
        length = self.rng.randint(1, 5)
        lines = []
        for place in range(1, length + 1):
            subject, header, body, _ = self.line(name)
            own = {"Nats-Batch-Id": f"b{self.batches}", "Nats-Batch-Sequence": str(place)}
            if place == length and self.rng.random() < 0.9:
                own["Nats-Batch-Commit"] = self.rng.choice(("1", "1", "1", "eob", "x"))
            if self.rng.random() < 0.5:
                header = b""
            inbox = self.rng.choice(("", "", "-"))
            if self.rng.random() < 0.97:
                lines.append((subject, joined(own, header), body, inbox))
        return self.chunk(name, lines)

    def fast(self, name: str) -> Step:
        """Return the last step of a fast batch; those before are in the program."""
        self.batches += 1
        length = self.rng.randint(1, 6)
        gap = self.rng.choice(("fail", "ok"))
        flow = self.rng.choice((0, 1, 2, 10))
        lines = []
        for place in range(1, length + 1):
            subject, header, body, _ = self.line(name)
            op = 0 if place == 1 else self.rng.choice((1, 1, 1, 4)) if place < length else self.rng.choice((2, 2, 3, 1))
            if self.rng.random() < 0.6:
                header = b""
            subject = f"{name.lower()}.{self.rng.choice(LEAVES[:3])}"
            seq = place + (1 if self.rng.random() < 0.05 else 0)
            lines.append((subject, header, body, f"f{self.batches}.u{self.batches}.{flow}.{gap}.{seq}.{op}.$FI"))
        return self.spread(lines)


class StreamSteps(Chance):
    def stream_fields(self, name: str) -> dict[str, Any]:
        return self.chosen(**table("stream", own=name.lower()))

    def create(self, name: str) -> Step:
        fields = self.stream_fields(name)
        own = name.lower()
        subjects = self.rng.choice(
            ([f"{own}.>"], [f"{own}.>"], [f"{own}.x", f"{own}.x.*", f"{own}.y"], [f"{own}.>", "o.>"])
        )
        body: dict[str, Any] = {"name": name, "subjects": subjects, **fields}
        self.note(name, fields)
        if self.upstreams and self.rng.random() < 0.5:
            body.update(self.upstream(name))
            if "mirror" in body:
                del body["subjects"]
        return Step("ask", f"$JS.API.STREAM.CREATE.{name}", json.dumps(body).encode())

    def upstream(self, name: str) -> dict[str, Any]:
        others = [other for other in STREAMS[:3] if other != name]
        origin = self.rng.choice(others)
        own = origin.lower()
        chosen = {
            "name": origin,
            **self.chosen(
                opt_start_seq=(0.2, (1, 3)),
                filter_subject=(0.3, (f"{own}.x", f"{own}.x.*", f"{own}.>")),
                subject_transforms=(0.1, ([{"src": f"{own}.>", "dest": "moved.>"}],)),
            ),
        }
        if "subject_transforms" in chosen:
            chosen.pop("filter_subject", None)
        return {"mirror": chosen} if self.rng.random() < 0.4 else {"sources": [chosen]}

    def update(self, name: str) -> Step:
        fields = self.stream_fields(name)
        keys = self.rng.sample(sorted(fields), min(len(fields), self.rng.randint(1, 2)))
        patch = {key: fields[key] for key in keys}
        patch |= self.chosen(
            max_msgs=(0.1, (-1, 3)),
            max_msgs_per_subject=(0.1, (-1, 1)),
            max_bytes=(0.05, (-1, 250)),
            subjects=(0.1, ([f"{name.lower()}.>"], [f"{name.lower()}.x", f"{name.lower()}.x.1"])),
            discard=(0.1, ("old", "new")),
            republish=(0.03, (None,)),
            subject_transform=(0.05, (None,)),
            retention=(0.05, ("limits", "interest")),
        )
        self.note(name, patch)
        return Step("update", f"$JS.API.STREAM.UPDATE.{name}", patch=patch)

    def purge(self, name: str) -> Step:
        body = self.chosen(
            filter=(0.5, [f"{name.lower()}.{leaf}" for leaf in FILTERS]),
            seq=(0.3, (1, 4, 9, 100)),
            keep=(0.3, (0, 1, 2, 5)),
        )
        return Step("ask", f"$JS.API.STREAM.PURGE.{name}", json.dumps(body).encode() if body else b"")

    def delete_message(self, name: str) -> Step:
        body: dict[str, Any] = {"seq": self.sequence(), **self.chosen(no_erase=(0.5, (True, False)))}
        return Step("ask", f"$JS.API.STREAM.MSG.DELETE.{name}", json.dumps(body).encode())

    def get(self, name: str) -> Step:
        """Return a request for a stored message or several."""
        own = name.lower()
        subject = f"{own}.{self.rng.choice(LEAVES)}"
        wild = f"{own}.{self.rng.choice(FILTERS)}"
        body: dict[str, Any] = self.rng.choice(
            (
                {"seq": self.sequence()},
                {"last_by_subj": self.rng.choice((subject, wild))},
                {"seq": self.sequence(), "next_by_subj": self.rng.choice((subject, wild))},
                {"next_by_subj": wild},
                {"start_time": self.rng.choice((PAST, LATER))},
                {"start_time": PAST, "next_by_subj": wild},
            )
        )
        if self.rng.random() < 0.1:
            body.update(no_hdr=True)
        if self.rng.random() < 0.3:
            return Step("ask", f"$JS.API.STREAM.MSG.GET.{name}", json.dumps(body).encode())
        if self.rng.random() < 0.25:
            return Step("ask", f"$JS.API.DIRECT.GET.{name}.{subject}")
        if self.rng.random() < 0.4:
            body = {**body, "batch": self.rng.choice((1, 3, 100)), **self.chosen(max_bytes=(0.3, (1, 150, 1000)))}
        elif self.rng.random() < 0.4:
            body = {
                "multi_last": self.rng.sample(
                    [f"{own}.{leaf}" for leaf in (*LEAVES, *FILTERS)], self.rng.randint(1, 3)
                ),
                **self.chosen(
                    batch=(0.4, (1, 2, 10)),
                    up_to_seq=(0.3, (1, 5, 20)),
                    up_to_time=(0.1, (PAST, LATER)),
                    max_bytes=(0.2, (1, 150)),
                    seq=(0.1, (1, 4)),
                    no_hdr=(0.1, (True,)),
                ),
            }
        return Step("ask", f"$JS.API.DIRECT.GET.{name}", json.dumps(body).encode())


class Maker(StreamSteps, PublishSteps, ConsumerSteps):
    def program(self, length: int) -> list[Step]:
        for target in TARGETS[:2]:
            self.steps.append(Step("listen", target, inbox=target))
        self.steps.append(Step("listen", "again.>", inbox="again"))
        for name in self.streams:
            self.steps.append(self.create(name))
        for name in self.streams:
            self.steps += [self.say(name), self.consume(name, self.rng.choice(CONSUMERS))]
        while len(self.steps) < length:
            self.steps.append(self.step())
        return self.steps

    def step(self) -> Step:
        name = self.rng.choice(self.streams)
        makers = [make for make, weight in WEIGHTS.items() for _ in range(weight)]
        return self.rng.choice(makers)(self, name)

    def destroy(self, name: str) -> Step:
        if self.rng.random() < 0.3:
            return Step("ask", f"$JS.API.STREAM.DELETE.{name}")
        return self.create(name)


WEIGHTS: Final[dict[Callable[[Maker, str], Step], int]] = {
    Maker.say: 12,
    Maker.flood: 4,
    Maker.atomic: 4,
    Maker.fast: 3,
    Maker.pull: 14,
    Maker.ack: 16,
    Maker.get: 6,
    Maker.new_consumer: 6,
    Maker.update_consumer: 4,
    Maker.manage: 6,
    Maker.delete_message: 4,
    Maker.purge: 3,
    Maker.update: 4,
    Maker.listen: 1,
    Maker.destroy: 1,
}


LENGTH: Final = 60
"""Steps of a program."""


def made(seed: int, length: int = LENGTH, upstreams: bool = False) -> list[Step]:
    return Maker(seed, upstreams).program(length)


def played(program: Sequence[Step], url: str, patience_s: float = PATIENCE_S) -> Difference | None:
    """Play a program on fresh servers' accounts and return the first difference."""
    runner = ProgramRunner(url, patience_s)
    try:
        return runner.play(program)
    finally:
        runner.close()
