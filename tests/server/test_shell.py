"""Turns of the loop: at most one is due, and none begins or ends more connections than its time allows."""

import itertools
import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from natsctl.broker.broker import Broker
from natsctl.broker.deferred_work import CROWD, LITTLE_INPUT, SLICE_NS, defer_input
from natsctl.server import shell as shell_module
from natsctl.server.listener import TRACED_BYTES, ClientConnection
from natsctl.server.log.lines import Log
from natsctl.server.proxy_protocol import ProxiedConnection
from natsctl.server.resources import SystemClock
from natsctl.server.shell import (
    AWAKE_NS,
    CROWD_READ_BYTES,
    FLUSHED,
    FLUSHES_A_LOOK,
    GATHER_NS,
    HANDSHAKES_S,
    INPUT_NS,
    LATE,
    MAX_LINES,
    MAX_PAUSE_NS,
    READ_BYTES,
    SHORT_INPUT,
    TURN_SLICES,
    UNFINISHED_S,
    Shell,
)
from tests.support.clock import VirtualClock
from tests.support.tls_clients import ListLog


class DueCalls:
    """An event loop that keeps what is due, and never waits."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        return SimpleNamespace(when=self.time, cancel=lambda: None)

    def run(self) -> int:
        due, self.due = self.due, []
        for callback in due:
            callback()
        return len(due)


class LostConnection:
    name = "client"
    transport = SimpleNamespace(is_closing=lambda: False)

    def __init__(self, shell: Shell) -> None:
        self.paused = False
        self.session = shell.opened(cast(ClientConnection, self), "h", 1, "client")

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def flush(self) -> None:
        pass


class IdleTransport:
    """A transport that takes everything and brings nothing."""

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def is_closing(self) -> bool:
        return False

    def _ignore(self, *args: Any, **more: Any) -> None:
        pass

    write = close = pause_reading = resume_reading = set_write_buffer_limits = _ignore


class SecuredClient(LostConnection):
    shaken = False

    def shake_hands(self, data: bytes) -> None:
        self.shaken = data == b"hello"


@pytest.fixture
def loop() -> DueCalls:
    return DueCalls()


@pytest.fixture
def shell(loop: DueCalls) -> Shell:
    return Shell(cast(Any, loop), Log(quiet=True), Broker(SystemClock(), random.Random(1)), None, 10.0)


def test_one_turn_is_due_however_many_are_taken_meanwhile(loop: DueCalls, shell: Shell) -> None:
    shell.broker.long_work.add(itertools.count())
    shell.wake()
    for _ in range(10):
        shell.committed()
        assert loop.run() == 1, "the loop reads after each"


def test_connections_that_are_lost_together_end_in_slices(
    loop: DueCalls, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.count(0.0, UNFINISHED_S / 10)
    monkeypatch.setattr("natsctl.server.shell.time", SimpleNamespace(monotonic=lambda: next(times)))
    lost = [cast(ClientConnection, LostConnection(shell)) for _ in range(100)]
    for connection in lost:
        shell.closed(connection)
    left = [len(shell.broker.sessions)]
    while loop.run():
        left.append(len(shell.broker.sessions))
    assert left[0] == 100 and left[-1] == 0 and max(a - b for a, b in itertools.pairwise(left)) <= 11


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tenth of the time for handshakes pass between two looks at the clock."""
    times = itertools.count(1.0, HANDSHAKES_S / 10)
    monkeypatch.setattr("natsctl.server.shell.time", SimpleNamespace(monotonic=lambda: next(times)))


def test_write_deadlines_that_are_missed_together_are_looked_at_in_slices(loop: DueCalls) -> None:
    log, aborted = ListLog(), list[str]()
    shell = Shell(cast(Any, loop), log, Broker(VirtualClock(), random.Random(1)), None, 10.0)
    clients = [LostConnection(shell) for _ in range(3 * LATE)]
    for client in clients:
        transport = SimpleNamespace(abort=partial(aborted.append, client.session.log_name))
        vars(client).update(blocked_since=1.0, waiting_bytes=9, blocked_bytes=9, slow_since=0.0, transport=transport)
    relieved, ended = clients[-1], clients[-2]
    shell.start()
    loop.now = 12.0
    shell._tick()
    assert not aborted
    relieved.blocked_since = 0.0
    shell.connections.pop(ended.session)
    for _ in range(2):
        loop.run()
        shell._tick()
    assert len(aborted) == 2 * LATE
    loop.run()
    assert aborted == [client.session.log_name for client in clients[:-2]], "in order, each once"
    assert shell.broker.slow_consumers == 3 * LATE - 2


