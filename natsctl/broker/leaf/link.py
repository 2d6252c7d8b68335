"""One leaf node connection after the handshake: interest and messages in both directions.

Theory of operation. A link is a session without subscriptions of its own. The interest of the other side stands as
handler subscriptions in the link's account, and the account's interest is sent to the other side (leaf_interest.py).
Messages that came over a link never go back over it, or to a link of the same remote cluster. The handshake is in the
subclasses: `accepted.py` and `leaf_nodes.py`.

`LinkRules` restrict what may cross a link. `send` rules say what this server may put on the connection, `ask` rules
the interest that it may announce to the other side; `export` rules (of a hub) limit the other side's messages. Deny
wins; if there is an allow list everything else is denied. Interest may be wider than the allowed subjects (`foo.>`
where `foo.bar` is): messages are checked again. Verdicts for literal subjects are kept, bounded, until a rule changes.
Source: nats-server, leafnode.go and client.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from natsctl.api.subject_index import STEP, PatternSet, Steps, finish
from natsctl.api.subjects import has_valid_tokens, has_wildcard
from natsctl.api.units import SECOND
from natsctl.broker.auth.login import Login
from natsctl.broker.deferred_work import MANY_SUBS, defer, receive_pieces, slice_end_ns
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.broker.leaf.leaf_interest import LocalInterest, RemoteInterest
from natsctl.broker.message_trace import begin_trace
from natsctl.broker.refusals import FAULT_REASONS, CloseReason
from natsctl.broker.session import Session
from natsctl.broker.subscription import COPY_LIMIT, CRLF
from natsctl.wire.leaf import LEAF_MSG, LEAF_SUB, LEAF_UNSUB, LeafParser, encode_leaf_head, encode_leaf_msg, leaf_limits
from natsctl.wire.ops import CONNECT, ERR, INFO, PING, PONG, Op, ProtocolViolationError
from natsctl.wire.server_frames import PONG_LINE

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.auth.permissions import Replies, SubjectRules
    from natsctl.broker.leaf.handshake import SubjectLists
    from natsctl.broker.leaf.leaf_nodes import LeafLinks


MAX_CACHED: Final = 512
"""Maximum number of cached answers; then the cache is cleared."""
ALWAYS_LET_IN: Final = (b"_R_.", b"$JS.ACK.")
"""Beginnings of subjects that are answers: no rule is asked."""
UNRULED_INTEREST: Final = (b"$LDS.", b"$GR.", b"_GR_.")
"""Beginnings of subjects of interest that no rule is asked about."""


class Direction:
    __slots__ = ("_known", "allow", "deny")

    def __init__(self) -> None:
        self.allow: PatternSet | None = None
        self.deny: list[PatternSet] = []
        self._known: dict[bytes, bool] = {}

    def restrict(self, allow: PatternSet | None, deny: PatternSet) -> None:
        self.allow, self.deny = allow, [deny] if deny.patterns else []
        self._known.clear()

    def forbid(self, patterns: Iterable[str]) -> None:
        finish(self.forbidding(patterns))

    def forbidding(self, patterns: Iterable[str]) -> Steps[None]:
        deny = yield from rule_patterns(patterns)
        if deny.patterns:
            self.deny.append(deny)
        self._known.clear()

    def denied(self) -> set[bytes]:
        return {pattern for patterns in self.deny for pattern in patterns.patterns}

    def allows(self, subject: bytes) -> bool:
        """Return whether a message on `subject` may pass."""
        if self.allow is None and not self.deny:
            return True
        known = self._known.get(subject)
        if known is None:
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            known = self._known[subject] = self._matches(subject)
        return known

    def allows_interest(self, subject: bytes) -> bool:
        """Return whether interest in `subject` may pass; wider interest than allowed may."""
        if self.allow is None and not self.deny:
            return True
        if self._matches(subject):
            return True
        if self.allow is None or not has_wildcard(subject) or self._denies(subject):
            return False
        return self.allow.meet(subject)

    def _matches(self, subject: bytes) -> bool:
        return not self._denies(subject) and (self.allow is None or self.allow.match(subject))

    def _denies(self, subject: bytes) -> bool:
        return any(deny.match(subject) for deny in self.deny)


class LinkRules:
    __slots__ = ("ask", "export", "replies", "send")

    def __init__(self) -> None:
        self.send = Direction()
        self.ask = Direction()
        self.export = Direction()
        self.replies: Replies | None = None
        """Additional subjects that a hub's user may respond on."""

    def may_ask(self, subject: bytes) -> bool:
        """Return whether interest in `subject` may be announced to the other side."""
        return subject.startswith(UNRULED_INTEREST) or self.ask.allows_interest(subject)

    def may_be_asked(self, subject: bytes) -> bool:
        """Return whether the other side may have interest in `subject`; wildcards may, messages are looked at."""
        return subject.startswith(UNRULED_INTEREST) or has_wildcard(subject) or self.send.allows(subject)

    def lets_in(self, subject: bytes, *, spoke: bool) -> bool:
        """Return whether the other side may send a message on `subject`."""
        if subject.startswith(ALWAYS_LET_IN):
            return True
        if (self.ask if spoke else self.export).allows(subject):
            return True
        return self.replies is not None and self.replies.use(subject)

    def forbid_both(self, patterns: Sequence[str]) -> None:
        self.send.forbid(patterns)
        self.ask.forbid(patterns)


