"""Model of the streams and consumers of the simulated engine, checked after each step.

Theory of operation. A *step* is a handful of requests, perhaps with a crash among them, or time that passes. A
`StreamModel` keeps the messages of a stream at the end of the last step, every message that it ever held, and the
requests of the step. At the end of the step `judge` explains each difference: a new message must have been published
(or made by the server itself), in the order of the requests; a missing one must have a reason to be gone; an
acknowledged one must be there unless it has such a reason. A crash needs no rules of its own: a request in flight has
no answer, and may have happened or not.

A `ConsumerModel` keeps which sequences were delivered, for which an ack was sent, and for which it was confirmed by an
answer. From that follows when retention may remove a message, when it must, and what must never come again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from natsctl.api import headers
from natsctl.api.stream import StreamConfig
from natsctl.store.filters import Filters
from natsctl.store.message import StoredMessage
from tests.support.engine_requests import (
    Attempt,
    Snapshot,
    Step,
    due_of,
    end_of,
    ends_schedule,
    expired,
    passed_on,
    pushed_out,
    rolls_up,
    size_of,
    total_of,
)
from tests.support.machine import Message
from tests.support.store_model import Violation

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.consumer import Consumer


TAILS: Final = ("a", "b", "c", "d")
OBJECT_TAILS: Final = ("C.a", "C.b", "M.a", "M.b")
"""Chunks and meta messages of an object bucket."""
SLACK_NS: Final = 2_000_000_000
"""Time after its end by which a message must be gone."""


class StreamModel:
    def __init__(self, name: str, config: dict[str, Any], origin: StreamModel | None = None) -> None:
        self.name = name
        self.config = config
        self.origin = origin
        self.before = Snapshot()
        self.history: dict[int, StoredMessage] = {}
        self.tokens: dict[bytes, int] = {}
        self.attempted: dict[bytes, Attempt] = {}
        self.ids: dict[bytes, tuple[int, int]] = {}
        self._unsure: set[bytes] = set()
        """Ids that the stream may or may not know still."""
        self.produced: dict[bytes, int] = {}
        self.sourced_seq = 0
        self.step = Step()
        self.may_go: Callable[[StoredMessage], bool] = lambda message: False
        """Whether the consumers' acks remove messages."""
        self.must_go: Callable[[StoredMessage], bool] = lambda message: False
        self._unseen = 0
        """Messages that came and went in this step unseen."""
        self._time_ns = 0

    @property
    def prefix(self) -> str:
        subject: str = (self.origin or self).config["subjects"][0]
        return subject.removesuffix(".>").removesuffix(".C")

    @property
    def tails(self) -> tuple[str, ...]:
        return OBJECT_TAILS if self.prefix.startswith("$O.") else TAILS

    @property
    def mirrors(self) -> bool:
        return "mirror" in self.config

    def broken(self, text: str) -> Violation:
        """Return the violation that `text` describes."""
        return Violation(f"{self.name}: {text}")

    def take_config(self, config: StreamConfig) -> None:
        """Learn which of two configurations a crash has left; raises Violation."""
        names = ("max_msgs", "max_msgs_per_subject", "max_age")
        seen = {name: max(getattr(config, name), 0) for name in names}
        for known in (self.config, *reversed(self.step.configs)):
            if {name: max(known.get(name, 0), 0) for name in names} == seen:
                self.config = known
                return
        raise self.broken(f"has a configuration that nobody gave it: {seen}")

    # Judging

    def judge(self, after: Snapshot, now_ns: int) -> None:
        """Explain what became of the stream in this step and begin the next; raises Violation."""
        before, step = self.before, self.step
        step.configs.append(self.config)
        if after.last_seq < before.last_seq:
            raise self.broken(f"last sequence went from {before.last_seq} to {after.last_seq}")
        for seq, message in after.messages.items():
            held = before.messages.get(seq)
            if held is None and seq <= before.last_seq:
                raise self.broken(f"{message} came back, or its sequence was used twice")
            if held is not None and held != message:
                raise self.broken(f"{held} became {message}")
        new = [after.messages[seq] for seq in sorted(after.messages) if seq > before.last_seq]
        self._place(new, after)
        passed = self._passed(after)
        if self.config.get("allow_msg_counter") and not self.step.removers:
            self._check_totals(after)
        gone = [m for seq, m in before.messages.items() if seq not in after.messages]
        came = sorted([*new, *passed], key=lambda m: m.seq)
        self.history.update((m.seq, m) for m in new)
        for message in [*gone, *passed]:
            if not self._may_go(message, [*gone, *came], after, now_ns):
                raise self.broken(f"{message} is gone without a reason; now {sorted(after.messages)}, new {came}")
        for fault in (read.fault(before, after) for read in step.blocks):
            if fault:
                raise self.broken(f"blocks: {fault}")
        self._check_obligations(after, now_ns)
        self._check_markers(gone, came, after, now_ns)
        self._note_ids(after)
        self.before, self.step = after, Step()

    def _place(self, new: list[StoredMessage], after: Snapshot) -> None:
        """Find for each new message the publication that it is, or the reason why the server made it."""
        waiting = {attempt.token: attempt for attempt in self.step.attempts}
        self.attempted |= waiting
        order = {attempt.token: index for index, attempt in enumerate(self.step.attempts)}
        latest = -1
        for message in new:
            if self.origin is not None:
                self._place_foreign(message)
            elif headers.get(message.header, headers.SCHEDULER):
                self._place_produced(message)
            elif not headers.get(message.header, headers.MARKER_REASON):
                token = headers.get(message.header, b"X-Token") or message.payload
                attempt = waiting.get(token)
                if attempt is None or token in self.tokens:
                    raise self.broken(f"{message} is stored twice, or was never published")
                self._check_content(attempt, message)
                if order[token] < latest:
                    raise self.broken(f"{message} is behind what was published later")
                latest, attempt.seq = order[token], message.seq
                self.tokens[token] = message.seq
        self._check_batches(after)

    def _check_content(self, attempt: Attempt, message: StoredMessage) -> None:
        if attempt.refused:
            raise self.broken(f"{message} was refused and is stored: {attempt.answer}")
        if attempt.acked_seq not in (0, message.seq):
            raise self.broken(f"{message} was acknowledged as {attempt.acked_seq}")
        lines = set(attempt.header.split(b"\r\n")) - set(message.header.split(b"\r\n"))
        if message.subject != attempt.subject or any(not line.startswith(b"Nats-TTL:") for line in lines):
            raise self.broken(f"{message} was published as {attempt}")
        if attempt.incr is None and message.payload != attempt.payload:
            raise self.broken(f"{message} was published as {attempt}")

    def _check_totals(self, after: Snapshot) -> None:
        """Add up what was counted; an increment without an answer and without a message may count or not, once.

        A counter starts over where a limit of the stream has dropped its last message, as in nats-server.
        """
        totals = {m.subject: {total_of(m)} for _, m in sorted(self.before.messages.items())}
        stored = [m.subject for _, m in sorted(self.before.messages.items())]
        for attempt in self.step.attempts:
            possible = totals.get(attempt.subject, {0})
            if attempt.subject in stored and self._drops_behind(stored[::-1].index(attempt.subject)):
                possible = possible | {0}
            added = {total + (attempt.incr or 0) for total in possible}
            reported = (attempt.answer or {}).get("val")
            message = after.messages.get(attempt.seq)
            value = total_of(message) if message is not None else int(reported) if reported is not None else None
            if attempt.refused:
                continue
            if (value is not None and value not in added) or (reported is not None and int(reported) != value):
                raise self.broken(f"{attempt} counts {message or value}, it should be {added}")
            totals[attempt.subject] = {value} if value is not None else possible | added
            if attempt.seq:
                stored.append(attempt.subject)

    def _drops_behind(self, later: int) -> bool:
        """Return whether a limit may have dropped a message with so many behind it, and the unseen ones."""
        return any(0 < config.get("max_msgs", 0) <= later + self._unseen for config in self.step.configs)

    def _place_foreign(self, message: StoredMessage) -> None:
        assert self.origin is not None
        if self.mirrors:
            theirs = self.origin.history.get(message.seq)
            if theirs is None and self.origin.may_have_held(message):
                return
            if theirs is None or theirs._replace(header=passed_on(theirs.header)) != message:
                raise self.broken(f"{message} is not the origin's {theirs}")
            return
        if headers.get(message.header, headers.MARKER_REASON) and not headers.get(
            message.header, headers.STREAM_SOURCE
        ):
            return
        source = (headers.get(message.header, headers.STREAM_SOURCE) or b"").split(b" ")
        seq = int(source[1]) if len(source) > 1 else 0
        theirs = self.origin.history.get(seq)
        if theirs is None and self.origin.may_have_held(message):
            theirs = message
        if theirs is None or (theirs.subject, theirs.payload) != (message.subject, message.payload):
            raise self.broken(f"{message} is not the origin's {theirs}")
        if seq <= self.sourced_seq:
            raise self.broken(f"{message} was sourced again: {self.sourced_seq} is passed")
        self.sourced_seq = seq

    def may_have_held(self, message: StoredMessage) -> bool:
        """Return whether an unseen message may have come and gone within a step."""
        attempt = self.attempted.get(message.payload)
        own = headers.get(message.header, headers.MARKER_REASON) or headers.get(message.header, headers.SCHEDULER)
        return bool(own) or (attempt is not None and attempt.subject == message.subject)

    def _place_produced(self, message: StoredMessage) -> None:
        """Check that a schedule fires once, and when it should."""
        token = message.payload
        if token in self.produced:
            raise self.broken(f"{message} was produced before, as {self.produced[token]}")
        self.produced[token] = message.seq
        schedule = self.history.get(self.tokens.get(token, 0))
        if schedule is not None and message.ts_ns < due_of(schedule):
            raise self.broken(f"{message} was produced too early by {schedule}")

    def _check_batches(self, after: Snapshot) -> None:
        batches: dict[int, list[Attempt]] = {}
        for attempt in self.step.attempts:
            if attempt.batch:
                batches.setdefault(attempt.batch, []).append(attempt)
        for members in batches.values():
            found = [(index, member.seq) for index, member in enumerate(members) if member.seq]
            acked = members[-1].acked_seq
            if not found and not acked:
                continue
            first_seq = found[0][1] - found[0][0] if found else acked - len(members) + 1
            together = all(seq == first_seq + index for index, seq in found)
            if not together or first_seq <= self.before.last_seq or first_seq + len(members) - 1 > after.last_seq:
                raise self.broken(f"a batch of {len(members)} is stored in part: {found}")
            for index, member in enumerate(members):
                member.seq = first_seq + index

    def _passed(self, after: Snapshot) -> list[StoredMessage]:
        """Return the messages that came and went within the step."""
        known = {attempt.seq or attempt.acked_seq: attempt for attempt in self.step.attempts}
        unknown = [a for a in self.step.attempts if not (a.seq or a.acked_seq or a.refused)]
        passed: list[StoredMessage] = []
        self._unseen = 0
        for seq in range(self.before.last_seq + 1, after.last_seq + 1):
            if seq in after.messages:
                continue
            attempt = known.get(seq)
            if attempt is not None:
                attempt.seq = seq
                self.tokens[attempt.token] = seq
                passed.append(attempt.message(seq))
            elif not unknown and not self.step.removers and not self._makes_messages:
                raise self.broken(f"sequence {seq} was used up by nobody")
            else:
                self._unseen += 1
        for attempt in self.step.attempts:
            if attempt.acked_seq > after.last_seq:
                raise self.broken(f"{attempt} was acknowledged; the stream ends at {after.last_seq}")
            if attempt.expected_last is not None and attempt.acked_seq not in (0, attempt.expected_last + 1):
                raise self.broken(f"{attempt} was stored although something else is last")
        return passed

    @property
    def _makes_messages(self) -> bool:
        wishes = ("allow_msg_schedules", "subject_delete_marker_ttl")
        return self.origin is not None or any(self.config.get(wish) for wish in wishes)

    def check_end(self) -> None:
        """Raise Violation unless a mirror that has had time to catch up ends with its origin.

        Of messages that went from the origin's end before the mirror took them nobody hears: nats-server's mirror ends
        before them too.
        """
        assert self.origin is not None
        theirs = self.origin.before
        if not max(theirs.messages, default=0) <= self.before.last_seq <= theirs.last_seq:
            raise self.broken(f"ends at {self.before.last_seq}, its origin at {theirs.last_seq}")

    # Reasons

    def _may_go(self, message: StoredMessage, others: list[StoredMessage], after: Snapshot, now_ns: int) -> bool:
        if any(wanted(message) for wanted in self.step.removers) or self.may_go(message):
            return True
        later = [m for m in {m.seq: m for m in (*others, *after.messages.values())}.values() if m.seq > message.seq]
        for config in self.step.configs:
            if expired(message, config, now_ns) or pushed_out(message, later, config, self._unseen):
                return True
        if any(rolls_up(other, message) or ends_schedule(other, message) for other in later):
            return True
        if self._unseen and self._rolled_up_unseen(message):
            return True
        return bool(headers.get(message.header, headers.SCHEDULE)) and (
            message.payload in self.produced or self._unseen > 0
        )

    def _rolled_up_unseen(self, message: StoredMessage) -> bool:
        """Return whether a rollup that came and went within the step may have removed a message."""
        if self.origin is None:
            return any(not attempt.refused and rolls_up(attempt, message) for attempt in self.step.attempts)
        source = (headers.get(message.header, headers.STREAM_SOURCE) or b"").split(b" ")
        seq = int(source[1]) if len(source) > 1 else message.seq
        return any(
            not attempt.refused and not 0 < attempt.seq <= seq and rolls_up(attempt, message)
            for attempt in self.origin.attempted.values()
        )

    def _check_obligations(self, after: Snapshot, now_ns: int) -> None:
        for seq, message in after.messages.items():
            if seq in self.before.messages and any(wanted(message) for wanted in self.step.confirmed):
                raise self.broken(f"{message} was deleted or purged and is there")
            if expired(message, self.config, now_ns - SLACK_NS) and not self.step.crashed:
                raise self.broken(f"{message} is there although its time is over")
            if self.must_go(message):
                raise self.broken(f"{message} is there although everybody has acknowledged it")
            late = now_ns - SLACK_NS if self.config.get("allow_msg_schedules") and not self.step.crashed else 0
            if headers.get(message.header, headers.SCHEDULE) and due_of(message) < late:
                raise self.broken(f"the schedule {message} did not fire, or stayed")
        self._check_limits(after.messages.values())
        self._check_rollups(after)

    def _check_rollups(self, after: Snapshot) -> None:
        """Check that the messages that a rollup replaces are gone wherever the rollup is present."""
        for later in after.messages.values() if self.origin is None else ():
            if later.seq not in self.before.messages and headers.get(later.header, headers.ROLLUP):
                kept = [m for m in after.messages.values() if m.seq < later.seq and rolls_up(later, m)]
                if kept:
                    raise self.broken(f"{later} is there beside what it rolls up: {kept}")

    def _check_limits(self, messages: Collection[StoredMessage]) -> None:
        """A limit that was tightened takes nothing out of a stream that refuses new messages; it lets no more in.

        What takes the place of another message of its subject is not more.
        """
        configs = [self.config]
        if self.config.get("discard") == "new":
            if len(messages) <= len(self.before.messages):
                return
            configs = self.step.configs  # what is new may have come before the limit
        excesses = [self._excess(messages, config) for config in configs]
        if all(excesses):
            raise self.broken(excesses[-1])

    def _excess(self, messages: Collection[StoredMessage], config: dict[str, Any]) -> str:
        """Return how the limits of a configuration are exceeded, "" where they are not."""
        max_msgs, per_subject = config.get("max_msgs", 0), config.get("max_msgs_per_subject", 0)
        counts: dict[bytes, int] = {}
        size = 0
        for message in messages:
            counts[message.subject] = counts.get(message.subject, 0) + 1
            size += size_of(message)
        if 0 < max_msgs < sum(counts.values()) or 0 < config.get("max_bytes", 0) < size:
            return f"{sum(counts.values())} messages of {size} bytes: more than the limits allow"
        if 0 < per_subject < max(counts.values(), default=0):
            return f"more than {per_subject} messages of a subject: {counts}"
        return ""

    def _check_markers(
        self, gone: list[StoredMessage], came: list[StoredMessage], after: Snapshot, now_ns: int
    ) -> None:
        """Check that a marker is left where the last message of a subject went by age or TTL."""
        marker_ns = self.config.get("subject_delete_marker_ttl", 0)
        if not marker_ns or self.step.removers or self.mirrors:
            return
        alive = {m.subject for m in (*after.messages.values(), *came)}
        alive |= {m.subject for m in gone if self._otherwise(m, came, after)}
        unmarked = []
        for message in gone:
            due_ns = end_of(message, self.config)
            in_time = due_ns <= now_ns < max(self._time_ns, due_ns) + marker_ns
            if in_time and message.subject not in alive and not headers.get(message.header, headers.MARKER_REASON):
                unmarked.append(message)
        if len(unmarked) > self._unseen:
            raise self.broken(f"{unmarked} expired without a delete marker")
        self._time_ns = now_ns

    def _otherwise(self, message: StoredMessage, came: list[StoredMessage], after: Snapshot) -> bool:
        """Return whether a message was removed for another reason than its age."""
        later = [m for m in (*came, *after.messages.values()) if m.seq > message.seq]
        scheduled = bool(headers.get(message.header, headers.SCHEDULE))
        return (
            scheduled
            or self.may_go(message)
            or any(pushed_out(message, later, config, self._unseen) for config in self.step.configs)
            or any(rolls_up(other, message) for other in later)
        )

    # Ids

    def in_window(self, msg_id: bytes, now_ns: int) -> int:
        """Return the sequence of an id for the ack of a retry, 0 when it is forgotten or was never stored."""
        seq, ts_ns = self.ids.get(msg_id, (0, 0))
        return seq if seq and ts_ns > now_ns - self.config.get("duplicate_window", 120_000_000_000) else 0

    def restored(self) -> None:
        """Expect no more of the ids that a backup does not hold: those of messages that are gone."""
        self._unsure |= self.ids.keys()
        self.ids = {msg_id: entry for msg_id, entry in self.ids.items() if entry[0] in self.before.messages}

    def _note_ids(self, after: Snapshot) -> None:
        """Check the acks of publishers with ids, in their order, and record the stored messages."""
        for attempt in self.step.attempts:
            if not attempt.msg_id:
                continue
            known, answer = self.in_window(attempt.msg_id, attempt.ts_ns), attempt.answer
            if answer is not None and answer.get("duplicate"):
                if known != answer["seq"] and attempt.msg_id not in self._unsure:
                    raise self.broken(f"{attempt} was called a duplicate; known is {known}")
            elif known > 0 and (attempt.seq or attempt.acked_seq):
                raise self.broken(f"{attempt} was stored again; it is {known}")
            if attempt.seq or attempt.acked_seq:
                self.ids[attempt.msg_id] = (attempt.seq or attempt.acked_seq, attempt.ts_ns)
            elif answer is None and self._unseen:
                self._unsure.add(attempt.msg_id)


