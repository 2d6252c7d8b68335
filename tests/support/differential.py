"""The same conversation with natsctl's engine in memory and with a reference server over TCP: both must tell the same.

How to use it. A conversation is a function that takes a `Talk`: `t.jet` does things (see `natsctl.testing.jet.Jet`),
and what `t` itself does is noted: `t.ask(verb, body)` an API answer, `t.create(name, **config)` a consumer's creation,
`t.pull(body)` what a pull request brought, `t.note(messages)` any messages, `t.event(sid)` advisories. Times, ids and
other values that differ from run to run are taken out; key order, header lines and texts stay. A test file is:

    scenario = Scenarios()

    @scenario
    def one_message_goes_round(t: Talk) -> None:
        t.create(max_deliver=3)
        t.jet.publish("1")
        (one,) = t.pull()
        t.note(t.jet.double_ack(one))
        t.ask("CONSUMER.INFO.S.C")

    @pytest.mark.reference
    @pytest.mark.parametrize("runs", scenario.together(), ids=names_of)
    def test_both_tell_the_same(runs: Sequence[Scenario], tmp_path: Path) -> None:
        assert_all_same(runs, tmp_path)

Every conversation starts with the empty stream S on `s.>`, or with what `prepare` makes (`Scenarios(prepare)`).
`assert_all_same` prints what differs as pairs of notes, ours and theirs. It has several conversations at once, each
with a reference server of its own: most of one is waiting. `assert_same` has one with a server that runs.

What `tests.support.live_wire` does not find within its `PATIENCE_S`, and what comes beyond, is a difference. Real
time passes for the reference (`jet.advance` sleeps there), so times leave room for a slow machine between the steps,
and what `assert_all_same` reports was told otherwise, or broke off, in each of `TRIES` conversations.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, cast

from natsctl.testing.jet import Jet
from natsctl.testing.machine import Machine, Message
from natsctl.testing.process import ServerProcess, alike
from tests.support.live_wire import PATIENCE_S, Live, Score

MAX_DIFFERENCES: Final = 2
"""Different answers of `*.INFO.*` after which a conversation is broken off: each has cost `PATIENCE_S`."""

BESIDE: Final = 8
"""How many conversations are had with reference servers at once."""

TRIES: Final = 3
"""How often a conversation is had before a difference counts: one that is a machine's, busy for a second, goes away."""

AGAIN = (".INFO.", ".RESET.")
"""Requests that leave everything as one of them does: the reference confirms some acks before it carries them out."""


class Diverged(Exception):
    """The two have told too different things for the rest to say anything."""


class Talk:
    """A Jet that notes what it was answered, without what differs from run to run."""

    def __init__(self, jet: Jet, expected: Sequence[Any] = ()) -> None:
        """`expected` are the notes of the one that told before."""
        self.jet = jet
        self.expected = expected
        self.notes: list[Any] = []
        self._differences = 0

    def create(self, consumer: str = "C", form: str = "DURABLE.CREATE.S.{name}", **config: Any) -> Any:
        """Create a consumer and note the answer."""
        action = config.pop("action", "")
        config = {"durable_name": consumer, "ack_policy": "explicit", **config}
        config = {key: value for key, value in config.items() if value is not None}
        body: dict[str, Any] = {"stream_name": "S", "config": config}
        if action:
            body["action"] = action
        return self.ask("CONSUMER." + form.format(name=consumer), body)

    def ask(self, verb: str, body: object = b"") -> Any:
        """Ask the API and note the answer; what may be asked twice is asked until both say the same, or for a while."""
        answer = self.jet.api(verb, body)
        deadline = time.monotonic() + PATIENCE_S
        while any(word in verb for word in AGAIN) and self._differs((verb, scrub(answer))):
            if time.monotonic() > deadline:
                self._differences += 1
                break
            answer = self.jet.api(verb, body)
        self.notes.append((verb, scrub(answer)))
        if self._differences >= MAX_DIFFERENCES:
            raise Diverged
        return answer

    def _differs(self, note: Any) -> bool:
        """Whether the one that told before told something else at this place."""
        place = len(self.notes)
        return place < len(self.expected) and self.expected[place] != note

    def pull(self, body: object = b"", name: str = "C") -> list[Message]:
        """Pull and note what came."""
        messages = self.jet.pull(body, name)
        self.note(messages)
        return [m for m in messages if not m.status]

    def note(self, messages: list[Message]) -> None:
        """Note messages."""
        for m in messages:
            reply = re.sub(rb"\.\d{19}\.", b".T.", m.reply)
            reply = re.sub(rb"^(\$JS\.FC\.S\.C\.).*", rb"\1X", reply)
            header = re.sub(rb"\.\d{19}\.", b".T.", m.header)
            self.notes.append(
                (b"" if m.subject.startswith(b"_INBOX") else m.subject, reply, alike(header), alike(m.payload))
            )

    def event(self, sid: bytes) -> None:
        """Note advisories without what differs from run to run."""
        for m in self.jet.heard(sid):
            self.notes.append((m.subject, scrub(m.json())))


