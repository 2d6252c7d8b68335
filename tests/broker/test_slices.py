"""Work that takes long is done in slices, in the order in which it was sent."""

import itertools
import random
import re
from collections.abc import Iterator
from typing import Final

import pytest

from natsctl.api.subject_index import SubjectIndex
from natsctl.broker.account import Account
from natsctl.broker.auth.credentials import Grant
from natsctl.broker.auth.permissions import SubjectPermissions, SubjectRules
from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.deferred_work import (
    LONG_SUBJECT_BYTES,
    LOOK_MASK,
    MANY_RECIPIENTS,
    MANY_SUBS,
    MAX_DEFERRED_BYTES,
    PIECE_BYTES,
    PIECE_LINES,
    SLICE_NS,
    SUBS_STEP,
    LongWork,
    cut,
    receive_pieces,
    resume_work,
)
from natsctl.broker.imports.account_config import (
    AccountConfig,
    ConnectionLimits,
    Destination,
    Latency,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectMap,
)
from natsctl.broker.imports.account_imports import PROXIES_STEP, REPLIES_STEP
from natsctl.broker.leaf.handshake import LeafOptions
from natsctl.broker.leaf.leaf_nodes import LeafLinks
from natsctl.broker.leaf.link import LeafLink
from natsctl.broker.postponed import AT_ONCE_COST, STEP_COST
from natsctl.broker.refusals import CloseReason
from natsctl.broker.session import Session, one_by_one, place
from natsctl.wire.ops import Op
from tests.support.call_counts import calls_of
from tests.support.leaf_servers import Lines

HELLO: Final = b'CONNECT {"verbose":false,"pedantic":true,"headers":true,"no_responders":true,"protocol":1}\r\n'
"""Pedantic, so that no runs of messages are handed over as a whole: those cost little each."""


class SlowClock:
    """A clock that goes on by `step_ns` with each look."""

    def __init__(self, step_ns: int) -> None:
        self.ns = 10**18
        self.step_ns = step_ns

    def now_ns(self) -> int:
        return self.ns

    def monotonic_ns(self) -> int:
        self.ns += self.step_ns
        return self.ns


def broker(step_ns: int = 0, options: BrokerOptions | None = None) -> Broker:
    return Broker(SlowClock(step_ns), random.Random(1), options)


def client(of: Broker, hello: bytes = HELLO) -> Session:
    session = of.connect("h", 1)
    session.receive(hello)
    session.take_output()
    return session


def heard(session: Session) -> bytes:
    return b"".join(session.take_output())


def slow_down(of: Broker, step_ns: int = SLICE_NS) -> None:
    assert isinstance(of.clock, SlowClock)
    of.clock.step_ns = step_ns


def traders(exporter: AccountConfig, importer: AccountConfig) -> tuple[Broker, Session, Session]:
    """Return a broker with the accounts E and I, and a client of each."""
    auth = StaticAuthenticator(users=(User("e", "", "E"), User("i", "", "I")))
    harness = broker(options=BrokerOptions(auth=auth))
    harness.configure([exporter, importer])
    return harness, client(harness, hello_of(b"e")), client(harness, hello_of(b"i"))


def hello_of(user: bytes) -> bytes:
    return HELLO[:-3] + b',"user":"%b"}\r\n' % user


def work_off(of: Broker) -> int:
    """Do all long work; return the number of turns."""
    turns = 0
    while of.long_work:
        of.do_long_work(0)
        turns += 1
        assert turns < 10_000, "no end"
    return turns


def finish(of: Broker) -> int:
    slices = 0
    while of.unfinished:
        resume_work(of.unfinished.popleft())
        slices += 1
        assert slices < 10_000, "no end"
    return slices


def work(count: int) -> tuple[bytes, bytes]:
    """Return messages on different subjects, and what their publisher hears with `SUB > 1`."""
    sent = b"".join(b"PUB a.%d 1\r\nx\r\n" % number for number in range(count))
    return sent, b"".join(b"MSG a.%d 1 1\r\nx\r\n" % number for number in range(count))


def test_quick_work_is_done_at_once() -> None:
    harness = broker()
    session = client(harness)
    sent, echoed = work(1000)
    session.receive(b"SUB > 1\r\n" + sent)
    assert heard(session) == echoed
    assert not harness.unfinished


def test_slow_work_is_put_off_and_goes_on_in_order_with_what_comes_later() -> None:
    harness = broker(SLICE_NS)
    session = client(harness)
    sent, echoed = work(100)
    session.receive(b"SUB > 1\r\n")
    session.receive(sent)
    first = heard(session)
    assert echoed.startswith(first)
    assert first.count(b"MSG") <= 2 * (LOOK_MASK + 1)
    assert list(harness.unfinished) == [session]
    session.receive(b"PI")
    session.receive(b"NG\r\nPUB a.last 0\r\n\r\n")
    assert heard(session) == b""
    assert finish(harness) > 3
    rest = heard(session)
    assert (first + rest).startswith(echoed + b"PONG\r\n")
    assert rest.endswith(b"MSG a.last 1 0\r\n\r\n")
    assert session.in_msgs == 101


def test_each_long_subject_is_looked_at() -> None:
    harness = broker(SLICE_NS)
    session = client(harness)
    session.receive(b"PUB %b 0\r\n\r\n" % (b"a" * 200) * 10)
    assert session.in_msgs == 2


def test_refused_messages_and_other_operations_are_put_off_too() -> None:
    harness = broker(SLICE_NS)
    session = client(harness)
    session.receive(b"SUB a 1\r\nUNSUB 1\r\n" * 20)
    assert harness.unfinished
    finish(harness)
    other = client(harness)
    other.receive(b"PUB $GR.x 0\r\n\r\n" * 50)
    assert harness.unfinished
    finish(harness)
    assert heard(other).count(b"-ERR") == 50


def test_a_fault_is_told_after_what_came_before_it() -> None:
    harness = broker(SLICE_NS)
    session = client(harness)
    sent, echoed = work(50)
    session.receive(b"SUB > 1\r\n")
    session.receive(sent + b"WHAT\r\n")
    assert session.close_reason is None
    finish(harness)
    assert heard(session) == echoed + b"-ERR 'Unknown Protocol Operation'\r\n"
    assert session.close_reason is CloseReason.PROTOCOL_VIOLATION


def test_sessions_take_turns() -> None:
    harness = broker(SLICE_NS)
    one, two = client(harness), client(harness)
    sent, _ = work(200)
    one.receive(sent)
    two.receive(sent)
    resume_work(harness.unfinished.popleft())
    assert list(harness.unfinished) == [two, one]
    finish(harness)
    assert one.in_msgs == two.in_msgs == 200


def test_who_leaves_leaves_nothing_to_do() -> None:
    harness = broker(SLICE_NS)
    session, listener = client(harness), client(harness)
    listener.receive(b"SUB a.* 1\r\n")
    session.receive(work(100)[0])
    session.closed()
    assert session.deferred is None
    heard(listener)
    finish(harness)
    assert heard(listener) == b""


