"""A whole server in memory, without sockets, threads or waiting: broker, store and JetStream engine on a virtual clock.

Theory of operation. `Machine` does what the server's shell does, one step at a time: it lets consumers run, commits
dirty data, and moves clients' output. `settle` repeats that until nothing is left to do; `advance` moves the clock
from deadline to deadline and settles at each. Clients speak the wire protocol in bytes, so a test sees
the same as a client library.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.session import Session
from natsctl.jetstream.engine import Engine
from natsctl.jetstream.engine_options import JetStreamOptions
from natsctl.jetstream.streams.stream import Stream
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Commit, Committable
from natsctl.store.options import StoreOptions
from natsctl.store.store import Store
from natsctl.wire import ops
from natsctl.wire.client import encode_connect, encode_pub, encode_sub, encode_unsub
from tests.support.clock import VirtualClock
from tests.support.server_parser import MSG, ServerParser
from tests.support.simdisk import SimDisk

TURN_BUDGET: Final = 2048
END_SHARE: Final = 0.4
"""Probability that a commit in flight on a slow disk ends in a turn."""
MAX_TURNS: Final = 10_000
"""Turns after which a machine that does not come to rest is called broken."""


class Message(NamedTuple):
    subject: bytes
    sid: bytes
    reply: bytes
    header: bytes
    payload: bytes

    @property
    def status(self) -> bytes:
        """Return the status line of the header block without its version, or b""."""
        return self.header.split(b"\r\n", 1)[0].removeprefix(b"NATS/1.0").strip()

    def json(self) -> Any:
        return msgspec.json.decode(self.payload)


class Wire:
    """One client: bytes in, messages out."""

    def __init__(self, machine: Machine, session: Session) -> None:
        self._machine = machine
        self.session = session
        self._parser = ServerParser()
        self._inbox: list[Message] = []
        self._sids = 0
        self.errors: list[bytes] = []
        self.raw: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.session.receive(data)
        self._machine.settle()

    def publish(self, subject: str, payload: bytes = b"", reply: str = "", header: bytes = b"") -> None:
        self.send(encode_pub(subject.encode(), reply.encode(), header, payload))

    def subscribe(self, subject: str, queue: str = "") -> bytes:
        self._sids += 1
        sid = b"%d" % self._sids
        self.send(encode_sub(subject.encode(), queue.encode(), sid))
        return sid

    def unsubscribe(self, sid: bytes) -> None:
        self.send(encode_unsub(sid, 0))

    def request(self, subject: str, body: object = b"", header: bytes = b"") -> Any:
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self._sids += 1
        sid, inbox = b"%d" % self._sids, b"_INBOX.%d.%d" % (self.session.cid, self._sids)
        ask = encode_sub(inbox, b"", sid) + encode_unsub(sid, 1) + encode_pub(subject.encode(), inbox, header, payload)
        self.send(ask)
        answers = [m for m in self._inbox if m.sid == sid]
        self._inbox = [m for m in self._inbox if m.sid != sid]
        assert len(answers) == 1, f"{subject}: {len(answers)} answers"
        return answers[0].json() if answers[0].payload else answers[0]

    def take(self, sid: bytes | None = None) -> list[Message]:
        taken = [m for m in self._inbox if sid in (None, m.sid)]
        self._inbox = [m for m in self._inbox if sid not in (None, m.sid)]
        return taken

    def drain(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            for op in self._parser.feed(chunk):
                if op[0] == MSG:
                    self._inbox.append(Message(*op[1:]))
                elif op[0] == ops.ERR:
                    self.errors.append(op[1])

    def close(self) -> None:
        """Disconnect without notice, as a broken connection does."""
        self.session.closed()
        self._machine.settle()


class Machine:
    """Broker, store and engine on one virtual clock and one simulated disk."""

    def __init__(
        self,
        disk: SimDisk | None = None,
        clock: VirtualClock | None = None,
        seed: int = 0,
        store_options: StoreOptions | None = None,
        options: JetStreamOptions | None = None,
        broker_options: BrokerOptions | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.disk = disk or SimDisk(self.rng)
        self.clock = clock or VirtualClock()
        self.log: list[str] = []
        self.broker = Broker(self.clock, self.rng, broker_options or BrokerOptions())
        self._options = options
        self._store_options = store_options or StoreOptions()
        self.store = Store(self.disk, self._store_options, self._salt, self.clock.monotonic_ns, self.log.append)
        self.report = self.store.open()
        self.engine = Engine(self.store, self.broker, self.clock, self.rng, options)
        self.engine.recover()
        self._readers: dict[Session, Callable[[Iterable[bytes]], None]] = {}
        self._flights: list[tuple[Committable, Commit, bool]] = []
        """Commits that have begun and not ended: owner, commit, whether the disk work is done."""
        self.hold_commits = False
        self.slow: random.Random | None = None
        """Draws which commits stay in flight while clients go on, as on a slow disk; `settle` leaves them there."""
        self.settle()

    def _salt(self) -> int:
        return self.rng.getrandbits(32) | 1

    @property
    def streams(self) -> dict[str, Stream]:
        return self.engine.accounts["$G"].streams

    def connect(self, name: str = "test", **options: Any) -> Wire:
        session = self.broker.connect("127.0.0.1", 40000)
        wire = Wire(self, session)
        self._readers[session] = wire.drain
        connect = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "name": name}
        connect |= {"lang": "raw", "version": "0", "protocol": 1, **options}
        wire.send(encode_connect(connect))
        return wire

    def attach(self, session: Session, reader: Callable[[Iterable[bytes]], None]) -> None:
        """Pass `reader` the bytes that the server writes to a connection other than a client's."""
        self._readers[session] = reader

    def release_commits(self) -> None:
        """Commit what `hold_commits` held back, and come to rest."""
        self.hold_commits = False
        self.settle()

    def turn(self) -> bool:
        """Run one cycle of the event loop, and return whether there may be more to do."""
        more = bool(self.broker.long_work)
        if more:
            self.broker.long_work.step()
        more = self.engine.run_ready(TURN_BUDGET) or more
        worked = self.commit() if not self.hold_commits else False
        self._drain()
        return more or worked

    def commit(self) -> bool:
        """Commit every dirty stream once, and return whether there was one, or one in flight."""
        waiting, self._flights = self._flights, []
        for stream in tuple(self.store.dirty):
            commit = stream.begin_commit()
            if commit is not None:
                waiting.append((stream, commit, False))
        for stream, commit, done in waiting:
            if self.slow is None or self.slow.random() < END_SHARE:
                self._end(stream, commit, done)
            else:
                self._flights.append((stream, commit, done or self._runs_ahead(commit)))
        return bool(waiting)

    def _runs_ahead(self, commit: Commit) -> bool:
        """Choose whether the disk work of a commit in flight is done now or with its end; return the choice."""
        if self.slow is None or self.slow.random() < 0.5:
            return False
        commit.run()
        return True

    def _end(self, stream: Committable, commit: Commit, done: bool) -> None:
        fault: OSError | StoreError | None = None
        try:
            if not done:
                commit.run()
        except (OSError, StoreError) as error:
            fault = error
        stream.finish_commit(commit, fault)

    def settle(self) -> None:
        """Run cycles until nothing is left to do at this moment; a few cycles if commits are slow."""
        if self.slow is not None:
            for _ in range(self.slow.randint(1, 3)):
                self.turn()
            return
        for _ in range(MAX_TURNS):
            if not self.turn():
                self._drain()
                return
        raise AssertionError(f"not at rest after {MAX_TURNS} turns")

    def advance(self, ns: int) -> None:
        """Advance the clock, stopping at every deadline on the way."""
        end = self.clock.monotonic_ns() + ns
        while True:
            deadline = self.engine.next_deadline_ns()
            if deadline is None or deadline > end:
                break
            self.clock.advance(max(deadline - self.clock.monotonic_ns(), 0))
            self.engine.run_timers()
            self.settle()
        self.clock.advance(end - self.clock.monotonic_ns())
        self.settle()

    def restarted(self, crash: Callable[[SimDisk], None] = SimDisk.kill) -> Machine:
        """Return a new machine on the disk of this one, after `kill` or `power_loss`."""
        crash(self.disk)
        return Machine(self.disk, self.clock, self.rng.getrandbits(32), self._store_options, self._options)

    def _drain(self) -> None:
        for session in self.broker.take_dirty():
            chunks = session.take_output()
            reader = self._readers.get(session)
            if reader is not None:
                reader(chunks)
