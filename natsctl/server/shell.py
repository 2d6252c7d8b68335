"""The turn of the loop: work done once, after everything that had arrived was read.

Chunks go into sessions as they arrive; anything that leaves waits for the turn.  A turn begins the commits of the
streams that were appended to, lets consumers deliver a bounded number of messages, and writes each session's output
with one call, or with several in later turns if it is large. Commits that finish, timers and new chunks ask for the
next turn.  Nothing here knows the protocol or the API.

Publishers that were acknowledged together send their next messages together, but not within one read of the loop.
Before a turn that begins the sync of one stream the loop therefore reads again while it finds little input from several
clients, and waits a moment for as many as sent before: a message that arrives just after a commit began waits for two
syncs.

A client that answers at once does so before the process is asleep and awake again. While the next input came soon after
a turn on average, the loop of a server's own process therefore goes on reading for `AWAKE_NS` without going to sleep.

Back-pressure: a stream with too much waiting for its sync makes the connections that go on publishing into it stop
being read until it has caught up; others are not touched.

Log lines about offences of clients are limited: a client can offend with every few bytes it sends. `MAX_LINES` of a
second are written; the number of the others stands before the first line of a later second.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from natsctl.api.units import SECOND, format_duration
from natsctl.broker.deferred_work import (
    MANY_LINES,
    PIECE_BYTES,
    SLICE_NS,
    count_lines,
    cut,
    defer_input,
    is_crowded,
    must_wait,
    receive_pieces,
    resume_work,
)
from natsctl.broker.refusals import CloseReason
from natsctl.server.log.lines import Log
from natsctl.server.logins import LoginThreads

if TYPE_CHECKING:
    from natsctl.api.times import Clock
    from natsctl.broker.broker import Broker
    from natsctl.broker.session import Session
    from natsctl.jetstream.engine import Engine
    from natsctl.server.committer import Committer
    from natsctl.server.listener import ClientConnection
    from natsctl.server.options import OcspPeerOptions
    from natsctl.store.stream import StreamStore


MAX_LINES: Final = 200
"""Lines that are written of each second."""


class OffenceLog:
    """Log of offences of clients, limited to `MAX_LINES` a second."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._began_ns = 0
        self._lines = 0

    def log(self, session: Session, text: str) -> None:
        if self._may_write():
            self._log.error(f"{session.log_name} - {text}")

    def warn(self, text: str) -> None:
        if self._may_write():
            self._log.warn(text)

    def _may_write(self) -> bool:
        now = self._clock.monotonic_ns()
        if now - self._began_ns >= SECOND:
            dropped = self._lines - MAX_LINES
            self._began_ns, self._lines = now, 0
            if dropped > 0:
                self._log.error(f"{dropped} more lines about clients were left out")
        self._lines += 1
        return self._lines <= MAX_LINES


READY_BUDGET: Final = 2048
"""Messages that consumers may deliver in one turn."""

TURN_BYTES: Final = 1 << 20
"""Bytes read before a turn is taken at once: a fast publisher must not delay the others' acks."""

GATHERED_BYTES: Final = 16 << 10
GATHERED_CHUNKS: Final = 256
"""Input after which a commit begins without another look for more."""
MANY_CHUNKS: Final = 4
"""Chunks of a commit that are worth a wait of `GATHER_NS` for as many."""
GATHER_NS: Final = 100_000
"""Time to wait for the next of them: a part of a sync, and more than a client needs for its answer."""

LONG_S: Final = 0.006
"""A turn ends if an operation has taken this much longer than a slice: one message may concern 10,000 consumers."""
INPUT_NS: Final = 6_000_000
"""Time of input that is carried out between two turns; thousands of connections may have some for one iteration."""
SHORT_INPUT: Final = 64
"""Bytes of input that are accepted at once also after that: a few operations, such as a PING."""

READ_BYTES: Final = 256_000
"""Bytes that are read from a socket at once."""
CROWD_READ_BYTES: Final = 8 << 10
"""Bytes that are read at once while many wait for their turns: more than is accepted without a turn (`must_wait`).

To read 64 KB takes 70 µs, and hundreds of connections may have as much for one iteration of the loop.
"""

HANDSHAKES_S: Final = 0.004
"""Time after the first handshake or login of a turn. Others that arrive later than that are deferred."""