def test_a_login_in_the_middle_of_what_was_put_off_is_waited_for() -> None:
    hashed = "$2a$04$igRjN11Z3BPB1hnNNL88YeQOqI52IWeyoa6itve8ho4ksh1AyBrVa"
    users = (User("plain", "x"), User("hashed", hashed))
    harness = broker(SLICE_NS, BrokerOptions(auth=StaticAuthenticator(users=users)))
    session = client(harness, b'CONNECT {"verbose":false,"pedantic":false,"user":"plain","pass":"x"}\r\n')
    sent, _ = work(20)
    session.receive(sent + b'CONNECT {"user":"hashed","pass":"wrong"}\r\n' + sent)
    while session.login.pending is None:
        resume_work(harness.unfinished.popleft())
    assert session.in_msgs == 20
    session.login.decide(session.login.pending.work())
    finish(harness)
    assert session.in_msgs == 20
    assert session.close_reason is CloseReason.AUTHENTICATION_VIOLATION


def test_input_that_arrives_while_work_waits_is_bounded_and_not_carried_out() -> None:
    harness = broker(SLICE_NS)
    session = client(harness)
    session.receive(work(100)[0])
    done = session.in_msgs
    chunk = b"PUB big 1000000\r\n%b\r\n" % (b"x" * 1_000_000)
    for _ in range(MAX_DEFERRED_BYTES // len(chunk)):
        session.receive(chunk)
    assert session.close_reason is None
    session.receive(chunk)
    assert session.close_reason is CloseReason.PROTOCOL_VIOLATION
    assert session.in_msgs == done


def test_what_is_left_is_not_looked_at_again_in_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []

    def counted(ops: list[Op]) -> list[Op]:
        looked_at.append(len(ops))
        return one_by_one(ops)

    monkeypatch.setattr("natsctl.broker.session.one_by_one", counted)
    harness = broker(SLICE_NS)
    session = client(harness)
    session.receive(work(2000)[0])
    assert finish(harness) > 100
    assert session.in_msgs == 2000
    assert sum(looked_at) <= 2001


def test_large_input_is_taken_piece_by_piece() -> None:
    harness = broker(SLICE_NS)
    session, other = client(harness), client(harness)
    taken = []

    def pieces() -> Iterator[bytes]:
        for number in range(50):
            taken.append(number)
            yield b"PUB a.%d 0\r\n\r\n" % number if number % 2 else b""

    other.receive(b"SUB > 1\r\n")
    receive_pieces(session, pieces(), 1)
    receive_pieces(session, iter((b"PUB last 0\r\n\r\n",)), 1)
    assert len(taken) <= 2
    while harness.unfinished:
        before = len(taken)
        resume_work(harness.unfinished.popleft())
        assert len(taken) <= before + 2
    assert heard(other) == b"".join(b"MSG a.%d 1 0\r\n\r\n" % n for n in range(1, 50, 2)) + b"MSG last 1 0\r\n\r\n"


def test_pieces_after_a_login_wait_for_it() -> None:
    hashed = "$2a$04$igRjN11Z3BPB1hnNNL88YeQOqI52IWeyoa6itve8ho4ksh1AyBrVa"
    users = (User("plain", "x"), User("hashed", hashed))
    harness = broker(0, BrokerOptions(auth=StaticAuthenticator(users=users)))
    session = client(harness, b"")
    connect = b'CONNECT {"verbose":false,"user":"hashed","pass":"wrong"}\r\n'
    receive_pieces(session, iter((connect, b"PUB a 0\r\n\r\n", b"PUB a 0\r\n\r\n")), 1)
    receive_pieces(session, iter((b"PING\r\n",)), 1)
    finish(harness)
    assert session.login.pending is not None and session.in_msgs == 0
    session.login.decide(Grant("hashed", "$G"))
    finish(harness)
    assert session.in_msgs == 2
    assert heard(session).endswith(b"PONG\r\n")


def test_what_another_server_sends_is_put_off_too() -> None:
    harness = broker()
    link = linked(harness, b"x")
    listener = client(harness)
    listener.receive(b"SUB > 1\r\n")
    slow_down(harness)
    link.receive(b"".join(b"LMSG a.%d 1\r\nx\r\n" % number for number in range(20)) + b"PI")
    assert list(harness.unfinished) == [link]
    link.receive(b"NG\r\nLMSG a.last 1\r\nx\r\n")
    assert finish(harness) > 5
    assert heard(listener) == work(20)[1] + b"MSG a.last 1 1\r\nx\r\n"
    assert heard(link).endswith(b"PONG\r\n")


def crowd(harness: Broker, count: int) -> Session:
    """Return a client with a subscription in a queue group for each of `count` subjects, and one for a shared one."""
    session = client(harness)
    session.receive(b"SUB shared all q\r\n" + b"".join(b"SUB t.%d q %d\r\n" % (n, n) for n in range(count)))
    finish(harness)
    assert len(session.subs) == count + 1
    return session


def test_what_a_client_with_many_subscriptions_leaves_is_removed_in_slices() -> None:
    harness = broker()
    session = crowd(harness, 4 * MANY_SUBS)
    before = harness.subscriptions
    session.closed()
    assert harness.subscriptions == before, "nothing is removed inside the call"
    removed = removed_in_turns(harness)
    assert max(removed) == SUBS_STEP, "the clock is looked at after every few"
    assert sum(removed) == 4 * MANY_SUBS + 1
    assert session.left_count == 4 * MANY_SUBS + 1


def test_what_many_clients_leave_that_are_closed_at_once_is_removed_in_slices() -> None:
    harness = broker()
    sessions = [crowd(harness, 99) for _ in range(50)]
    before = harness.subscriptions
    for session in sessions:
        session.close(CloseReason.KICKED)
    assert harness.subscriptions == before - MANY_SUBS, "no more is removed inside the calls"
    assert set(sessions) <= set(harness.take_dirty())
    assert not harness.account("$G").has_interest(b"t.7")
    removed = removed_in_turns(harness)
    assert max(removed) == SUBS_STEP
    assert sum(removed) == 50 * 100 - MANY_SUBS
    last = crowd(harness, 99)
    last.close(CloseReason.KICKED)
    assert not harness.long_work, "a few of the next turn are removed at once"


def test_a_client_that_has_left_receives_nothing_while_its_subscriptions_are_removed() -> None:
    harness = broker()
    session, other, requester = crowd(harness, 2 * MANY_SUBS), client(harness), client(harness)
    other.receive(b"SUB shared all 1\r\nPUB t.5 0\r\n\r\nPUB shared 0\r\n\r\n" * 2)
    heard(other)
    session.closed()
    harness.do_long_work(0)
    assert harness.long_work
    requester.receive(b"SUB inbox 1\r\nPUB t.5 inbox 0\r\n\r\n")
    assert b"NATS/1.0 503" in heard(requester), "nobody is left on t.5"
    requester.receive(b"PUB shared 0\r\n\r\n" * 50)
    assert heard(other).count(b"MSG shared 1 0\r\n") == 50, "the group goes on with who is left"
    assert not harness.account("$G").has_interest(b"t.7")
    assert session.out == []
    work_off(harness)
    assert harness.account("$G").routes.subs.matching(b"t.5") == []


def test_who_comes_back_is_served_while_the_old_subscriptions_are_removed() -> None:
    harness = broker()
    first = crowd(harness, 2 * MANY_SUBS)
    first.closed()
    again = crowd(harness, 2 * MANY_SUBS)
    publisher = client(harness)
    publisher.receive(b"PUB t.9 0\r\n\r\nPUB shared 0\r\n\r\n" * 20)
    assert heard(again).count(b"MSG ") == 40
    work_off(harness)
    publisher.receive(b"PUB t.9 0\r\n\r\nPUB shared 0\r\n\r\n" * 20)
    assert heard(again).count(b"MSG ") == 40
    assert harness.subscriptions == len(again.subs) + 2, "and who a user is, asked in two accounts"


def removed_in_turns(harness: Broker) -> list[int]:
    slow_down(harness, 1)
    removed = list[int]()
    while harness.long_work:
        held = harness.subscriptions
        harness.do_long_work(0)
        removed.append(held - harness.subscriptions)
        assert len(removed) < 10_000, "no end"
    return removed


def test_a_second_connect_lets_go_many_subscriptions_in_slices() -> None:
    harness = broker()
    session, publisher = crowd(harness, 2 * MANY_SUBS), client(harness)
    before = harness.subscriptions
    session.receive(HELLO + b"SUB t.5 new\r\nPING\r\n")
    assert b"PONG\r\n" in heard(session)
    assert harness.subscriptions == before + 1, "nothing is removed inside the call"
    publisher.receive(b"PUB t.5 0\r\n\r\nPUB t.7 0\r\n\r\nPUB shared 0\r\n\r\n")
    assert heard(session) == b"MSG t.5 new 0\r\n\r\n", "what was let go receives nothing"
    removed = removed_in_turns(harness)
    assert (max(removed), sum(removed)) == (SUBS_STEP, 2 * MANY_SUBS + 1)
    publisher.receive(b"PUB t.5 0\r\n\r\n")
    assert heard(session) == b"MSG t.5 new 0\r\n\r\n"


def test_the_first_connect_leaves_what_was_subscribed_in_its_place() -> None:
    harness = broker()
    session = client(harness, b"")
    session.receive(b"SUB a 1\r\n")
    changes = harness.account("$G").routes.walks
    session.receive(HELLO + b"PUB a 0\r\n\r\n")
    assert heard(session).endswith(b"MSG a 1 0\r\n\r\n")
    assert session in harness.account("$G").sessions
    assert harness.account("$G").routes.walks == changes + 1


def test_permissions_that_changed_are_held_against_many_subscriptions_in_slices() -> None:
    harness = broker()
    session, done = crowd(harness, 2 * MANY_SUBS), []
    account = harness.account("$G")
    permissions = SubjectPermissions(subscribe=SubjectRules(allow=("shared", "t.5", "t.7")))
    session.apply_permissions(Grant("u", "$G", permissions=permissions), account)
    session.review_subscriptions(lambda: done.append(len(session.subs)))
    assert len(session.subs) == 2 * MANY_SUBS + 1 and not done
    session.receive(b"UNSUB 7\r\nSUB shared more\r\n")
    removed = removed_in_turns(harness)
    assert max(removed) == SUBS_STEP
    assert {sub.subject for sub in session.subs.values()} == {b"shared", b"t.5"} and b"more" in session.subs
    assert done == [len(session.subs)] == [3]


def test_proxies_of_very_many_imports_are_placed_and_removed_in_slices() -> None:
    count = 20 * PROXIES_STEP
    imports = tuple(StreamImport("E", f"s.{number}", to=f"l.{number}") for number in range(count))
    exports = (StreamExport("s.*"),)
    harness, publisher, session = traders(AccountConfig("E", exports=exports), AccountConfig("I", imports=imports))
    other = client(harness, hello_of(b"i"))
    exporter = harness.account("E")
    before_all = exporter.subscriptions
    slow_down(harness)

    def taken() -> list[bytes]:
        """Publish on the first and the last subject that is imported; return which subscriptions take it."""
        publisher.receive(b"PUB s.0 0\r\n\r\n")
        publisher.receive(b"PUB s.%d 0\r\n\r\n" % (count - 1))
        return re.findall(rb"MSG l\.(\d+ \w+) ", heard(session))

    def slices() -> list[int]:
        """Carry out what waits; return how many proxies each slice places or removes."""
        changes = []
        while harness.unfinished or harness.long_work:
            before = exporter.subscriptions
            if harness.unfinished:
                resume_work(harness.unfinished.popleft())
            harness.do_long_work(0)
            changes.append(abs(exporter.subscriptions - before))
        return changes

    last = b"%d" % (count - 1)
    session.receive(b"SUB > w\r\nPUB own 0\r\n\r\nPING\r\n")
    session.receive(b"SUB l.0 x\r\n")
    assert (taken(), heard(session)) == ([b"0 w"], b"")
    assert sum(changes := slices()) >= count - 3 * PROXIES_STEP and max(changes) <= 2 * PROXIES_STEP
    assert heard(session).startswith(b"MSG own w 0\r\n\r\nPONG\r\n")
    assert taken() == [b"0 w", b"0 x", last + b" w"]
    session.receive(b"UNSUB w\r\n")
    session.receive(b"SUB l.* y\r\n")
    assert taken() == [b"0 x", b"0 y"], "what has ended takes nothing"
    place_again = session.subs[b"y"]
    session.account.unsubscribe(place_again)
    place(session, place_again, session.account)
    assert max(slices()) <= 3 * PROXIES_STEP
    assert taken() == [b"0 x", b"0 y", last + b" y"]
    assert exporter.subscriptions == before_all + count + 1
    other.receive(b"SUB l.* z\r\n")
    resume_work(harness.unfinished.popleft())
    for leaving in (other, session):
        leaving.closed()
    assert max(slices()) <= 2 * PROXIES_STEP
    assert exporter.subscriptions == before_all


def test_the_way_to_a_subject_that_very_many_patterns_meet_is_walked_in_slices() -> None:
    harness = broker()
    session, other = client(harness), client(harness)
    subject = long_patterns(session, harness, b"s") + b"x"
    session.receive(b"SUB > all\r\n")
    slow_down(harness)
    session.receive(b"PUB %b 0\r\n\r\nPUB last 0\r\n\r\n" % subject)
    assert list(harness.unfinished) == [session] and session.in_msgs == 0
    other.receive(b"SUB new 1\r\n")
    assert finish(harness) > 10
    echoed = b"MSG %b all 0\r\n\r\n" % subject
    assert heard(session) == echoed + b"MSG last all 0\r\n\r\n" and session.in_msgs == 2
    session.receive(b"PUB %b 0\r\n\r\n" % subject)
    assert heard(session) == echoed, "the way is known"


def long_patterns(session: Session, harness: Broker, prefix: bytes, line: bytes = b"SUB %b p%d\r\n") -> bytes:
    """Subscribe to patterns that make a walk long; return the beginning of a subject that takes it."""
    rest = [b"a"] * 400
    patterns = [b".".join([prefix, *rest[:place], b"*", *rest[place + 1 :]]) for place in range(100)]
    session.receive(b"".join(line % (pattern, place) for place, pattern in enumerate(patterns)))
    finish(harness)
    return b".".join([prefix, *rest[1:], b""])


def steps_of_walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each walk at once adds the nodes that it reaches."""
    walks: list[int] = []
    plain = SubjectIndex.match

    def counted(index: SubjectIndex[object], tokens: list[bytes]) -> object:
        if len(tokens) > 100 and index.count > 50:
            walks.append(len(tokens))
        return plain(index, tokens)

    monkeypatch.setattr(SubjectIndex, "match", counted)
    return walks


def steps_of_walking(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each step of a walk adds 1."""
    steps: list[int] = []
    plain = SubjectIndex.walking

    def counted(index: SubjectIndex[object], tokens: list[bytes]) -> Iterator[int]:
        walk = plain(index, tokens)
        while True:
            try:
                step = next(walk)
            except StopIteration as end:
                return end.value
            steps.append(1)
            yield step

    monkeypatch.setattr(SubjectIndex, "walking", counted)
    return steps


def test_routes_of_requests_to_other_accounts_are_walked_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    exports, imports = (ServiceExport("s.>"),), (ServiceImport("E", "s.>", to="q.>"),)
    harness, service, requester = traders(AccountConfig("E", exports=exports), AccountConfig("I", imports=imports))
    long = long_patterns(service, harness, b"s")
    inbox = long_patterns(requester, harness, b"r")
    service.receive(b"SUB s.> 1\r\n")
    requester.receive(b"SUB r.> 1\r\n")
    heard(service), heard(requester)
    slow_down(harness)
    walks = steps_of_walks(monkeypatch)
    asked = long[2:] + b"x"
    requester.receive(b"PUB q.%b %bx 0\r\n\r\n" % (asked, inbox))
    assert list(harness.unfinished) == [requester] and heard(service) == b""
    assert finish(harness) > 10
    (reply,) = re.findall(rb"MSG s\.%b 1 (_R_\S+) " % re.escape(asked), heard(service))
    requester.receive(b"SUB *.x other\r\nSUB x.> more\r\n")
    finish(harness)
    service.receive(b"PUB %b 2\r\nok\r\n" % reply)
    assert list(harness.unfinished) == [service] and heard(requester) == b""
    assert finish(harness) > 10
    assert b"MSG %bx 1 2\r\nok\r\n" % inbox in heard(requester)
    assert walks == []


def test_messages_of_the_server_wait_for_long_walks_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = broker(step_ns=1)
    session = client(harness)
    long = long_patterns(session, harness, b"s")
    session.receive(b"SUB > 1\r\n")
    heard(session)
    account, walks = harness.account("$G"), steps_of_walks(monkeypatch)
    for number in range(20):
        assert account.publish(long + b"%d" % number, b"", b"", b"") == 1
    assert account.publish(b"short", b"", b"", b"") == 1
    account.answer_all([(long + b"20", b""), (b"last", b"")])
    first = heard(session)
    assert first.count(b"MSG ") < 5 and account.postponed.any
    turns = work_off(harness)
    order = [number or name for number, name in re.findall(rb"MSG (?:s\S*\.(\d+)|(\w+)) 1 ", first + heard(session))]
    assert order == [b"%d" % number for number in range(20)] + [b"short", b"20", b"last"]
    assert turns > 500 and walks == [] and not account.postponed.any


EXPORTS: Final = (ServiceExport("s", latency=Latency("lat")),)


def owing(replies: list[bytes]) -> tuple[Broker, Session]:
    """Return a broker whose account E has not answered a request of each reply, and their requester."""
    importer = AccountConfig("I", imports=(ServiceImport("E", "s"),))
    harness, service, requester = traders(AccountConfig("E", exports=EXPORTS), importer)
    service.receive(b"SUB s 1\r\n")
    requester.receive(b"SUB r.* 1\r\nSUB kept.* 2\r\nSUB same 3\r\n")
    requester.receive(b"".join(b"PUB s %b 0\r\n\r\n" % reply for reply in replies))
    assert harness.account("E").imports.owed == len(replies)
    return harness, requester


def given_up(harness: Broker) -> list[int]:
    """Do all long work, and return how many requests each step gave up."""
    owed, steps = harness.account("E").imports, list[int]()
    while harness.long_work:
        before = owed.owed
        harness.do_long_work(0)
        steps.append(before - owed.owed)
    return steps


@pytest.mark.parametrize(("ended", "replies"), [(b"1", b"r.%d"), (b"3", b"same")])
def test_replies_without_a_subscriber_are_looked_for_in_steps(ended: bytes, replies: bytes) -> None:
    count = 5 * REPLIES_STEP
    lost = [replies.replace(b"%d", b"%d" % number) for number in range(count)]
    harness, requester = owing(lost + [b"kept.%d" % number for number in range(count)])
    requester.receive(b"UNSUB %b\r\n" % ended)
    steps = given_up(harness)
    assert max(steps) <= REPLIES_STEP and sum(steps) == harness.account("E").imports.owed == count


@pytest.mark.parametrize("most", [MANY_SUBS, 3 * MANY_SUBS])
def test_replies_are_looked_for_once_when_many_subscriptions_end(most: int) -> None:
    count = 5 * REPLIES_STEP
    harness, requester = owing([b"r.%d" % number for number in range(count)])
    requester.receive(b"".join(b"SUB x.%d.* x%d\r\n" % (number, number) for number in range(most - 3)))
    turns: list[int] = []
    calls = calls_of(lambda: (requester.closed(), turns.extend(given_up(harness))))
    assert max(turns) <= REPLIES_STEP and sum(turns) == count
    assert calls < 100 * (most + count)


def test_requests_that_nobody_answers_are_given_up_in_steps() -> None:
    count = 10 * REPLIES_STEP
    harness, _ = owing([b"r.%d" % number for number in range(count)])
    assert isinstance(harness.clock, SlowClock)
    harness.clock.ns += EXPORTS[0].response_threshold_ns
    late = harness.account("I").publish(b"s", b"kept.1", b"", b"")
    listener = client(harness, hello_of(b"e"))
    listener.receive(b"SUB lat 1\r\n")
    harness.tick()
    first = count + late - harness.account("E").imports.owed
    steps = given_up(harness)
    assert first <= REPLIES_STEP and max(steps) <= REPLIES_STEP
    assert harness.account("E").imports.owed == late == 1 and heard(listener).count(b"MSG lat ") == count
    harness.clock.ns += EXPORTS[0].response_threshold_ns
    harness.tick()
    assert harness.account("E").imports.owed == 0


def test_routes_of_what_another_server_sends_are_walked_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = broker()
    links = [linked(harness, name) for name in (b"x", b"y")]
    listener = client(harness)
    long = long_patterns(listener, harness, b"s")
    listener.receive(b"SUB > 1\r\n")
    long_patterns(links[1], harness, b"s", b"LS+ %b q%d 1\r\n")
    links[1].receive(b"LS+ s.>\r\n")
    for session in (*links, listener):
        heard(session)
    slow_down(harness)
    walks = steps_of_walks(monkeypatch)
    links[0].receive(b"LMSG %bx 1\r\nx\r\nLMSG last 1\r\nx\r\n" % long)
    assert list(harness.unfinished) == [links[0]] and heard(listener) == b""
    assert finish(harness) > 10
    assert heard(listener) == b"MSG %bx 1 1\r\nx\r\nMSG last 1 1\r\nx\r\n" % long
    assert heard(links[1]).startswith(b"LMSG s.") and walks == []


def test_permissions_of_another_server_are_indexed_in_slices() -> None:
    many = tuple(f"p.{number} group" for number in range(3000))
    user = User("u", "", "$G", permissions=SubjectPermissions(SubjectRules(many), SubjectRules(many, ("p.7",))))
    auth = StaticAuthenticator(users=(user, User("free", "", "$G")))
    harness = broker(options=BrokerOptions(auth=auth))
    leafs = LeafLinks(harness, LeafOptions(host="h", port=1), Lines())
    link, listener = leafs.accept("h", 1), client(harness, HELLO[:-3] + b',"user":"free"}\r\n')
    listener.receive(b"SUB p.5 1\r\nSUB p.7 2\r\n")
    finish(harness)
    heard(link), heard(listener)
    slow_down(harness, SLICE_NS // 500)
    denied = b",".join(b'"d.%d"' % number for number in range(3000))
    fields = b'"name":"x","server_id":"NX","headers":true,"version":"2.15.2","protocol":1,"user":"u"'
    link.receive(b'CONNECT {%b,"deny_pub":[%b]}\r\nLMSG p.5 1\r\nx\r\nPING\r\n' % (fields, denied))
    assert list(harness.unfinished) == [link] and not link.registered
    link.receive(b"LS+ d.8\r\n")
    assert finish(harness) > 15
    assert heard(listener) == b"MSG p.5 1 1\r\nx\r\n"
    assert [link.rules.send.allows(subject) for subject in (b"p.5", b"p.7", b"d.8")] == [True, False, False]
    assert link.rules.ask.allow is link.rules.export.allow
    assert heard(link).endswith(b"PONG\r\n-ERR 'Permissions Violation for Subscription to \"d.8\"'\r\n")


def test_long_subscriptions_of_who_leaves_are_removed_in_slices() -> None:
    harness = broker()
    session = client(harness)
    long_patterns(session, harness, b"s")
    session.receive(b"".join(b"SUB %b.%d q%d\r\n" % (b"a" * 2_000, number, number) for number in range(100)))
    finish(harness)
    session.closed()
    removed = removed_in_turns(harness)
    assert sum(removed) == 200 and max(removed) <= SUBS_STEP * LONG_SUBJECT_BYTES // 800 + 1


def test_messages_of_the_server_that_wait_are_dropped_above_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = broker(step_ns=1)
    session = client(harness)
    long = long_patterns(session, harness, b"s")
    session.receive(b"SUB > 1\r\n")
    heard(session)
    monkeypatch.setattr("natsctl.broker.postponed.MAX_BYTES", 10_000)
    dropped = list[str]()
    harness.log_warning = dropped.append
    for number in range(20):
        harness.account("$G").publish(long + b"%d" % number, b"", b"", b"")
    work_off(harness)
    received = heard(session).count(b"MSG ")
    assert 0 < received == 20 - len(dropped) < 20


def test_interest_in_a_reply_that_many_patterns_meet_is_found_in_later_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = broker(step_ns=1)
    session = client(harness)
    long = long_patterns(session, harness, b"s")
    session.receive(b"SUB %bheard 1\r\n" % long)
    account, walks, steps = harness.account("$G"), steps_of_walks(monkeypatch), steps_of_walking(monkeypatch)
    replies = [long + name for name in (b"heard", b"b", b"c", b"d", b"e")]
    for _ in range(100):
        assert all(account.has_interest(reply) for reply in replies)
        assert account.unwritten_bytes(long + b"f") == 0
    assert sum(steps) <= AT_ONCE_COST // STEP_COST + 1
    work_off(harness)
    assert [account.has_interest(reply) for reply in replies] == [True, False, False, False, False] and walks == []


def test_answers_to_requests_without_responders_are_walked_to_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = broker()
    session = client(harness, HELLO.replace(b'"pedantic":true', b'"pedantic":false'))
    long = long_patterns(session, harness, b"s")
    session.receive(b"SUB s.> 1\r\nPUB nobody 0\r\n\r\n")
    walks = steps_of_walks(monkeypatch)
    session.receive(b"".join(b"PUB nobody %b%d 0\r\n\r\n" % (long, number) for number in range(20)))
    finish(harness)
    assert heard(session).count(b"NATS/1.0 503\r\nNats-Subject: nobody") == 20 and walks == []


def test_a_message_that_waits_for_its_route_keeps_the_destination_that_was_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn, asked = (SubjectMap(source, (Destination("s.{{random(1000000)}}.>"),)) for source in ("s.>", "q.>"))
    harness, service, requester = traders(
        AccountConfig("E", exports=(ServiceExport("s.>"),), mappings=(drawn,)),
        AccountConfig("I", imports=(ServiceImport("E", "s.>"),), mappings=(asked,)),
    )
    for session in (service, requester):
        long = long_patterns(session, harness, b"s.*.*")
    service.receive(b"SUB s.> 1\r\n")
    heard(service)
    slow_down(harness)
    walks = steps_of_walks(monkeypatch)
    requester.receive(b"PUB q.a.%bx 0\r\n\r\n" % long.removeprefix(b"s.*.*."))
    assert list(harness.unfinished) == [requester] and heard(service) == b""
    assert finish(harness) > 10
    assert heard(service).count(b"MSG ") == 1 and walks == []


def linked(harness: Broker, name: bytes, hello: bytes = b"", user: bytes = b"") -> LeafLink:
    link = LeafLinks(harness, LeafOptions(host="h", port=1), Lines()).accept("h", 1)
    link.receive(
        b'CONNECT {"name":"%b","server_id":"N","headers":true,"version":"2.15.2","protocol":1,"user":"%b"}\r\n%b'
        % (name, user, hello)
    )
    return link


def test_messages_of_the_server_to_other_servers_wait_for_long_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = broker(step_ns=1)
    link = linked(harness, b"x")
    long = long_patterns(link, harness, b"s", b"LS+ %b q%d 1\r\n")
    link.receive(b"LS+ s.>\r\n")
    heard(link)
    walks = steps_of_walks(monkeypatch)
    subjects = [long + b"%d" % number for number in range(10)]
    for subject in subjects:
        harness.account("$G").publish(subject, b"", b"", b"x")
    work_off(harness)
    assert re.findall(rb"LMSG (\S+) ", heard(link)) == subjects and walks == []


def test_interest_is_announced_to_a_new_server_in_slices_while_it_changes() -> None:
    harness, rng = broker(), random.Random(5)
    session = crowd(harness, 2 * MANY_SUBS)
    links = [linked(harness, name) for name in (b"first", b"second")]
    known: dict[LeafLink, dict[bytes, bytes]] = {link: {} for link in links}
    slow_down(harness, 1)
    lines, sids = list[int](), list(session.subs)
    while harness.long_work:
        harness.do_long_work(0)
        links[0].receive(b"LS+ far f %d\r\n" % rng.randint(1, 9))
        session.receive(
            b"UNSUB %b\r\nSUB new.%d n%d\r\n" % (sids.pop(rng.randrange(len(sids))), len(lines), len(lines))
        )
        for link in links:
            changes = re.findall(rb"LS([+-]) (.+?)(?: (\d+))?\r\n", heard(link))
            lines.append(len(changes))
            for sign, key, weight in changes:
                if sign == b"+":
                    known[link][key] = weight
                else:
                    del known[link][key]
    assert max(lines) <= SUBS_STEP + 3
    subjects = {sub.subject + (b" " + sub.queue if sub.queue else b"") for sub in session.subs.values()}
    assert all(subjects == {key for key in known[link] if not key.startswith((b"$", b"far"))} for link in links)
    before = harness.subscriptions
    links[0].receive(b"".join(b"LS+ r.%d\r\n" % number for number in range(2 * MANY_SUBS)))
    assert calls_of(links[0].closed) < MANY_SUBS
    assert harness.subscriptions == before + 2 * MANY_SUBS
    assert max(removed_in_turns(harness)) == SUBS_STEP


def test_accounts_take_turns_and_the_work_of_each_is_done_in_its_order() -> None:
    work, done = LongWork(), list[str]()

    def steps(name: str) -> Iterator[None]:
        for _ in range(3):
            done.append(name)
            yield

    for name in ("a1", "a2", "b1"):
        work.add(steps(name), name[0])
    while work:
        work.step()
    assert done == ["a1", "b1"] * 3 + ["a2"] * 3


def test_many_short_lines_are_cut_into_shorter_pieces() -> None:
    for chunk in (b"+OK\r\n" * 50_000, b"PUB a 100\r\n%b\r\n" % (b"x" * 100) * 2_000, b"\n" * 100_000, b"x"):
        parts = list(cut(chunk))
        assert b"".join(parts) == chunk
        assert max(map(len, parts)) <= PIECE_BYTES and max(part.count(b"\n") for part in parts) <= PIECE_LINES


GUARDED: Final = SubjectPermissions(subscribe=SubjectRules(allow=(">",), deny=("s.no",)))
MANY: Final = {
    "plain": (b"e", b"SUB s.x %d\r\n"),
    "guarded": (b"g", b"SUB s.* %d\r\n"),
    "groups": (b"e", b"SUB s.x q%d %d\r\n"),
    "imported": (b"i", b"SUB s.x %d\r\n"),
}
"""Users and subscriptions by the kind of recipients."""


@pytest.fixture(params=MANY)
def listeners(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Broker, Session]:
    """Return a broker that delivers to four recipients at once, and a client with twenty subscriptions to `s.x`."""
    for module in ("account", "message_trace", "routes"):
        monkeypatch.setattr(f"natsctl.broker.{module}.DELIVERED_AT_ONCE", 4)
    monkeypatch.setattr("natsctl.broker.routes.LISTED_RECIPIENTS", 4)
    users = (User("e", "", "E"), User("g", "", "E", permissions=GUARDED), User("i", "", "I"), User("r", "", "R"))
    harness = broker(options=BrokerOptions(auth=StaticAuthenticator(users=users)))
    imports = {"I": StreamImport("E", "s.>", allow_trace=True), "R": ServiceImport("E", "s.x", to="ask")}
    harness.configure(
        [
            AccountConfig("E", exports=(StreamExport("s.>"), ServiceExport("s.x"))),
            *(AccountConfig(name, imports=(each,)) for name, each in imports.items()),
        ]
    )
    user, line = MANY[request.param]
    session = client(harness, hello_of(user))
    session.receive(b"".join(line % ((sid,) * line.count(b"%d")) for sid in range(20)))
    return harness, session


def got(session: Session) -> list[tuple[int, bytes]]:
    return [(int(sid), body) for sid, body in re.findall(rb"MSG s\.x (\d+) \d+\r\n(\w+)\r\n", heard(session))]


@pytest.mark.parametrize("sends", ["client", "leaf node", "server"])
def test_a_message_to_very_many_is_delivered_in_slices(listeners: tuple[Broker, Session], sends: str) -> None:
    harness, session = listeners
    publisher = linked(harness, b"x", user=b"e") if sends == "leaf node" else client(harness, hello_of(b"e"))
    account = harness.account("E")
    if sends == "server":
        publisher.receive(b"SUB last end\r\n")
    heard(publisher)
    slow_down(harness)
    if sends == "server":
        for body in (b"a", b"b"):
            assert account.publish(b"s.x", b"", b"", body)
        assert account.publish(b"last", b"", b"", b"")
    else:
        groups = b" ".join(b"q%d" % sid for sid in range(20))
        line = b"PUB s.x 1\r\n" if sends == "client" else b"LMSG s.x | %b 1\r\n" % groups
        publisher.receive(line + b"a\r\n" + line + b"b\r\nPING\r\n")
    first = got(session)
    assert 0 < len(first) < 20 and heard(publisher) == b""
    session.receive(b"UNSUB 19\r\n")
    assert finish(harness) + work_off(harness) > 2
    rest = got(session)
    assert sorted(first + rest) == [(sid, body) for sid in range(19) for body in (b"a", b"b")]
    assert all((first + rest).index((sid, b"a")) < (first + rest).index((sid, b"b")) for sid in range(19))
    assert (b"MSG last end 0\r\n" if sends == "server" else b"PONG\r\n") in heard(publisher)
    assert not account.postponed.any


def test_a_message_reaches_very_many_after_its_publisher_has_left(listeners: tuple[Broker, Session]) -> None:
    harness, session = listeners
    publisher = client(harness, hello_of(b"e").replace(b'"verbose":false', b'"verbose":true'))
    slow_down(harness)
    publisher.receive(b"PUB s.x 1\r\na\r\n")
    first = got(session)
    assert 0 < len(first) < 20 and heard(publisher) == b"+OK\r\n"
    publisher.closed()
    work_off(harness)
    assert sorted(first + got(session)) == [(sid, b"a") for sid in range(20)]


def test_a_traced_message_to_very_many_is_reported_when_all_have_it(listeners: tuple[Broker, Session]) -> None:
    harness, session = listeners
    publisher = client(harness, hello_of(b"e"))
    publisher.receive(b"SUB traces end\r\n")
    block = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\n\r\n"
    slow_down(harness)
    publisher.receive(b"HPUB s.x %d %d\r\n%ba\r\nPING\r\n" % (len(block), len(block) + 1, block))
    assert heard(publisher) == b""
    assert finish(harness) > 1
    work_off(harness)
    told = heard(publisher)
    assert told.count(b'"type":"eg"') == 20 and told.index(b"MSG traces end") < told.index(b"PONG\r\n")
    assert len(re.findall(rb"MSG s\.x \d+ ", heard(session))) == 20


@pytest.mark.parametrize("listeners", ["guarded"], indirect=True)
def test_a_request_that_none_of_very_many_may_receive_has_no_responders(listeners: tuple[Broker, Session]) -> None:
    harness, session = listeners
    requester = client(harness, hello_of(b"e"))
    requester.receive(b"SUB in 1\r\n")
    slow_down(harness)
    requester.receive(b"PUB s.no in 0\r\n\r\n")
    assert heard(requester) == b""
    finish(harness)
    assert heard(requester) == b"HMSG in 1 36 36\r\nNATS/1.0 503\r\nNats-Subject: s.no\r\n\r\n\r\n"
    assert heard(session) == b""


@pytest.mark.parametrize("listeners", ["imported"], indirect=True)
def test_messages_that_very_many_recipients_send_on_are_delivered_after_their_own(
    listeners: tuple[Broker, Session],
) -> None:
    """Some recipients are mirrors: each sends the message to very many again, while it is being delivered."""
    harness, session = listeners
    account = harness.account("E")

    def send_on(subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        account.publish(b"s.x", b"", b"", b"again", origin)

    for _ in range(6):
        account.subscribe(b"first", send_on)
    publisher = client(harness, hello_of(b"e"))
    slow_down(harness)
    publisher.receive(b"PUB first 0\r\n\r\nPUB s.x 1\r\na\r\nPING\r\n")
    finish(harness)
    told = got(session)
    assert all([body for to, body in told if to == sid] == [*[b"again"] * 6, b"a"] for sid in range(20))
    assert heard(publisher).startswith(b"PONG\r\n")
    publisher.receive(b"PUB first 0\r\n\r\n")
    publisher.closed()
    work_off(harness)
    assert len(got(session)) == 6 * 20


def test_a_request_in_parts_knows_the_way_that_it_came(listeners: tuple[Broker, Session]) -> None:
    """Requests to a service are no messages of the stream with the same subjects."""
    harness, session = listeners
    requester = client(harness, hello_of(b"r"))
    slow_down(harness)
    requester.receive(b"PUB ask 1\r\na\r\nPING\r\n")
    finish(harness)
    assert heard(session).count(b"HMSG s.x ") == (0 if session.account.name == "I" else 20)
    assert heard(requester).startswith(b"PONG\r\n")


def test_messages_delivered_at_the_same_time_keep_their_queue_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("account", "message_trace", "routes"):
        monkeypatch.setattr(f"natsctl.broker.{module}.DELIVERED_AT_ONCE", 1)
    harness = broker()
    link, publishers = linked(harness, b"x"), [client(harness) for _ in range(3)]
    link.receive(b"LS+ s q 1\r\nLS+ s r 1\r\nLS+ s t 1\r\n")
    heard(link)
    slow_down(harness)
    for number, publisher in enumerate(publishers):
        publisher.receive(b"PUB s 1\r\n%d\r\n" % number)
    assert len(harness.unfinished) == 3
    finish(harness)
    assert sorted(heard(link).split(b"LMSG ")[1:]) == [b"s | q r t 1\r\n%d\r\n" % number for number in range(3)]


GROUPS: Final = {
    "without echo": (b"e", b"SUB s.no q %d\r\n"),
    "filtered": (b"g", b"SUB s.* q %d\r\n"),
    "small groups": (b"g", b"SUB s.* q%d %d\r\n"),
}


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("traced", [False, True])
def test_large_groups_that_may_not_have_a_message_are_asked_in_parts(
    kind: str, traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("account", "message_trace", "routes"):
        monkeypatch.setattr(f"natsctl.broker.{module}.DELIVERED_AT_ONCE", 4)
    users = (User("e", "", "E"), User("g", "", "E", permissions=GUARDED))
    harness = broker(options=BrokerOptions(auth=StaticAuthenticator(users=users)))
    user, line = GROUPS[kind]
    member = client(harness, hello_of(user)[:-3] + b',"echo":false}\r\n')
    member.receive(b"".join(line % ((sid // 3, sid) if line.count(b"%d") > 1 else sid) for sid in range(40)))
    requester = member if kind == "without echo" else client(harness, hello_of(b"e"))
    requester.receive(b"SUB in r\r\nSUB traces t\r\n")
    slow_down(harness)
    block = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\n\r\n" if traced else b""
    size = len(block)
    requester.receive(
        b"HPUB s.no in %d %d\r\n%b\r\nPING\r\n" % (size, size, block) if traced else b"PUB s.no in 0\r\n\r\nPING\r\n"
    )
    assert heard(requester) == b""
    assert finish(harness) > 3
    told = heard(requester)
    assert re.findall(rb"503|MSG traces|PONG", told) == [b"MSG traces" if traced else b"503", b"PONG"]
    assert told.count(b'"Not delivered because') == 40 * traced


def test_a_message_to_a_large_group_reaches_one_member(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("account", "message_trace", "routes"):
        monkeypatch.setattr(f"natsctl.broker.{module}.DELIVERED_AT_ONCE", 4)
    harness = broker()
    member, other = (client(harness, HELLO[:-3] + b',"echo":false}\r\n') for _ in range(2))
    member.receive(b"".join(b"SUB s q %d\r\n" % sid for sid in range(40)))
    other.receive(b"SUB s q 40\r\n")
    link = linked(harness, b"x", b"".join(b"LS+ %b q 1\r\n" % subject for subject in (b"s", b">", b"*")))
    heard(link)
    for number in range(50):
        (member if number % 2 else other).receive(b"PUB s 1\r\n%d\r\n" % (number % 10))
    finish(harness)
    assert heard(member).count(b"MSG s ") == heard(other).count(b"MSG s 40 ") == 25 and heard(link) == b""


def test_members_elsewhere_are_asked_once_if_one_here_takes_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = broker()
    session = client(harness)
    patterns = [b".".join(b"a*"[bit >> at & 1 : (bit >> at & 1) + 1] for at in range(8)) for bit in range(256)]
    linked(harness, b"x", b"".join(b"LS+ %b q 1\r\n" % pattern for pattern in patterns))
    session.receive(b"SUB a.> q 1\r\n")
    send = b"PUB a.a.a.a.a.a.a.a 0\r\n\r\n"
    session.receive(send)
    heard(session)
    assert calls_of(lambda: session.receive(send * 10)) < 10 * 8 * 256
    assert heard(session).count(b"MSG ") == 10


@pytest.mark.parametrize("own", [False, True])
def test_requests_to_nobody_are_answered_in_slices_however_many_have_their_reply(own: bool) -> None:
    harness = broker()
    others, requester = client(harness), client(harness, HELLO.replace(b'"pedantic":true', b'"pedantic":false'))
    others.receive(b"".join(b"SUB in %d\r\n" % sid for sid in range(2 * MANY_SUBS)))
    if own:
        requester.receive(b"SUB y.* other\r\nSUB i* none\r\nSUB in q group\r\nSUB * 1\r\nSUB in 2\r\n")
    heard(requester)
    assert calls_of(lambda: requester.receive(b"PUB x.y in 0\r\n\r\n" * 100)) < 100 * MANY_SUBS / 10
    assert heard(requester).count(b"HMSG in 1 ") == (100 if own else 0)
    slow_down(harness)
    requester.receive(b"PUB x.y in 0\r\n\r\n" * 100)
    assert finish(harness) > 40
    assert heard(requester).count(b"NATS/1.0 503\r\n") == (100 if own else 0) and heard(others) == b""


def test_a_message_to_many_groups_of_another_server_costs_the_same_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsctl.broker.routes.LISTED_RECIPIENTS", 4)
    harness = broker()
    calls = []
    for count in (MANY_SUBS, 2 * MANY_SUBS):
        link, publisher = linked(harness, b"x%d" % count), client(harness)
        subject = b"s%d" % count
        link.receive(b"".join(b"LS+ %b q%d 1\r\n" % (subject, number) for number in range(count)))
        heard(link)

        def publish(publisher: Session = publisher, subject: bytes = subject) -> None:
            publisher.receive(b"PUB %b 1\r\nx\r\n" % subject)
            finish(harness)

        calls.append(calls_of(publish))
        (names,) = re.findall(rb"LMSG %b \| (.*) 1\r\n" % subject, heard(link))
        assert sorted(names.split()) == sorted(b"q%d" % number for number in range(count))
    assert calls[1] < 2.5 * calls[0]


def test_a_watch_of_subscribers_costs_the_same_however_many_others_there_are() -> None:
    harness, calls = broker(), list[int]()
    session, account = client(harness), harness.account("$G")
    session.receive(b"SUB d first\r\nSUB d g member\r\n")
    changes = list[int]()
    watch = account.watch_subscribers(b"d", b"g", lambda: changes.append(watch.subscribers))
    assert watch.subscribers == 1
    for sids in (range(1000), range(1000, 2000)):
        subscribe = b"".join(b"SUB d %d\r\nSUB d h h%d\r\nSUB > w%d\r\n" % (sid, sid, sid) for sid in sids)
        calls.append(calls_of(lambda subscribe=subscribe: session.receive(subscribe)))  # type: ignore[misc]
    assert calls[1] < 1.1 * calls[0] and changes == []
    session.receive(b"SUB d g another\r\nUNSUB member\r\nUNSUB first\r\nUNSUB another\r\n")
    assert changes == [2, 1, 0]
    session.receive(b"SUB d g again\r\n")
    session.closed()
    work_off(harness)
    assert changes == [2, 1, 0, 1, 0]
    watch.cancel()
    client(harness).receive(b"SUB d g late\r\n")
    assert changes[-1] == 0


def test_very_many_watches_of_one_subject_are_called_in_later_turns() -> None:
    harness, called = broker(), [0]
    session, account = client(harness), harness.account("$G")

    def changed() -> None:
        called[0] += 1

    watches = [account.watch_subscribers(b"d", b"", changed) for _ in range(1000)]
    for change in (b"SUB d 1\r\n", b"UNSUB 1\r\n"):
        called[0] = 0
        session.receive(change)
        assert 0 < called[0] < 100
        watches.pop().cancel()
        late = account.watch_subscribers(b"d", b"", lambda: None)
        expected = late.subscribers
        work_off(harness)
        assert called[0] >= len(watches) and {watch.subscribers for watch in [*watches, late]} == {expected}
        late.cancel()


def test_a_publisher_waits_after_each_message_whose_handler_has_taken_long() -> None:
    harness, heard = broker(2 * SLICE_NS), list[bytes]()
    session = client(harness)

    def take(subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        heard.append(payload)
        harness.took_long = payload == b"2"

    harness.account("$G").subscribe(b"s.*", take)
    session.receive(b"".join(b"PUB s.%d 1\r\n%d\r\n" % (number, number) for number in range(1, 6)))
    assert heard == [b"1", b"2"]
    finish(harness)
    assert heard == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("listeners", ["plain", "imported"], indirect=True)
def test_publishers_wait_while_the_server_has_much_for_very_many(
    listeners: tuple[Broker, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("natsctl.broker.postponed.MUCH_BYTES", 5_000)
    monkeypatch.setattr("natsctl.broker.postponed.MAX_BYTES", 10_000)
    harness, session = listeners
    account, publisher = harness.account("E"), client(harness, hello_of(b"e"))
    account.subscribe(b"in", lambda subject, reply, header, payload, origin: account.publish(b"s.x", b"", b"", payload))
    publisher.receive(b"".join(b"PUB in 2\r\n%d\r\n" % number for number in range(10, 20)))
    assert account.postponed.any and account.unwritten_bytes(b"s.x") > 1 << 40
    for start in range(20, 100, 5):
        publisher.receive(b"".join(b"PUB in 2\r\n%d\r\n" % number for number in range(start, start + 5)))
        harness.do_long_work(0)
    assert list(harness.unfinished) == [publisher]
    while harness.unfinished or harness.long_work:
        if harness.unfinished:
            resume_work(harness.unfinished.popleft())
        harness.do_long_work(0)
    told = got(session)
    assert all(
        [body for to, body in told if to == sid] == [b"%d" % each for each in range(10, 100)] for sid in range(20)
    )
    assert not account.postponed.any and account.postponed.bytes == 0


@pytest.mark.parametrize("handled", [False, True])
def test_many_messages_of_the_server_to_several_are_delivered_in_turns(
    handled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit may have thousands of messages to republish."""
    monkeypatch.setattr("natsctl.broker.postponed.DELIVERIES_AT_ONCE", 10)
    harness, heard_by = broker(), list[bytes]()
    account = harness.account("$G")
    for _ in range(3):
        if handled:
            account.subscribe(b"s", lambda subject, reply, header, payload, origin: heard_by.append(payload))
        else:
            client(harness).receive(b"SUB s 1\r\n")
    listener = client(harness)
    listener.receive(b"SUB last 1\r\n")

    def deliveries() -> list[bytes]:
        for session in harness.sessions.values():
            heard_by.extend(re.findall(rb"MSG s 1 1\r\n(.)", b"".join(session.take_output())))
        return heard_by

    for _ in range(2):
        heard_by.clear()
        for body in b"abcdefghij":
            assert account.publish(b"s", b"", b"", b"%c" % body)
        account.answer_all([(b"last", b"")])
        assert len(deliveries()) == 12 and heard(listener) == b""
        assert work_off(harness) >= 6
        assert heard(listener) == b"MSG last 1 0\r\n\r\n"
        found = deliveries()
        assert sorted(found) == sorted(b"abcdefghij"[at : at + 1] for at in range(10) for _ in range(3))
        assert found == sorted(found) or not handled
        assert not account.postponed.any


def test_thousands_of_clients_are_closed_in_slices_when_they_expire_at_once() -> None:
    harness = broker(options=BrokerOptions(auth=StaticAuthenticator(users=(User("e", "", "E"),))))
    silent = [harness.connect("h", 1) for _ in range(100)]
    expiring = [client(harness, hello_of(b"e")) for _ in range(100)]
    assert isinstance(harness.clock, SlowClock)
    for session in expiring:
        session.timers.expire_at(harness.clock.ns + 1)
    slow_down(harness, 100_000)
    harness.clock.ns += 3_600_000_000_000
    closed = 0
    while closed < 200:
        due_ns = harness.tick()
        before, closed = closed, sum(session.close_reason is not None for session in silent + expiring)
        assert 0 < closed - before < 100
        assert closed == 200 or due_ns <= harness.clock.ns
    assert {session.close_reason for session in silent} == {CloseReason.AUTHENTICATION_TIMEOUT}
    assert {session.close_reason for session in expiring} == {CloseReason.AUTHENTICATION_EXPIRED}


def test_clients_above_the_limit_of_their_account_are_closed_in_steps() -> None:
    harness = broker(options=BrokerOptions(auth=StaticAuthenticator(users=(User("e", "", "E"),))))
    sessions = [client(harness, hello_of(b"e")) for _ in range(50)]
    harness.configure([AccountConfig("E", limits=ConnectionLimits(max_connections=10))])
    steps = harness.reauthorize({"e"}, {"e"})
    left = [50, *(len(harness.account("E").sessions) for _ in steps)]
    assert {before - now for before, now in itertools.pairwise(left)} == {0, 1} and left[-1] <= 11
    assert all(session.close_reason is None for session in sessions[:10])


def test_the_clock_is_looked_at_after_each_subscription_that_many_leaf_nodes_learn_of() -> None:
    harness = broker()
    session, links = client(harness), [linked(harness, b"x%d" % number) for number in range(MANY_RECIPIENTS + 1)]
    for link in links:
        heard(link)
    slow_down(harness)
    session.receive(b"".join(b"SUB s.%d %d\r\n" % (number, number) for number in range(1, LOOK_MASK)))
    assert 0 < heard(links[-1]).count(b"LS+ s.") < LOOK_MASK - 1
    finish(harness)
    assert len(session.subs) == LOOK_MASK - 1


def test_a_run_that_nobody_receives_is_dropped_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    published = list[bytes]()
    publish = Account.publish
    monkeypatch.setattr(
        Account, "publish", lambda self, *message: (published.append(message[0]), publish(self, *message))[1]
    )
    harness = broker()
    publisher = client(harness, HELLO.replace(b'"pedantic":true', b'"pedantic":false'))
    publisher.receive(b"PUB x 1\r\nx\r\n" * 1000)
    assert published == []
    assert publisher.in_msgs == 1000 and publisher.in_bytes == 1000
    publisher.receive(b"SUB in 1\r\n" + b"PUB x in 0\r\n\r\n" * 1000)
    assert publisher.in_msgs == 2000 and heard(publisher).count(b"NATS/1.0 503\r\n") == 1000