@pytest.mark.usefixtures("slow")
def test_handshakes_that_come_together_are_answered_in_slices(loop: DueCalls, shell: Shell) -> None:
    arrived = [SecuredClient(shell) for _ in range(50)]
    unread = dict.fromkeys(arrived)

    def read() -> None:
        for connection in list(unread):
            if not connection.paused:
                del unread[connection]
                if not shell.postpones(cast(Any, connection), b"hello"):
                    connection.shake_hands(b"hello")

    read()
    shaken = [sum(connection.shaken for connection in arrived)]
    assert shaken == [11] and len(unread) == 38, "one was read and kept before the others were paused"
    assert [connection.paused for connection in arrived] == [False] * 11 + [True] * 39
    while loop.run():
        read()
        shaken.append(sum(connection.shaken for connection in arrived))
    assert shaken[-1] == 50 and not any(connection.paused for connection in arrived)
    assert max(b - a for a, b in itertools.pairwise(shaken)) <= 22, "deferred ones, and as many that are read"


@pytest.mark.usefixtures("slow")
def test_logins_that_come_together_begin_in_slices(loop: DueCalls, shell: Shell) -> None:
    shell.broker.clock = VirtualClock()  # a slow machine would defer other work too
    arrived = [cast(ClientConnection, LostConnection(shell)) for _ in range(150)]
    established = arrived.pop()
    unread = dict.fromkeys([established, *arrived])

    def read() -> None:
        for connection in [connection for connection in unread if not connection.paused]:
            if not connection.paused:
                del unread[connection]
                shell.received(connection, b"CONNECT {}\r\nPING\r\n")

    read()
    sessions = [connection.session for connection in arrived]
    connected = [sum(session.login.connected for session in sessions)]
    assert connected == [10]
    assert len(unread) == 138, "one was read and kept before the others were paused"
    established.session.take_output()
    shell.received(established, b"PING\r\n")
    assert established.session.take_output() == [b"PONG\r\n"], "nobody else waits for them"
    while loop.run():
        read()
        connected.append(sum(session.login.connected for session in sessions))
    assert max(after - before for before, after in itertools.pairwise(connected)) <= 20
    assert connected[-1] == len(sessions) and not any(session.deferred for session in sessions)
    assert not any(connection.paused for connection in arrived)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("header", [b"PROXY TCP4 192.0.2.7 192.0.2.1 1111 4222\r\n", b"PROXY TCP4 x\r\n", b""])
def test_headers_of_proxies_that_come_or_expire_together_are_handled_in_slices(loop: DueCalls, header: bytes) -> None:
    log = ListLog()
    shell = Shell(cast(Any, loop), log, Broker(VirtualClock(), random.Random(1)), None, 10.0)
    arrived = [ProxiedConnection(shell) for _ in range(MAX_LINES + 50)]
    for connection in arrived:
        connection.connection_made(cast(Any, IdleTransport()))
        connection.data_received(b"PR")
    while loop.run():
        pass
    unread = dict.fromkeys(arrived)

    def read() -> None:
        for connection in [connection for connection in unread if not connection.paused]:
            if not header:  # a timer, which does not wait until the connection is read
                del unread[connection]
                connection._reader._expire()
                connection._reader._expire()
            elif not connection.paused:
                del unread[connection]
                connection.data_received(header[2:])

    def done() -> int:
        ended = [connection.session.close_reason is not None for connection in arrived]
        return sum(c.session.host == "192.0.2.7" for c in arrived) if header.endswith(b"4222\r\n") else sum(ended)

    read()
    counts = [done()]
    while loop.run():
        read()
        counts.append(done())
    assert counts[-1] == len(arrived) and max(b - a for a, b in itertools.pairwise([0, *counts])) <= 22
    faults = [line for line in log.lines if "Error reading PROXY protocol header" in line]
    assert len(faults) == (0 if header.endswith(b"4222\r\n") else MAX_LINES)


def test_a_shared_sync_begins_when_nothing_more_arrives_or_as_many_came_as_before(loop: DueCalls) -> None:
    clock, turns = VirtualClock(), list[int]()
    shell = Shell(cast(Any, loop), Log(quiet=True), Broker(clock, random.Random(1)), None, 10.0)
    clients = [cast(ClientConnection, LostConnection(shell)) for _ in range(6)]
    shell.committer = cast(Any, SimpleNamespace(shares_sync=True, in_flight={}))
    shell.on_turn.append(lambda: turns.append(1))

    def read(*chunks: int, waited_ns: int = 0) -> int:
        """Read chunks of so many clients, each number in one look, and return the turns that were taken."""
        before = len(turns)
        for count in chunks:
            for client in clients[:count]:
                shell.received(client, b"PING\r\n")
            clock.advance(waited_ns)
            assert loop.run() == 1
        return len(turns) - before

    assert read(1) == 1, "a client that is alone does not wait"
    assert read(4, 1) == 0 and read(0) == 1
    assert read(1, 3) == 0 and read(0, 0) == 0, "there were five"
    assert read(1) == 0 and read(0) == 1
    assert read(2) == 0 and read(0, waited_ns=GATHER_NS) == 1
    assert read(1) == 1, "they are few now"
    shell.committer = cast(Any, SimpleNamespace(shares_sync=False, in_flight={}))
    assert read(6) == 1


