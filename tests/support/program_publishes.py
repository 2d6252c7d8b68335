"""Steps of random programs that publish: single messages, floods, batches of both kinds."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.program_chance import LATER, LEAVES, SAID, Chance, Line, block, joined
from tests.support.twins import Step


class PublishSteps(Chance):
    """Steps that publish."""

    def header(self, name: str) -> bytes:
        """Return a header block of a publish."""
        if self.rng.random() < 0.4:
            return b""
        own = name.lower()
        subject = f"{own}.{self.rng.choice(LEAVES)}"
        number = str(self.rng.randint(0, 12))
        fields = self.chosen(
            **{
                "Nats-Msg-Id": (0.25, ("m1", "m2", "m3", "")),
                "Nats-Expected-Stream": (0.05, (name, "other")),
                "Nats-Expected-Last-Sequence": (0.08, (number, "0", "x")),
                "Nats-Expected-Last-Subject-Sequence": (0.1, (number, "0", "0", "-1")),
                "Nats-Expected-Last-Subject-Sequence-Subject": (0.05, (subject, f"{own}.*", f"{own}.>")),
                "Nats-Expected-Last-Msg-Id": (0.05, ("m1", "m2", "")),
                "Nats-Rollup": (0.1, ("sub", "all", "what")),
                "Nats-TTL": (0.15, ("1h", "3600", "never", "0", "x", "100h")),
                "Nats-Incr": (0.05, ("1", "-5", "+12345678901234567890", "x", "0")),
                "Nats-Schedule": (0.05, ("@every 2h", f"@at {LATER}", "@yearly", "0 0 1 1 1 *", "x")),
                "Nats-Schedule-Target": (0.06, (subject, f"{own}.x")),
                "Nats-Schedule-TTL": (0.02, ("1h", "x")),
                "Nats-Schedule-Source": (0.02, (subject,)),
                "Nats-Schedule-Rollup": (0.02, ("sub",)),
                "Nats-Scheduler": (0.01, (subject,)),
                "Nats-Schedule-Next": (0.01, ("purge", LATER)),
                "Nats-Batch-Id": (0.01, ("b1",)),
                "Nats-Batch-Sequence": (0.01, ("1", "2")),
                "X-Own": (0.2, ("v", "")),
                "Nats-Stream-Source": (0.005, ("A 1",)),
                "Nats-Marker-Reason": (0.01, ("Purge",)),
                "Nats-Required-Api-Level": (0.01, ("99",)),
            }
        )
        return block(fields) if fields else b""

    def line(self, name: str) -> Line:
        """Return one message."""
        subject = f"{name.lower()}.{self.rng.choice(LEAVES)}"
        return subject, self.header(name), self.rng.choice(SAID).encode(), ""

    def say(self, name: str) -> Step:
        """Return the last of one or more publishes; those before are in the program."""
        return self.spread([self.line(name) for _ in range(self.rng.choice((1, 1, 2, 6)))])

    def spread(self, lines: Sequence[Line]) -> Step:
        """Put all lines but the last into the program, each as a step; return the last."""
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