def rule_patterns(rules: Iterable[str]) -> Steps[PatternSet]:
    """Return the subjects of rules; queue groups in them are ignored."""
    patterns, subjects = PatternSet(), list[bytes]()
    for rule in rules:
        subjects.append(rule.partition(" ")[0].encode())
        if not len(subjects) % STEP:
            yield STEP
    yield from patterns.fill(subjects)
    return patterns


def rule_sets(rules: SubjectRules | SubjectLists) -> Steps[tuple[PatternSet | None, PatternSet]]:
    allow = None if rules.allow is None else (yield from rule_patterns(rules.allow))
    return allow, (yield from rule_patterns(rules.deny or ()))


PENDING_FACTOR: Final = 4
"""A link may have this many times a client's pending output: it serves many clients."""
MAX_INTERESTS: Final = 1 << 20
"""Subscriptions that the other side of one link may have."""
FIRST_PING_NS: Final = SECOND
"""Delay of the first PING; it measures the round trip. Source: nats-server, firstPingInterval."""
DELAY_NS: Final = 30 * SECOND
"""Delay before connecting again after a loop, a violation, or a name that both sides have."""
ACK_DOTS: Final = 8
"""Dots before the subject appended to a delivery's ack subject. Source: nats-server, jsAckDeliverIdx."""


