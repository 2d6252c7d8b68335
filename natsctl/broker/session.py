"""One client connection: from its operations to the account, and from the account to its output list."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from natsctl.api.subjects import has_wildcard, is_valid_subject
from natsctl.broker.account import GLOBAL_ACCOUNT, Account
from natsctl.broker.connect_options import ConnectOptions
from natsctl.broker.grant import Refusal
from natsctl.broker.info import info_json
from natsctl.broker.login import Login
from natsctl.broker.permit import Permit
from natsctl.broker.publish_runs import RESERVED_HEADS, RUN_MIN, publish_runs
from natsctl.broker.reasons import CloseReason
from natsctl.broker.subscription import Subscription
from natsctl.wire.encode import OK_LINE, PING_LINE, PONG_LINE, encode_err, encode_info
from natsctl.wire.faults import FaultKind, ProtocolFault
from natsctl.wire.ops import CONNECT, PING, PONG, PUB, SUB, UNSUB, Op
from natsctl.wire.parser import Parser

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.broker.tls_facts import TlsFacts

RESERVED_REPLIES: Final = (b"_R_.", b"_GR_.")
"""Reply prefixes that belong to the server."""

MAX_LEFT_SUBS: Final = 1000
"""Subscriptions of a connection that are remembered when it has ended."""

FAULT_REASONS: Final = {
    FaultKind.UNKNOWN_OPERATION: CloseReason.PROTOCOL_VIOLATION,
    FaultKind.MALFORMED: CloseReason.PROTOCOL_VIOLATION,
    FaultKind.MAX_PAYLOAD: CloseReason.MAX_PAYLOAD_EXCEEDED,
    FaultKind.MAX_CONTROL_LINE: CloseReason.MAX_CONTROL_LINE_EXCEEDED,
}


class Session:
    """The state of one connection. Read `close_reason` after every call: once set, the transport is to be closed."""

    __slots__ = (
        "_info_again", "_parser", "_ping_sent_ns", "_pings_out", "_seen_out_msgs", "account", "broker", "cid",
        "close_reason", "echo", "headers", "host", "in_bytes", "in_msgs", "kind", "lang", "last_active_ns",
        "last_data_ns", "left_count", "left_subs", "login", "max_pending", "name", "next_tick_ns",
        "no_responders", "out", "out_bytes", "out_msgs", "pedantic", "pending_bytes", "permit", "port",
        "protocol", "rtt_ns", "start_ns", "stop_ns", "subs", "tls", "verbose", "version",
    )  # fmt: skip

    def __init__(self, broker: Broker, cid: int, host: str, port: int, kind: str) -> None:
        self.broker = broker
        self.cid = cid
        self.host = host
        self.port = port
        self.kind = kind
        self.name = self.lang = self.version = ""
        self.verbose = self.pedantic = self.echo = True
        self.headers = self.no_responders = False
        self.protocol = 0
        self.account = broker.accounts[GLOBAL_ACCOUNT]
        self.subs: dict[bytes, Subscription] = {}
        self.left_subs: tuple[Subscription, ...] = ()
        self.left_count = 0
        """What was subscribed when the connection ended, and how much that was."""
        self.out: list[bytes] = []
        self.pending_bytes = 0
        self.max_pending = broker.options.max_pending
        self.in_msgs = self.in_bytes = self.out_msgs = self.out_bytes = 0
        self.close_reason: CloseReason | None = None
        self.start_ns = broker.clock.now_ns()
        self.stop_ns = 0
        self.rtt_ns = 0
        self.tls: TlsFacts | None = None
        """What the handshake settled; the shell sets it. None in clear."""
        self._parser = Parser(broker.options.limits)
        self._info_again = True
        self._pings_out = 0
        self._ping_sent_ns = 0
        self.permit: Permit | None = None
        """What the user may do, None where everything."""
        self.login = Login(self)
        self.last_active_ns = self.last_data_ns = broker.clock.monotonic_ns()
        """When anything was last received, and when something other than protocol chatter last went either way."""
        self._seen_out_msgs = 0
        first = broker.options.first_ping_ns if self.login.authenticated else broker.options.auth_timeout_ns
        self.next_tick_ns = self.last_active_ns + first
        auth = broker.options.auth
        if auth is not None and auth.default is not None:
            self.login.admit(auth.default)

    @property
    def user(self) -> str:
        """Who the client is let in as; empty without users."""
        return self.login.grant.user

    @property
    def connection_type(self) -> str:
        """The kind of connection as users and JWTs name it."""
        return "WEBSOCKET" if self.kind == "websocket" else "STANDARD"

    def open(self, *, full: bool) -> None:
        """Write INFO; where the server is `full`, refuse the connection after it."""
        self.send_info()
        if full:
            self.close(CloseReason.MAX_CONNECTIONS_EXCEEDED, "maximum connections exceeded")
        elif self.login.authenticated:
            self.account.sessions.add(self)

    # --- output

    def write(self, data: bytes) -> None:
        """Queue bytes that are not a message."""
        if not self.out:
            self.broker.dirty.append(self)
        self.out.append(data)
        self.pending_bytes += len(data)

    def send_info(self, *, connect_info: bool = False, lame_duck: bool = False) -> None:
        """Queue INFO as it is now."""
        self.write(encode_info(info_json(self.broker, self, connect_info=connect_info, lame_duck=lame_duck)))

    def take_output(self) -> list[bytes]:
        """Return what waits to be written, in order; it is no longer pending here."""
        out = self.out
        self.out = []
        self.pending_bytes = 0
        if self.out_msgs != self._seen_out_msgs:
            self._seen_out_msgs = self.out_msgs
            self.last_data_ns = self.broker.clock.monotonic_ns()
        return out

    def err(self, text: str) -> None:
        """Queue `-ERR` without closing."""
        self.write(encode_err(text))

    # --- the end

    def close(self, reason: CloseReason, text: str = "") -> None:
        """Ask the shell to close after writing `-ERR 'text'`; only the first reason counts."""
        if self.close_reason is not None:
            return
        if text:
            self.err(text)
        self.close_reason = reason
        self.broker.dirty.append(self)
        self._leave()

    def cut_slow_consumer(self) -> None:
        """Close a client that does not read; what it has not been sent is dropped."""
        if self.close_reason is None:
            self.take_output()
            self.broker.slow_consumers += 1
            self.account.slow_consumers += 1
            self.close(CloseReason.SLOW_CONSUMER_PENDING_BYTES, "Slow Consumer")

    def closed(self, reason: CloseReason = CloseReason.CLIENT_CLOSED) -> None:
        """The transport is gone: forget the session; `reason` counts where the broker had none."""
        broker = self.broker
        if broker.sessions.pop(self.cid, None) is None:
            return
        if self.close_reason is None:
            self.close_reason = reason
        self._leave()
        self.stop_ns = broker.clock.now_ns()
        self.take_output()
        self._parser = Parser(broker.options.limits)
        broker.gone_in_msgs += self.in_msgs
        broker.gone_in_bytes += self.in_bytes
        broker.gone_out_msgs += self.out_msgs
        broker.gone_out_bytes += self.out_bytes
        self.account.gone.add(self)
        broker.closed.append(self)
        broker.onlooker.disconnected(self)

    def _leave(self) -> None:
        subs = self.subs
        if self.close_reason is not None and subs:
            self.left_subs, self.left_count = tuple(islice(subs.values(), MAX_LEFT_SUBS)), len(subs)
        self.subs = {}
        for sub in subs.values():
            self.account.unsubscribe(sub)
        self.account.sessions.discard(self)

    # --- timers

    def tick(self) -> None:
        """Do what is due: authentication timeout, PING, stale connection. `next_tick_ns` says when to come again."""
        now = self.broker.clock.monotonic_ns()
        if now < self.next_tick_ns or self.close_reason is not None:
            return
        options = self.broker.options
        if not self.login.authenticated:
            self.close(CloseReason.AUTHENTICATION_TIMEOUT, "Authentication Timeout")
            return
        interval = options.ping_interval_ns
        if self.rtt_ns and self.last_active_ns + interval > now:
            self.next_tick_ns = self.last_active_ns + interval
            return
        if self._pings_out >= options.ping_max:
            self.broker.stale_connections += 1
            self.close(CloseReason.STALE_CONNECTION, "Stale Connection")
            return
        self._pings_out += 1
        self._ping_sent_ns = now
        self.write(PING_LINE)
        self.next_tick_ns = now + interval

    # --- input

    def receive(self, chunk: bytes) -> None:
        """Carry out every operation that `chunk` completes."""
        if self.close_reason is not None:
            return
        self.last_active_ns = self.broker.clock.monotonic_ns()
        self._pings_out = 0
        before = self.in_msgs
        parser = self._parser
        if not self.login.authenticated and not parser.buffered_bytes and chunk[:1] not in b"Cc":
            self.login.refuse(Refusal())
            return
        publish = self.account.publish_from
        careful = self.pedantic or not self.headers or self.permit is not None
        msgs = size = 0
        ops = parser.feed(chunk)
        if len(ops) >= RUN_MIN and self.login.authenticated and not (careful or self.verbose):
            ops = publish_runs(self, ops)
        for op in ops:
            if op[0] != PUB:
                self._operate(op)
                if self.close_reason is not None:
                    break
                publish = self.account.publish_from
                careful = self.pedantic or not self.headers or self.permit is not None
                continue
            _, subject, reply, header, payload = op
            if (careful or reply[:3] in RESERVED_HEADS) and not self._may_publish(subject, reply, header):
                if self.close_reason is not None:
                    break
                continue
            msgs += 1
            size += len(header) + len(payload)
            if self.verbose:
                self.write(OK_LINE)
            if not publish(subject, reply, header, payload, self) and reply and self.no_responders:
                self._answer_no_responders(subject, reply)
        self.in_msgs += msgs
        self.in_bytes += size
        if self.in_msgs != before:
            self.last_data_ns = self.last_active_ns
        if parser.fault is not None:
            self._fail(parser.fault)

    def _fail(self, fault: ProtocolFault) -> None:
        if self.login.authenticated or self.login.connected:
            self.close(FAULT_REASONS[fault.kind], fault.text)
        elif fault.kind is FaultKind.UNKNOWN_OPERATION:
            self.login.refuse(Refusal())
        else:
            self.close(FAULT_REASONS[fault.kind], fault.text)

    def _operate(self, op: Op) -> None:
        kind = op[0]
        if kind == CONNECT:
            self.login.connect(op[1])
        elif not self.login.authenticated:
            self.login.refuse(Refusal())
        elif kind == SUB:
            self._subscribe(op[1], op[2], op[3])
        elif kind == UNSUB:
            self._unsubscribe(op[1], op[2])
        elif kind == PING:
            self._answer_ping()
        elif kind == PONG and self._ping_sent_ns:
            self.rtt_ns = max(self.broker.clock.monotonic_ns() - self._ping_sent_ns, 1)
            self._ping_sent_ns = 0

    def _may_publish(self, subject: bytes, reply: bytes, header: bytes) -> bool:
        """Tell whether a message goes on; what is wrong with it has been written."""
        if header and not self.headers:
            self.close(CloseReason.PROTOCOL_VIOLATION)
            return False
        if self.pedantic and (has_wildcard(subject) or not is_valid_subject(subject)):
            self.err("Invalid Publish Subject")  # and delivered all the same, like the reference
        if self.permit is not None and not self.permit.may_publish(subject):
            self.err(f'Permissions Violation for Publish to "{subject.decode("utf-8", "replace")}"')
            return False
        if reply.startswith(RESERVED_REPLIES):
            text = reply.decode("utf-8", "replace")
            self.err(f'Permissions Violation for Publish with Reply of "{text}"')
            return False
        return True

    def apply(self, options: ConnectOptions) -> None:
        """Be as the client asks."""
        self.verbose = options.verbose
        self.pedantic = options.pedantic
        self.echo = options.echo
        self.headers = options.headers
        self.no_responders = options.no_responders
        self.protocol = options.protocol
        self.name, self.lang, self.version = options.name, options.lang, options.version

    def move(self, account: Account) -> None:
        """Go into an account; what was subscribed before moves along."""
        subs = self.subs
        self._leave()
        self.account = account
        account.sessions.add(self)
        self.subs = subs
        for sub in subs.values():
            sub.account = account
            account.insert(sub)

    @property
    def greeted(self) -> bool:
        """Whether the client has said PING and been told everything about its connection."""
        return not self._info_again

    def wait_for_first_ping(self) -> None:
        """Begin to look after the connection: the client is in."""
        self.next_tick_ns = self.broker.clock.monotonic_ns() + self.broker.options.first_ping_ns

    def _answer_ping(self) -> None:
        self.write(PONG_LINE)
        if self._info_again and self.protocol >= 1:
            self._info_again = False
            self.send_info(connect_info=True)

    def _subscribe(self, subject: bytes, queue: bytes, sid: bytes) -> None:
        most = self.broker.options.max_subscriptions
        if most and len(self.subs) >= most:
            self.err("maximum subscriptions exceeded")
            return
        if not is_valid_subject(subject):
            self.err("Invalid Subject")
            return
        if self.permit is not None and not self.permit.may_subscribe(subject, queue):
            self.err(f'Permissions Violation for Subscription to "{subject.decode("utf-8", "replace")}"')
            return
        if sid not in self.subs:
            sub = Subscription(self.account, subject, queue, session=self, sid=sid)
            self.subs[sid] = sub
            self.last_data_ns = self.last_active_ns
            self.account.insert(sub)
        if self.verbose:
            self.write(OK_LINE)

    def _unsubscribe(self, sid: bytes, most: int) -> None:
        sub = self.subs.get(sid)
        if sub is not None:
            sub.max = most
            if sub.delivered >= most:
                self.end_subscription(sub)
        if self.verbose:
            self.write(OK_LINE)

    def end_subscription(self, sub: Subscription) -> None:
        """Forget a subscription: unsubscribed, or its maximum was delivered."""
        if self.subs.get(sub.sid) is sub:
            del self.subs[sub.sid]
        sub.account.unsubscribe(sub)

    def _answer_no_responders(self, subject: bytes, reply: bytes) -> None:
        """Tell the publisher, on its own reply subscription, that nobody took its request."""
        subject = self.account.mapped(subject)
        route = self.account.routes.exact.get(reply) or self.account.routes.find(reply)
        for session, sub, _ in route[0]:
            if session is self:
                header = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
                self.account.deliver_to(sub, reply, b"", header, b"")
                return