AWAKE_NS: Final = 100_000
"""Time that the loop goes on reading after a turn, instead of sleeping."""
SOON_NS: Final = 150_000
"""Maximum average time between a turn and the next input for that, the wake-up of the process included."""
PAUSE_WEIGHT: Final = 4
"""Pauses over which that is averaged."""
MAX_PAUSE_NS: Final = 4 * AWAKE_NS
"""Maximum that one pause counts."""

NEW_CONNECTIONS: Final = 32
"""After too many came at once: new connections that are read from, and deferred logins that are begun, in one turn.

To read and keep what thousands send would take longer than their logins; the system call of an answer may take 60 µs.
"""

WAITING_BYTES: Final = 8 << 20
WAITING_ACKS: Final = 10_000
"""Bytes that may await one stream's sync before its publishers are paused (docs/adr/0002)."""

QUIESCE_S: Final = 10.0
"""Time that a stopping server waits for the last commits; the store's own close syncs the rest."""

OFFENCES: Final = frozenset(CloseReason) - {
    CloseReason.CLIENT_CLOSED,
    CloseReason.SERVER_SHUTDOWN,
    CloseReason.READ_ERROR,
    CloseReason.WRITE_ERROR,
    CloseReason.SLOW_CONSUMER_PENDING_BYTES,
    CloseReason.SLOW_CONSUMER_WRITE_DEADLINE,
}
"""Reasons for closing a client that are logged without debugging; slow consumers have lines of their own."""

UNFINISHED_S: Final = 0.002
"""Time of a turn for the deferred work of sessions, for deferred handshakes, and for lost connections."""

LATE: Final = 32
"""Connections that miss their write deadline in one turn: the log line and the end of one may take 0.1 ms."""

FLUSHED: Final = 256
"""Sessions with output that are flushed at once: a message to thousands must not delay the others. One takes 4-9 µs."""
FLUSHES_A_LOOK: Final = 16
"""Later flushes between two looks at the clock."""
TURN_SLICES: Final = 4
"""Slices of large outputs that are written at once; the others leave in later turns."""

LAG_KEPT_S: Final = 60.0
"""Time that the worst lag of the loop is remembered."""
TICK_S: Final = 0.5
"""Interval between checks of the sessions' timers (ping, stale, authentication, write deadline)."""
MIN_TICK_S: Final = 0.02
"""Interval of those checks while one is due soon."""


PeerCheck: TypeAlias = "Callable[[Sequence[bytes], OcspPeerOptions, str, bool], Coroutine[Any, Any, str]]"
"""Checks a verified chain (DER, the other side's certificate first) at its OCSP responders.

It takes the kind of connection, and whether the chain is a server's; it returns the reason of a refusal.
"""