def test_in_a_crowd_only_little_input_is_read_at_once(loop: DueCalls, shell: Shell) -> None:
    crowd = [cast(ClientConnection, LostConnection(shell)) for _ in range(CROWD + 2)]
    for connection in crowd:
        connection.session.receive(b'CONNECT {"verbose":false}\r\nPING\r\n')
        connection.session.take_output()
    *busy, last = [connection.session for connection in crowd]
    assert len(shell.read_buffer()) == READ_BYTES
    for session in busy:
        assert defer_input(session, iter((b"PING\r\n",)), 6)
    assert LITTLE_INPUT < len(shell.read_buffer()) == CROWD_READ_BYTES
    shell.received(crowd[-1], b"PING\r\n")
    assert last.take_output() == [b"PONG\r\n"] and not crowd[-1].paused
    shell.received(crowd[-1], b"PING\r\n" * LITTLE_INPUT)
    assert last.deferred is not None and not last.out and crowd[-1].paused
    while loop.run():
        pass
    assert len(shell.read_buffer()) == READ_BYTES and not any(connection.paused for connection in crowd)
    assert [len(session.out) for session in busy] == [1] * len(busy) and len(last.out) == LITTLE_INPUT


def test_input_of_very_many_connections_is_carried_out_in_several_turns(
    loop: DueCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.count(1.0, 0.6 * UNFINISHED_S)
    monkeypatch.setattr("natsctl.server.shell.time", SimpleNamespace(monotonic=lambda: next(times)))
    clock = VirtualClock()
    shell = Shell(cast(Any, loop), Log(quiet=True), Broker(clock, random.Random(1)), None, 10.0)
    crowd = [LostConnection(shell) for _ in range(50)]
    for client in crowd:
        client.session.receive(b'CONNECT {"verbose":false}\r\n')
        client.session.take_output()
    for client in crowd:
        clock.advance(INPUT_NS // 9)
        shell.received(cast(ClientConnection, client), b"PING\r\n" * SHORT_INPUT)
        shell.received(cast(ClientConnection, client), b"PING\r\n")
    answered = [sum(bool(client.session.out) for client in crowd)]
    assert answered == [11] and [client.paused for client in crowd] == [False] * 11 + [True] * 39
    last = LostConnection(shell)
    last.session.receive(b'CONNECT {"verbose":false}\r\n')
    last.session.take_output()
    shell.received(cast(ClientConnection, last), b"PING\r\n")
    assert last.session.out, "a short input does not wait for the others"
    while loop.run():
        answered.append(sum(bool(client.session.out) for client in crowd))
    assert answered[-1] == 50 and max(b - a for a, b in itertools.pairwise(answered)) <= 2
    assert {len(b"".join(client.session.out)) for client in crowd} == {len(b"PONG\r\n") * (SHORT_INPUT + 1)}
    assert not any(client.paused for client in crowd)


def test_a_turn_ends_after_an_operation_that_took_very_long(
    loop: DueCalls, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_module, "LONG_S", -1.0)
    others, turn = list[int](), 0
    shell.broker.long_work.add(iter(lambda: others.append(turn), 0))
    sender = LostConnection(shell)
    sender.session.receive(b'CONNECT {"verbose":false}\r\n')
    while turn < 4:
        turn += 1
        if sender.session.deferred is None:
            assert defer_input(sender.session, iter((b"PING\r\n",)), 6)
        shell.turn()
        sender.session.take_output()
    assert set(others) == {2, 4}


def test_the_trace_of_very_many_operations_is_written_in_slices(
    loop: DueCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.count(1.0, 0.6 * UNFINISHED_S)
    monkeypatch.setattr("natsctl.server.shell.time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(VirtualClock, "monotonic_ns", lambda clock: clock.advance(SLICE_NS + 1) or clock._monotonic_ns)
    log = ListLog()
    shell = Shell(cast(Any, loop), log, Broker(VirtualClock(), random.Random(1)), None, 10.0)
    connection = ClientConnection(shell)
    connection.connection_made(cast(Any, IdleTransport()))
    loop.run()
    log.tracing = True
    connection.data_received(b'CONNECT {"verbose":false}\r\n' + b"PING\r\n" * 20_000)
    lines = [0, len(log.lines)]
    while loop.run():
        lines.append(len(log.lines))
    assert [sum(line in logged for logged in log.lines) for line in ("<<- [PING]", "->> [PONG]")] == [20_000] * 2
    assert max(b - a for a, b in itertools.pairwise(lines)) <= (2 + TURN_SLICES) * TRACED_BYTES // len(b"PING\r\n")


def test_a_message_to_very_many_leaves_in_several_turns(loop: DueCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "UNFINISHED_S", 0.0)
    clock, flushed = VirtualClock(), list[bytes]()
    shell = Shell(cast(Any, loop), Log(quiet=True), Broker(clock, random.Random(1)), None, 10.0)
    clients = [LostConnection(shell) for _ in range(2 * FLUSHED)]
    for client in clients:
        client.session.receive(b'CONNECT {"verbose":false}\r\nSUB all 1\r\n')
        client.session.take_output()
        client.flush = partial(lambda session: flushed.extend(session.take_output()), client.session)  # type: ignore[method-assign]
    other = LostConnection(shell)
    other.session.take_output()
    other.flush = lambda: flushed.extend(other.session.take_output())  # type: ignore[method-assign]
    shell.broker.take_dirty()
    clock.advance(1)
    shell.received(cast(ClientConnection, other), b'CONNECT {"verbose":false}\r\n')
    loop.run()
    clock.advance(1)
    for client, data in ((clients[0], b"PUB all 2\r\nhi\r\n"), (other, b"PING\r\n")):
        shell.received(cast(ClientConnection, client), data)
    for count in (FLUSHED, FLUSHED + FLUSHES_A_LOOK):
        loop.run()
        assert len(flushed) == count and b"PONG\r\n" in flushed, "it does not wait for all"
        flushed.remove(b"PONG\r\n")
        shell.received(cast(ClientConnection, other), b"PING\r\n")
    while loop.run():
        pass
    flushed.remove(b"PONG\r\n")
    assert flushed == [b"MSG all 1 2\r\nhi\r\n"] * len(clients)


def test_answers_do_not_wait_for_an_engine_that_goes_on_with_long_work(loop: DueCalls) -> None:
    flushed, unsent = list[bytes](), list[bool]()
    more = iter((True, True, False))
    engine = SimpleNamespace(closed={}, next_deadline_ns=lambda: None)
    shell = Shell(cast(Any, loop), Log(quiet=True), Broker(VirtualClock(), random.Random(1)), cast(Any, engine), 10.0)
    shell.committer = cast(Any, SimpleNamespace(shares_sync=False, in_flight={}, start_commits=lambda: False))
    client = LostConnection(shell)
    client.flush = lambda: flushed.extend(client.session.take_output())  # type: ignore[method-assign]

    def run_ready(budget: int) -> bool:
        unsent.append(bool(client.session.out))
        return next(more)

    engine.run_ready = run_ready
    for _ in range(3):
        shell.received(cast(ClientConnection, client), b"PING\r\n")
        loop.run()
    assert flushed[1:] == [b"PONG\r\n"] * 3 and unsent == [True, False, False]


def test_the_loop_stays_awake_after_a_turn_while_the_next_input_comes_soon(loop: DueCalls) -> None:
    clock = VirtualClock()
    shell = Shell(cast(Any, loop), Log(quiet=True), Broker(clock, random.Random(1)), None, 10.0)
    client = cast(ClientConnection, LostConnection(shell))
    shell.start()
    shell.received(client, b"CONNECT {}\r\n")
    loop.run()

    def looks(pause_ns: int) -> int:
        """Return how often the loop reads again, a tenth of `AWAKE_NS` apart, after input that came after a pause."""
        clock.advance(pause_ns)
        shell.received(client, b"PING\r\n")
        assert loop.run() == 1
        count = 0
        while loop.run():
            clock.advance(AWAKE_NS // 10)
            count += 1
        return count

    assert looks(MAX_PAUSE_NS) == 0
    for _ in range(20):
        looks(AWAKE_NS // 4)
    assert looks(AWAKE_NS // 4) == 11
    shell.committer = cast(Any, SimpleNamespace(shares_sync=False, in_flight={"stream": None}))
    assert looks(AWAKE_NS // 4) == 0, "a commit in flight wakes it"
    shell.committer = None
    assert looks(AWAKE_NS // 4) == 11
    assert looks(10 * MAX_PAUSE_NS) == 0
    for _ in range(20):
        looks(AWAKE_NS // 4)
    assert looks(AWAKE_NS // 4) == 11