class ConsumerModel:
    """One durable consumer with explicit acks as its client knows it."""

    def __init__(self, name: str, model: StreamModel, pattern: str = ">") -> None:
        self.name = name
        self.model = model
        self.pattern = pattern
        self._filters = Filters((pattern.encode(),))
        self.held: list[tuple[int, Message]] = []
        """Deliveries that wait for an ack: sequence and message."""
        self.delivered: set[int] = set()
        self.acked: set[int] = set()
        """Sequences for which an ack was sent."""
        self.confirmed: set[int] = set()
        self.at_rest: list[Any] | None = None

    @property
    def config(self) -> dict[str, Any]:
        return {"durable_name": self.name, "ack_policy": "explicit", "ack_wait": 3_000_000_000} | (
            {"filter_subject": self.pattern} if self.pattern != ">" else {}
        )

    def takes(self, message: StoredMessage) -> bool:
        return self._filters.matches(message.subject)

    def arrived(self, message: Message) -> None:
        if message.status:
            return
        seq = int(message.reply.split(b".")[5])
        if seq in self.confirmed:
            raise Violation(f"{self.name} delivered {seq} again, whose ack it had confirmed")
        held = self.model.history.get(seq)
        if held is not None and (held.subject, held.payload) != (message.subject, message.payload):
            raise Violation(f"{self.name} delivered {message} for {held}")
        self.delivered.add(seq)
        self.held.append((seq, message))

    def check(self, consumer: Consumer, info: dict[str, Any], snapshot: Snapshot) -> None:
        """Compare its state and its deliveries with the stream; raises Violation."""
        state, last_delivered = consumer.state, info["delivered"]["stream_seq"]
        left = [m.seq for m in snapshot.messages.values() if m.seq > last_delivered and self.takes(m)]
        if info["num_pending"] != len(left):
            raise Violation(f"{self.name} has {info['num_pending']} pending, the stream {left} behind {last_delivered}")
        if info["num_ack_pending"] != len(state.pending):
            raise Violation(f"{self.name} reports {info['num_ack_pending']} of {sorted(state.pending)}")
        if again := self.confirmed & state.pending.keys():
            raise Violation(f"{self.name} waits for confirmed acks {again}")
        wanted = {m.seq for m in snapshot.messages.values() if self.takes(m)}
        if lost := wanted & set(range(1, last_delivered + 1)) - state.pending.keys() - self.acked:
            raise Violation(f"{self.name} is past {sorted(lost)}, which nobody acknowledged")
        if state.pending and not info["ack_floor"]["stream_seq"] < min(state.pending) <= last_delivered:
            raise Violation(
                f"{self.name}: floor {info['ack_floor']}, pending {sorted(state.pending)}, {last_delivered}"
            )
        if max(self.confirmed, default=0) > last_delivered:
            raise Violation(f"{self.name} stands at {last_delivered}, confirmed is {max(self.confirmed)}")


def retention_of(model: StreamModel, consumers: list[ConsumerModel]) -> None:
    """Set on a model when the acks of its consumers may remove messages, and when they must."""
    policy = model.config.get("retention", "limits")
    if policy == "limits":
        return

    def may_go(message: StoredMessage) -> bool:
        takers = [c for c in consumers if c.takes(message)]
        return all(message.seq in c.acked for c in takers) and (bool(takers) or policy == "interest")

    def must_go(message: StoredMessage) -> bool:
        takers = [c for c in consumers if c.takes(message)]
        return bool(takers) and all(message.seq in c.confirmed for c in takers)

    model.may_go, model.must_go = may_go, must_go