DROPPED = (
    "ts", "created", "last_active", "id", "timestamp", "ack_time", "pause_remaining", "first_ts", "last_ts", "cluster",
)  # fmt: skip


def scrub(value: Any) -> Any:
    """Return an answer without times, ids and names of servers."""
    if isinstance(value, dict):
        return [(k, scrub(v)) for k, v in value.items() if k not in DROPPED]
    if isinstance(value, str):
        return alike(value)
    return [scrub(v) for v in value] if isinstance(value, list) else value


Scenario = Callable[[Talk], None]


def empty_stream(t: Talk) -> None:
    """Make the stream S on `s.>`."""
    t.jet.stream()


class Scenarios(list[Scenario]):
    """The conversations of a test file; used as a decorator it takes one more."""

    def __init__(self, prepare: Scenario = empty_stream) -> None:
        """`prepare` is what each of them starts with."""
        super().__init__()
        self._prepare = prepare

    def __call__(self, function: Scenario) -> Scenario:
        """Register a conversation."""

        def prepared(t: Talk) -> None:
            self._prepare(t)
            function(t)

        prepared.__name__ = function.__name__
        self.append(prepared)
        return function

    def together(self) -> list[Sequence[Scenario]]:
        """Return the conversations in groups that may be had at once; their order says nothing."""
        groups = -(-len(self) // BESIDE)
        return [self[at::groups] for at in range(groups)]


def names_of(runs: Sequence[Scenario]) -> str:
    """Return what a group of conversations is called in a list of tests."""
    return f"{runs[0].__name__}-and-{len(runs) - 1}-more"


def told(run: Scenario, talk: Talk) -> list[Any]:
    """Have a conversation and return its notes."""
    with suppress(Diverged):
        run(talk)
    return talk.notes


def ours(run: Scenario, machine: Machine | None = None) -> tuple[list[Any], Score]:
    """Have a conversation with an engine (`machine`, or a new one); return its notes and what it gave."""
    jet = Jet(machine)
    score = Score(jet.wire)
    return told(run, Talk(jet)), score


def differences(run: Scenario, url: str, notes: list[Any], score: Score) -> str:
    """Have a conversation with the server at `url` and return what it tells otherwise than an engine did."""
    live = Live(url, score)
    with closing(live.connect()) as wire:
        theirs = told(run, Talk(Jet(cast(Machine, live)), notes))
        different = [(mine, other) for mine, other in zip(notes, theirs, strict=False) if mine != other]
        if different:
            return "\n\n".join(f"ours   {mine}\ntheirs {other}" for mine, other in different)
        if len(notes) != len(theirs):
            return f"{len(notes)} notes of ours, {len(theirs)} of theirs"
        return f"theirs has sent more that nobody took:\n{excess}" if (excess := wire.excess()) else ""


def assert_same(run: Scenario, url: str, machine: Machine | None = None) -> None:
    """Have a conversation with an engine (`machine`, or a new one) and with the server at `url`, and compare."""
    different = differences(run, url, *ours(run, machine))
    assert not different, different


def assert_all_same(runs: Sequence[Scenario], folder: Path) -> None:
    """Have each conversation with an engine, then all at once with reference servers below `folder`, and compare."""

    def compared(at: int, run: Scenario, notes: list[Any], score: Score) -> str:
        for attempt in range(TRIES):
            try:
                with ServerProcess(folder / f"{at}-{attempt}", "reference") as server:
                    different = differences(run, server.url, notes, score)
            except Exception:  # what came late is missed by the conversation itself, wherever it counts on it
                different = traceback.format_exc()
            if not different:
                return ""
        return f"{run.__name__}\n{different}"

    told_first = [(run, *ours(run)) for run in runs]
    with ThreadPoolExecutor(BESIDE) as pool:
        running = [pool.submit(compared, at, *one) for at, one in enumerate(told_first)]
        found = [text for future in running if (text := future.result())]
    assert not found, "\n\n".join(found)