class Shell:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, log: Log, broker: Broker, engine: Engine | None, write_deadline_s: float
    ) -> None:
        """Bind the parts; without JetStream there is neither engine nor committer."""
        self.loop = loop
        self.log = log
        self.broker = broker
        self.engine = engine
        self.committer: Committer | None = None
        self.connections: dict[Session, ClientConnection] = {}
        self.logins = LoginThreads(loop)
        broker.log_info = log.info
        broker.login_decided = self._decided
        broker.hurry = self._set_ticker
        broker.jobs.wake = self.wake
        offences = OffenceLog(log, broker.clock)
        broker.notice, broker.log_warning = offences.log, offences.warn
        self.on_turn: list[Callable[[], None]] = []
        """Calls of every turn, before output is written."""
        self.leaf_shell: Shell | None = None
        """The shell of leaf nodes that connect through the WebSocket listener; None if they are not accepted."""
        self.check_peer: PeerCheck | None = None
        """None on a server without TLS."""
        self.faults = 0
        self.write_deadline_s = write_deadline_s
        self.write_retry = False
        """Clients that miss it are kept as long as they take something within it."""
        self.leaf_write_deadline_s = 0.0
        """The same for leaf nodes; 0: as for clients."""
        self.leaf_write_retry = True
        self._ended: deque[ClientConnection] = deque()
        self._late: dict[ClientConnection, None] = {}
        """Connections that have missed their write deadline."""
        self._is_turn_due = False
        self._read_bytes = self._gather_until_ns = 0
        self._input_since_ns = self._input_end_ns = 0
        """Times of the first and of the last input since the last turn."""
        self._chunks = self._gathered = self._expected = 0
        """Chunks read since the last look for more, since the last turn, and before the last commit."""
        self._ended_early = False
        """The last turn ended after one long operation: in this one, sessions wait for everything else."""
        self._has_more = False
        """The engine goes on with something in the next turn; answers do not wait for that."""
        self._handshakes_end_s = 0.0
        """When this turn stops to begin handshakes and logins; 0 before the first."""
        self._handshakes: deque[tuple[ClientConnection, bytes]] = deque()
        """Connections that are not read while a part of their handshake waits for a turn."""
        self._may_stay_awake = self._is_awake = False
        self._rested_ns = 0
        """Time of the end of the last turn with input."""
        self._pause_ns = MAX_PAUSE_NS
        """Average time from there to the next input."""
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._silent: dict[ClientConnection, None] = {}
        """Connections that have sent nothing yet."""
        self._unread: deque[ClientConnection] = deque()
        """Those among them that are not read from, in the order of their turns."""
        self._unflushed: deque[Session] = deque()
        """Sessions that are flushed in later turns."""
        self._writing: dict[ClientConnection, None] = {}
        """Connections with large output that leaves in later turns."""
        self._slices = 0.0
        """Slices of large output that were written since the last turn."""
        self._overloaded: dict[StreamStore, list[ClientConnection]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._ticker: asyncio.TimerHandle | None = None
        self._lag = (0.0, 0.0)
        """The worst lateness of a tick, and when that was."""

    def start(self) -> None:
        if self.committer is not None:
            self.committer.start()
        self._may_stay_awake = threading.current_thread() is threading.main_thread()
        self._set_ticker()
        self.wake()

    def wake(self) -> None:
        """Ask for a turn after the present read, unless one is due already: the loop reads nothing between two."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self.loop.call_soon(self._take_due_turn)

    def _take_due_turn(self) -> None:
        if self.committer is not None and self.committer.shares_sync and self._gathers():
            self.loop.call_soon(self._take_due_turn)
            return
        self._is_turn_due = False
        had_input = self._read_bytes > 0
        self.turn()
        if had_input:
            self._rested_ns = self.broker.clock.monotonic_ns()
            quiet = self.committer is None or not self.committer.in_flight
            if self._pause_ns <= SOON_NS and quiet and self._may_stay_awake and not self._is_awake:
                self._is_awake = True
                self.loop.call_soon(self._stay_awake)

    def _stay_awake(self) -> None:
        """Have the loop read again, until there is input or `AWAKE_NS` have passed."""
        self._is_awake = not self._is_turn_due and self.broker.clock.monotonic_ns() < self._rested_ns + AWAKE_NS
        if self._is_awake:
            self.loop.call_soon(self._stay_awake)

    def _gathers(self) -> bool:
        """Return whether the loop is to read again before a commit begins."""
        chunks, self._chunks = self._chunks, 0
        gathered = self._gathered = self._gathered + chunks
        several = gathered > 1 or self._expected >= MANY_CHUNKS
        if several and self._read_bytes < GATHERED_BYTES and gathered < GATHERED_CHUNKS:
            if chunks:
                self._gather_until_ns = self.broker.clock.monotonic_ns() + GATHER_NS
                return True
            missing = gathered < self._expected >= MANY_CHUNKS
            if missing and self.broker.clock.monotonic_ns() < self._gather_until_ns:
                return True
        self._expected = max(gathered, self._expected // 2)
        return False

    # Connections

    def opened(self, connection: ClientConnection, host: str, port: int, kind: str) -> Session:
        session = self.broker.connect(host, port, kind)
        connection.session = session
        self.connections[session] = connection
        self.add_silent(connection)
        self.log.debug(f"{connection.name} - Client connection created")
        return session

    def read_buffer(self) -> memoryview:
        """Return the buffer for the next input of any connection; it is short while many wait for their turns."""
        return self._buffer[:CROWD_READ_BYTES] if is_crowded(self.broker) else self._buffer

    def take_read(self, size: int) -> bytes:
        """Return the input that the loop has read into the buffer."""
        return bytes(self._buffer[:size])

    def received(self, connection: ClientConnection, data: bytes) -> None:
        """Pass a chunk to the session, and take the turn at once when much was read."""
        session, size = connection.session, len(data)
        pieces = connection.traced(data) if self.log.tracing else None
        if not session.login.connected:
            self.remove_silent(connection)
            if self._are_enough():
                self._leave_unread()
                if self._defer(connection, pieces or iter((data,)), size):
                    return
        waits = self._must_wait(session, size)
        if waits and self._defer(connection, pieces or cut(data), size):
            return
        if pieces or waits or (size > PIECE_BYTES and count_lines(data) > MANY_LINES):
            self.received_pieces(connection, pieces or cut(data), size)
            return
        self._attend(connection, session.receive, data)
        self._count(session, size)

    def _are_enough(self) -> bool:
        """Return whether this turn has begun enough handshakes and logins."""
        now = time.monotonic()
        if not self._handshakes_end_s:
            self._handshakes_end_s = now + HANDSHAKES_S
            self.wake()
        return now > self._handshakes_end_s

    def postpones(self, connection: ClientConnection, data: bytes) -> bool:
        """Keep a part of a handshake for a later turn if this one has begun enough, and read no more until then."""
        self.remove_silent(connection)
        if not self._are_enough():
            return False
        self._leave_unread()
        connection.pause()
        self._handshakes.append((connection, data))
        self.wake()
        return True

    def _shake_hands(self) -> None:
        waiting, end = self._handshakes, time.monotonic() + UNFINISHED_S
        while waiting and time.monotonic() < end:
            connection, data = waiting.popleft()
            connection.resume()
            if not connection.transport.is_closing():
                try:
                    connection.shake_hands(data)
                except Exception as error:  # one connection's fault must not keep the others waiting
                    self.fault("a handshake", error)
                    connection.transport.abort()
        if waiting:
            self.wake()

    def add_silent(self, connection: ClientConnection) -> None:
        """Pause a connection if many others send at once, unless `remove_silent` says that it has sent something."""
        self._silent[connection] = None

    def remove_silent(self, connection: ClientConnection) -> None:
        self._silent.pop(connection, None)

    def _leave_unread(self) -> None:
        silent, self._silent = self._silent, {}
        for connection in silent:
            if not connection.paused:
                connection.pause()
                self._unread.append(connection)

    def _read_unread(self) -> None:
        for _ in range(min(NEW_CONNECTIONS, len(self._unread))):
            connection = self._unread.popleft()
            if not connection.transport.is_closing():
                self.add_silent(connection)
                connection.resume()
        if self._unread:
            self.wake()

    def received_pieces(self, connection: ClientConnection, pieces: Iterator[bytes], size: int) -> None:
        """Pass input of `size` bytes to the session; it accepts the pieces in turn."""
        self.remove_silent(connection)
        if self._must_wait(connection.session, size) and self._defer(connection, pieces, size):
            return
        self._attend(connection, receive_pieces, connection.session, pieces, size)
        self._count(connection.session, size)

    def _must_wait(self, session: Session, size: int) -> bool:
        """Return whether an input of so many bytes has to wait for a turn, after many others or with many sessions."""
        return must_wait(session, size) or (size > SHORT_INPUT and self._input_end_ns - self._input_since_ns > INPUT_NS)

    def _defer(self, connection: ClientConnection, pieces: Iterator[bytes], size: int) -> bool:
        """Keep input for a later turn, and read no more until then; return False if it cannot be kept."""
        if not defer_input(connection.session, pieces, size):
            return False
        connection.pause()
        self.wake()
        return True

    def _attend(self, connection: ClientConnection, work: Callable[..., None], *arguments: Any) -> None:
        """Do a session's work, and stop reading from it if it publishes into a stream with much waiting work."""
        before = [(store, store.last_seq + store.held) for store in self._overloaded] if self._overloaded else ()
        try:
            work(*arguments)
        except Exception as error:  # a fault ends only its own session
            self.fault(f"{connection.name} - its input", error)
            connection.transport.abort()
        for stream, last_seq in before:
            if stream.last_seq + stream.held != last_seq:
                connection.pause()
                self._overloaded[stream].append(connection)

    def _count(self, session: Session, size: int) -> None:
        """Ask for a turn, or take it where much was read."""
        self._read_bytes += size
        self._chunks += 1
        self._input_end_ns = session.last_active_ns
        self._input_since_ns = self._input_since_ns or session.last_active_ns
        if self._read_bytes >= TURN_BYTES:
            self.turn()
        if not self._is_turn_due:
            pause_ns = max(min(session.last_active_ns - self._rested_ns, MAX_PAUSE_NS), 0)
            self._pause_ns += (pause_ns - self._pause_ns) // PAUSE_WEIGHT
            self._is_turn_due = True
            self.loop.call_soon(self._take_due_turn)

    def closed(self, connection: ClientConnection) -> None:
        if self.connections.pop(connection.session, None) is not None:
            self.remove_silent(connection)
            self._ended.append(connection)
            self.wake()

    def _end_sessions(self, until_s: float) -> None:
        """End the sessions of lost connections, at least one: thousands may be lost at once."""
        while self._ended:
            connection = self._ended.popleft()
            session, reason = connection.session, connection.session.close_reason
            if reason is CloseReason.SLOW_CONSUMER_PENDING_BYTES:
                limit = self.broker.options.max_pending
                self.log.info(f"{connection.name} - Slow Consumer Detected: MaxPending of {limit} Exceeded")
            log_line = self.log.info if reason in OFFENCES else self.log.debug
            log_line(f"{connection.name} - Client connection closed: {reason.value if reason else 'Client Closed'}")
            self.logins.forget(session)
            session.closed()
            if time.monotonic() >= until_s:
                break

    # The turn

    def turn(self) -> None:
        self._read_bytes = self._chunks = self._gathered = self._input_since_ns = self._input_end_ns = 0
        try:
            self._turn()
        except Exception as error:
            self.fault("turn", error)

    def _turn(self) -> None:
        committer, engine = self.committer, self.engine
        self._handshakes_end_s = self._slices = 0.0
        if self._unread:
            self._read_unread()
        if self._ended:
            self._end_sessions(time.monotonic() + UNFINISHED_S)
            if self._ended:
                self.wake()
        if self._late:
            self._end_late()
        if self._handshakes:
            self._shake_hands()
        if self.broker.pending_logins:
            self._work_out_logins()
        if self.broker.unfinished:
            self._drain()  # the others' answers do not wait for it
            if self._ended_early:
                self._ended_early = False
                self.wake()
            elif self._go_on():
                self._ended_early = True
                self._drain()
                self.wake()
                return
        if self.broker.long_work:
            self.broker.do_long_work(self.broker.clock.monotonic_ns() + SLICE_NS)
            if self.broker.long_work:
                self.wake()
        if committer is not None and engine is not None:
            committer.start_commits()
            if self._has_more:
                self._drain()
            self._has_more = engine.run_ready(READY_BUDGET)
            ended = committer.start_commits()
            if committer.in_flight or engine.closed or self._overloaded:
                self._watch_load(committer, engine)
            self._arm_timer(engine)
            if self._has_more or ended:
                self.wake()
        if self._unflushed:
            self._drain_more()
        if self._writing:
            self._write_more()
        for act in self.on_turn:
            try:
                act()
            except Exception as error:  # the output of others is still sent
                self.fault("the work of each turn", error)
                self.wake()
        self._drain()

    def _go_on(self) -> bool:
        """Read no more from sessions that have put something off, and let some of them go on with it.

        Return whether one operation took so long that the rest of the turn has to wait for the next one.
        """
        unfinished, connections = self.broker.unfinished, self.connections
        for session in unfinished:
            if session in connections:
                connections[session].pause()
        end, logins = time.monotonic() + UNFINISHED_S, NEW_CONNECTIONS
        while unfinished and logins and time.monotonic() < end:
            session = unfinished.popleft()
            logins -= not session.login.connected
            connection = connections.get(session)
            if connection is None or self._holds(connection):
                continue
            self._attend(connection, resume_work, session)
            if session.deferred is None and session.login.pending is None and not self._holds(connection):
                connection.resume()
        if unfinished:
            self.wake()
        return time.monotonic() > end + LONG_S

    def _holds(self, connection: ClientConnection) -> bool:
        return any(connection in held for held in self._overloaded.values())

    def _work_out_logins(self) -> None:
        """Begin slow logins, and read no more from clients that send much meanwhile.

        The others are read on, so that the end of a connection is noticed and its place given up.
        """
        sessions, self.broker.pending_logins = self.broker.pending_logins, []
        for session in sessions:
            connection = self.connections.get(session)
            if connection is not None and not self.logins.begin(session):
                connection.pause()

    def _decided(self, session: Session) -> None:
        connection = self.connections.get(session)
        if connection is not None and not connection.closing:
            connection.resume()
        self.wake()

    def _drain(self) -> None:
        """Send the output of sessions; if very many have some, the others' leaves in later turns."""
        broker = self.broker
        while broker.dirty:
            dirty = broker.take_dirty()
            if len(dirty) > FLUSHED:
                # Clients that have just sent something go first.
                dirty.sort(key=lambda session: session.last_active_ns < self._rested_ns)
                self._unflushed += dirty[FLUSHED:]
                del dirty[FLUSHED:]
                self.wake()
            for session in dirty:
                self._flush(session)

    def _drain_more(self) -> None:
        waiting, end = self._unflushed, time.monotonic() + UNFINISHED_S
        while waiting:
            for _ in range(min(FLUSHES_A_LOOK, len(waiting))):
                self._flush(waiting.popleft())
            if time.monotonic() >= end:
                self.wake()
                return

    def may_write(self, slices: float = 1.0) -> bool:
        """Return whether so many slices of large output may be written at once."""
        self._slices += slices
        return self._slices <= TURN_SLICES

    def write_large(self, connection: ClientConnection) -> None:
        """Write slices of a connection's output, and leave the others to later turns."""
        while connection.may_send_more and self.may_write():
            connection.write_slice()
        if connection.may_send_more:
            self._writing[connection] = None
            self.wake()

    def _write_more(self) -> None:
        writing, end = self._writing, time.monotonic() + UNFINISHED_S
        while writing:
            connection = next(iter(writing))
            del writing[connection]
            if connection.may_send_more:
                connection.write_slice()
            if connection.may_send_more:
                writing[connection] = None
            if time.monotonic() >= end:
                break
        if writing:
            self.wake()

    def _flush(self, session: Session) -> None:
        connection = self.connections.get(session)
        if connection is not None:
            connection.flush()

    def committed(self) -> None:
        """Resume connections that were paused for streams that have caught up; acks leave in this same call."""
        self._read_again()
        self.turn()

    def _read_again(self) -> None:
        for stream in tuple(self._overloaded):
            if not overloaded(stream):
                for connection in self._overloaded.pop(stream):
                    if connection.session.deferred is None:
                        connection.resume()
                    else:
                        self.broker.unfinished.append(connection.session)
                        self.wake()

    def _watch_load(self, committer: Committer, engine: Engine) -> None:
        for stream in committer.streams:
            if stream not in self._overloaded and overloaded(stream):
                self._overloaded[stream] = []
        for stream in engine.closed:  # their messages wait for a job, and no commit may end when that does
            if stream not in self._overloaded and overloaded(stream):
                self._overloaded[stream] = []
        if self._overloaded:
            self._read_again()

    # Timers

    def _arm_timer(self, engine: Engine) -> None:
        deadline_ns = engine.next_deadline_ns() or 0
        if deadline_ns == self._timer_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ns = deadline_ns
        if deadline_ns:
            # Whole milliseconds, upwards: timers of the loop have no finer step, and an early one finds nothing due.
            delay_ms = max(0, (deadline_ns - time.monotonic_ns() + 999_999) // 1_000_000)
            self._timer = self.loop.call_later(delay_ms / 1000, self._run_timers, engine)

    def _run_timers(self, engine: Engine) -> None:
        self._timer, self._timer_ns = None, 0
        try:
            engine.run_timers()
        except Exception as error:
            self.fault("timers", error)
        self.wake()

    def _note_lag(self) -> None:
        assert self._ticker is not None
        now = self.loop.time()
        late = now - self._ticker.when()
        if late >= self.lag_s:
            self._lag = (late, now)

    @property
    def lag_s(self) -> float:
        """The maximum delay of the loop within the last minute, in seconds."""
        late, at = self._lag
        return late if self.loop.time() - at <= LAG_KEPT_S else 0.0

    def _tick(self) -> None:
        """Check every session's timers, and close sessions that did not read their output in time."""
        self._note_lag()
        self.broker.tick()
        for connection in tuple(self.connections.values()):
            if connection.blocked_since and self.blocked(connection) <= 0:
                self._late[connection] = None
        self._set_ticker()
        self.wake()

    def _end_late(self) -> None:
        """Look at some of the connections that have missed their write deadline: thousands may in the same moment."""
        late = self._late
        for connection in list(islice(late, LATE)):
            del late[connection]
            if connection.session in self.connections and connection.blocked_since and self.blocked(connection) <= 0:
                self._miss(connection)
        if late:
            self.wake()

    def _miss(self, connection: ClientConnection) -> None:
        """Close a connection that has missed its write deadline, or keep one that has taken a part and may retry."""
        session, now, left = connection.session, self.loop.time(), connection.waiting_bytes
        deadline_s, retry = self._write_limit(session)
        pending_bytes = left + session.pending_bytes
        state = "State" if connection.slow_since else "Detected"
        self.log.info(
            f"{connection.name} - Slow Consumer {state}: WriteDeadline of {format_duration(round(deadline_s * 1e9))} "
            f"exceeded with {len(session.out) + 1} chunks of {pending_bytes} total bytes."
        )
        session.count_slow_consumer()
        if retry and left < connection.blocked_bytes:
            connection.slow_since = connection.slow_since or connection.blocked_since
            connection.flush_since = connection.blocked_since = now
            connection.blocked_bytes = left
            self.blocked(connection)
        else:
            session.close(CloseReason.SLOW_CONSUMER_WRITE_DEADLINE)
            connection.transport.abort()

    def _write_limit(self, session: Session) -> tuple[float, bool]:
        """Return the write deadline of a connection, and whether it is kept as long as it takes something."""
        if session.connection_type.startswith("LEAFNODE"):
            return self.leaf_write_deadline_s or self.write_deadline_s, self.leaf_write_retry
        return self.write_deadline_s, self.write_retry

    def blocked(self, connection: ClientConnection) -> float:
        """Schedule the next check of write deadlines; return in how many seconds it is due."""
        left_s = connection.blocked_since + self._write_limit(connection.session)[0] - self.loop.time()
        if left_s > 0:
            self.broker.tick_by(self.broker.clock.monotonic_ns() + round(left_s * 1e9))
        return left_s

    def _set_ticker(self) -> None:
        """Schedule the next check of timers when the broker needs it, and not later than after `TICK_S`."""
        now_ns = self.broker.clock.monotonic_ns()
        # A millisecond more: the loop may be that much early, and would find nothing due.
        wait_s = min(max((self.broker.look_ns - now_ns) / 1e9 + 0.001, MIN_TICK_S), TICK_S)
        self.broker.look_ns = min(self.broker.look_ns, now_ns + round(wait_s * 1e9))
        if self._ticker is not None:
            self._ticker.cancel()
        self._ticker = self.loop.call_later(wait_s, self._tick)

    # The end

    async def quiesce(self) -> None:
        """Take turns until everything that was received is durable and answered, or for `QUIESCE_S`."""
        deadline = self.loop.time() + QUIESCE_S
        self.turn()
        while self._is_busy and self.loop.time() < deadline:
            await asyncio.sleep(0.001)
            self.turn()

    @property
    def _is_busy(self) -> bool:
        return bool(self._unflushed or self._writing) or (self.committer is not None and not self.committer.idle)

    def stop(self) -> None:
        """Stop timers and worker threads; nothing may be received any more."""
        for timer in (self._timer, self._ticker):
            if timer is not None:
                timer.cancel()
        self._end_sessions(math.inf)
        self.broker.look_ns = 0  # nothing is earlier, so that no other is set
        self.logins.stop()
        if self.committer is not None:
            self.committer.stop()

    def fault(self, where: str, error: Exception) -> None:
        """Log a programming fault with its place; the server goes on."""
        self.faults += 1
        self.log.error(f"internal fault in {where}: " + "".join(traceback.format_exception(error)).rstrip())


def overloaded(stream: StreamStore) -> bool:
    """Return whether too much awaits the stream's sync for its publishers to go on; a failed one waits for nothing."""
    if not stream.healthy:
        return False
    return stream.last_seq + stream.held - stream.durable_seq > WAITING_ACKS or stream.waiting_bytes > WAITING_BYTES