class LeafLink(Session):
    """The state of one connection between two servers."""

    event_kind = 4
    __slots__ = (
        "_leafs",
        "_reader",
        "_registered",
        "compression",
        "is_spoke",
        "isolated",
        "local_interest",
        "reconnect_delay_ns",
        "remote_account",
        "remote_cluster",
        "remote_domain",
        "remote_interest",
        "remote_server",
        "rules",
        "solicited",
        "traces",
        "was_registered",
    )  # fmt: skip

    def __init__(self, leafs: LeafLinks, cid: int, host: str, port: int, kind: str) -> None:
        self._leafs = leafs
        self._registered = self.was_registered = self.is_spoke = False
        super().__init__(leafs.broker, cid, host, port, kind)
        self.login = Login(self)  # a new one: the default user is for clients
        self.account = self.broker.account(GLOBAL_ACCOUNT)
        self._reader = LeafParser(leaf_limits(self.broker.options.limits))
        self.max_pending *= PENDING_FACTOR
        self.echo = self.verbose = self.pedantic = False
        self.isolated = leafs.options.isolate
        self.solicited = False
        self.traces = False
        """Whether the other side traces messages."""
        self.remote_server = self.remote_cluster = self.remote_domain = self.remote_account = ""
        self.compression = "off"
        """The compression that monitoring shows: links are never compressed."""
        self.reconnect_delay_ns = 0
        """Delay before the connecting side does so again, where longer than usual."""
        self.rules = LinkRules()
        self.remote_interest = RemoteInterest(self)
        self.local_interest = LocalInterest(self)

    def move(self, account: Account) -> None:
        """Join an account, without being one of its clients."""
        self.account = account

    def has_room(self, account: str) -> bool:
        return not self._leafs.is_full(self.broker.account(account), self)

    # --- monitoring

    @property
    def label(self) -> str:
        return f"{self.host}:{self.port} - lid:{self.cid}"

    @property
    def registered(self) -> bool:
        """Return whether the handshake is done: messages and interest flow."""
        return self._registered

    @property
    def is_isolated(self) -> bool:
        """Return whether interest of other leaf nodes is kept from the other side."""
        return self.isolated

    @property
    def websocket(self) -> bool:
        return self.kind == "websocket"

    def subjects(self) -> Iterable[bytes]:
        """Return the subjects that the other side is interested in."""
        return self.remote_interest.subjects()

    @property
    def connection_type(self) -> str:
        """The kind of connection as users and JWTs name it."""
        return "LEAFNODE_WS" if self.kind == "websocket" else "LEAFNODE"

    def fail(self, reason: CloseReason, text: str) -> None:
        """Report a fault to the other side and the log, and close."""
        self._leafs.log.error(f"{self.label} - {text}")
        self.close(reason, text)

    # --- messages

    def takes_from(self, origin: Session | None, subject: bytes) -> bool:
        """Return whether a message of `origin` may go over this link."""
        if origin is self or self.close_reason is not None or not self.rules.send.allows(subject):
            return False
        return not (
            isinstance(origin, LeafLink) and origin.remote_cluster and origin.remote_cluster == self.remote_cluster
        )

    def send_message(
        self, to: bytes, subject: bytes, reply: bytes, queues: list[bytes], header: bytes, payload: bytes
    ) -> None:
        """Send one message to the recipients of `to`, who see `subject` (appended to the ack subject)."""
        if subject != to and reply:
            reply = b"%b@%b" % (reply, subject)
        if reply and self.rules.replies is not None:
            self.rules.replies.note(reply)
        size = len(payload)
        if size > COPY_LIMIT:
            self.write(encode_leaf_head(to, reply, queues, header if self.headers else b"", size))
            self.write(payload)
            frame = CRLF
        elif header or queues:
            frame = encode_leaf_msg(to, reply, queues, header if self.headers else b"", payload)
        elif reply:
            frame = b"LMSG %b %b %d\r\n%b\r\n" % (to, reply, size, payload)
        else:
            frame = b"LMSG %b %d\r\n%b\r\n" % (to, size, payload)
        self.write(frame)
        self.out_msgs += 1
        self.out_bytes += len(header) + size
        if self.pending_bytes > self.max_pending:
            self.cut_slow_consumer()

    def _take_message(self, op: Op) -> None:
        _, subject, reply, queues, header, payload = op
        self.last_data_ns = self.last_active_ns
        self.in_msgs += 1
        self.in_bytes += len(header) + len(payload)
        if not self.rules.lets_in(subject, spoke=self.is_spoke):
            self._violated("Publish", subject)
            return
        account = self.account
        to = account.mapped(subject)
        shown = to
        at = reply.find(b"@") if reply.startswith(b"$JS.ACK.") else -1
        if at > 0 and at + 1 < len(reply) and reply.count(b".", 0, at) >= ACK_DOTS:
            reply, shown = reply[:at], reply[at + 1 :]
        # A message that is mapped here names no groups of its new subject, so each group there gets it.
        chosen = queues if queues or to == subject else None
        if header and shown is to and account.config.asks_for_trace(header):
            self._relay_traced(subject, (to, reply, header, payload), chosen)
        else:
            account.deliver(to, shown, reply, header, payload, self, chosen)

    def _relay_traced(
        self, subject: bytes, message: tuple[bytes, bytes, bytes, bytes], queues: list[bytes] | None
    ) -> None:
        """Deliver a message that came on `subject`, and publish its trace."""
        to, reply, header, payload = message
        begun = begin_trace(header, self, lambda dest: self.rules.lets_in(dest, spoke=self.is_spoke))
        if isinstance(begun, bytes):
            self.account.deliver(to, to, reply, begun, payload, self, queues)
        elif begun is not None:
            begun.entered(subject)
            if to != subject:
                begun.mapped(to)
            begun.walk(self.account, to, message, queues)
            begun.report(header, payload)

    # --- interest

    def start_announcing(self) -> None:
        """Announce the account's interest from now on: the handshake is done."""
        account = self.account
        self._registered = True
        self.timers.start()
        self.was_registered = True
        beside = [subject for source in account.sources for subject in source()]
        beside += [*account.mapping_sources(), self._leafs.loop_subject(account)]
        account.listeners.append(self.local_interest)
        announcing = self.local_interest.start(account.routes.subs, beside)
        if account.subscriptions > MANY_SUBS:
            self.broker.long_work.add(announcing, account)
            self.broker.jobs.wake()
        else:
            finish(announcing)

    def _take_interest(self, subject: bytes, queue: bytes, weight: int) -> None:
        if subject == self._leafs.loop_subject(self.account):
            self.loop_found(notify=True)
        elif not self.rules.may_be_asked(subject):
            self._violated("Subscription", subject)
        elif not has_valid_tokens(subject):
            self._leafs.log.error(f"{self.label} - Could not insert subscription: invalid subject")
            self.err("Invalid Subscription")
        elif len(self.remote_interest) >= (self.broker.options.max_subscriptions or MAX_INTERESTS):
            self._leafs.log.error(f"{self.label} - maximum subscriptions exceeded")
            self.err("maximum subscriptions exceeded")
        else:
            self.remote_interest.add(subject, queue, weight)

    def _violated(self, action: str, subject: bytes) -> None:
        """Close the connection after a permissions violation by the other side; a spoke only ignores it."""
        if self.is_spoke:
            return
        self.reconnect_delay_ns = DELAY_NS
        text = subject.decode("utf-8", "replace")
        self._leafs.log.error(f'{self.label} - {action} Violation on "{text}" - Check other side configuration')
        self.close(CloseReason.PROTOCOL_VIOLATION, f'Permissions Violation for {action} to "{text}"')

    def loop_found(self, *, notify: bool) -> None:
        """Close a connection that is part of a loop."""
        self.reconnect_delay_ns = DELAY_NS
        text = f'Loop detected for leafnode account="{self.account.name}". Delaying attempt to reconnect for 30s'
        self._leafs.log.error(f"{self.label} - {text}")
        self.close(CloseReason.PROTOCOL_VIOLATION, text if notify else "")

    # --- the end

    def closed(self, reason: CloseReason = CloseReason.CLIENT_CLOSED) -> None:
        joined = self.cid in self._leafs.broker.leafs
        if not self._leafs.forget(self):
            return
        if self.close_reason is None:
            self.close_reason = reason
        self._leave()
        self.login.abandon()
        self.deferred, self.incomplete = None, None
        self.hand_over_deliveries()
        self.stop_ns = self.broker.clock.now_ns()
        self.take_output()
        if joined:
            self.broker.event_listener.disconnected(self)
        remote = f" - Remote: {self.remote_server}" if self.remote_server else ""
        self._leafs.log.info(f"{self.label} - Leafnode connection closed: {self.close_reason.value}{remote}")

    def _leave(self) -> None:
        self._registered = False
        self.remote_interest.clear()
        if self.local_interest in self.account.listeners:
            self.account.listeners.remove(self.local_interest)

    def count_slow_consumer(self) -> None:
        self._leafs.slow_consumers += 1
        super().count_slow_consumer()

    # --- timers

    @property
    def is_ready(self) -> bool:
        return self._registered

    @property
    def patience_ns(self) -> int:
        return self._leafs.options.auth_timeout_ns

    @property
    def first_ping_ns(self) -> int:
        return FIRST_PING_NS

    @property
    def pings_always(self) -> bool:
        return self.is_spoke

    def count_stale(self) -> None:
        self._leafs.stale_connections += 1
        super().count_stale()

    # --- input

    def receive(self, chunk: bytes) -> None:
        """Carry out every operation that `chunk` completes."""
        if self.close_reason is not None:
            return
        self.last_active_ns = self.broker.clock.monotonic_ns()
        if self.deferred is not None:
            receive_pieces(self, iter((chunk,)), len(chunk))
        elif self.login.pending is not None:
            self.login.hold(chunk)
        else:
            self._carry_out(iter(self._reader.feed(chunk)))

    def _carry_out(self, rest: Iterator[Op]) -> None:
        clock, until, postponed = self.broker.clock, slice_end_ns(self), self.account.postponed
        wide = self.broker.wide_routes or postponed.any
        if (self.incomplete is not None or self.deliveries) and not self._complete(rest, until):
            return
        for op in rest:
            if op[0] == LEAF_MSG and self._registered:
                if wide and (postponed.are_many or not self._is_routed(self.account.mapped_next(op[1]), op[2], until)):
                    defer(self, iter([op, *rest]))
                    return
                self._take_message(op)
                if self.deliveries and not self._complete(rest, until):
                    return
            else:
                self._operate(op)
                if self.login.pending is not None:
                    self.login.hold(b"", rest)
                    return
                if self.incomplete is not None and not self._complete(rest, until):
                    return
            if self.close_reason is not None or (clock.monotonic_ns() > until and defer(self, rest)):
                return
        if self._reader.fault is not None:
            self._fail(self._reader.fault)

    def _fail(self, fault: ProtocolViolationError) -> None:
        self._leafs.log.error(f"{self.label} - {fault.text or fault.detail}")
        self.close(FAULT_REASONS[fault.kind], fault.text)

    def _operate(self, op: Op) -> None:
        kind = op[0]
        if kind == INFO:
            self._take_info(op[1])
        elif kind == CONNECT:
            self._take_connect(op[1])
        elif kind == PING:
            self.write(PONG_LINE)
        elif kind == PONG:
            self.timers.answered()
        elif kind == ERR:
            self._take_error(op[1].decode("utf-8", "replace"))
        elif not self._registered:
            self.close(CloseReason.PROTOCOL_VIOLATION, "Authorization Violation")
        elif kind == LEAF_SUB:
            self._take_interest(op[1], op[2], op[3])
        elif kind == LEAF_UNSUB:
            self.remote_interest.remove(op[1], op[2])

    def _take_error(self, text: str) -> None:
        """Log an error from the other side; that side closes the link if necessary."""
        self._leafs.log.error(f"{self.label} - Leafnode Error {text}")
        if "Loop detected" in text:
            self.loop_found(notify=False)

    def _take_info(self, body: bytes) -> None:
        """Handle the other side's INFO."""

    def _take_connect(self, body: bytes) -> None:
        """Handle the CONNECT of the side that connects."""
