"""One client connection: from its operations to the account, and from the account to its output list.

SUB and UNSUB are carried out here too, with what changes in a subscription when its session gets another account or
other permissions.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final, TypeGuard

from msgspec.structs import replace

from natsctl.api.codec import go_quote
from natsctl.api.subjects import has_valid_tokens, has_wildcard
from natsctl.broker.account import Account
from natsctl.broker.auth.credentials import ConnectOptions, Grant, LoginRefusal
from natsctl.broker.auth.login import Login
from natsctl.broker.auth.permissions import SessionPermissions
from natsctl.broker.deferred_work import (
    API_SUBJECTS,
    LONG_SUBJECT_BYTES,
    LOOK_MASK,
    MANY_RECIPIENTS,
    MANY_SUBS,
    SUBS_STEP,
    DeferredWork,
    defer,
    receive_pieces,
    slice_end_ns,
    wait_again,
)
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT, UNLIMITED
from natsctl.broker.message_trace import publish_traced, report_refusal
from natsctl.broker.refusals import (
    FAULT_NOTICES,
    FAULT_REASONS,
    CloseReason,
    quoted,
    refuse_depth,
    refuse_publish,
    refuse_reply,
    refuse_subscription,
)
from natsctl.broker.routes import DOLLAR, DOT, walk_ways
from natsctl.broker.subscription import Subscription, delivery_filter_of
from natsctl.broker.timers import Timers
from natsctl.wire.ops import (
    CONNECT,
    HPUB,
    OK_LINE,
    PING,
    PONG,
    PUB,
    RUN,
    SUB,
    UNSUB,
    FaultKind,
    Op,
    ProtocolViolationError,
    encode_err,
    encode_info,
)
from natsctl.wire.parser import Parser
from natsctl.wire.publish_run import RESERVED_FIRST, RESERVED_HEADS, RUN_MIN
from natsctl.wire.server_frames import PONG_LINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from natsctl.broker.auth.credentials import TlsFacts
    from natsctl.broker.broker import Broker
    from natsctl.broker.imports.mappings import Mappings
    from natsctl.broker.leaf.link import LeafLink
    from natsctl.wire.publish_run import PublishRun


SERVER_QUEUE: Final = b"_sys_"
"""A queue group that belongs to the server."""


def is_leaf(session: Session) -> TypeGuard[LeafLink]:
    return session.connection_type.startswith("LEAFNODE")


def subscribe(session: Session, subject: bytes, queue: bytes, sid: bytes) -> None:
    """Handle a SUB; one with a sid that is in use has no effect."""
    permit, depth = session.permit, session.broker.options.max_subscription_tokens
    if queue == SERVER_QUEUE or (permit is not None and not permit.may_subscribe(subject, queue)):
        refuse_subscription(session, subject, queue, sid)
    elif depth and subject.count(b".") >= depth:
        refuse_depth(session, subject, sid)
    elif session.is_full:
        session.notice("maximum subscriptions exceeded")
        session.err("maximum subscriptions exceeded")
    elif (b">" in subject or b".." in subject or subject[0] == DOT or subject[-1] == DOT) and not has_valid_tokens(
        subject
    ):
        session.err("Invalid Subject")
    else:
        if sid not in session.subs:
            sub = Subscription(session.account, subject, queue, session=session, sid=sid)
            session.subs[sid] = sub
            session.last_data_ns = session.last_active_ns
            if permit is not None:
                sub.guard = delivery_filter_of(sub, permit)
            session.incomplete = session.account.begin_insert(sub)
        if session.verbose and session.incomplete is None:
            session.write(OK_LINE)


def place(session: Session, sub: Subscription, account: Account) -> None:
    """Add a subscription to an account, with a delivery filter if the permissions need one."""
    sub.account = account
    if session.permit is not None:
        sub.guard = delivery_filter_of(sub, session.permit)
    account.insert(sub)


def unsubscribe(session: Session, sid: bytes, most: int) -> None:
    """Handle an UNSUB: end a subscription, now or after `most` messages."""
    sub = session.subs.get(sid)
    if sub is not None:
        sub.max = most
        if sub.delivered >= most:
            session.end_subscription(sub)
    if session.verbose:
        session.write(OK_LINE)


def review(session: Session, sub: Subscription) -> None:
    """After a change of permissions, end a subscription that is no longer allowed, or place it again."""
    if session.permit is not None and not session.permit.may_subscribe(sub.subject, sub.queue):
        session.end_subscription(sub)
        withdraw_subscription(session, sub.subject, sub.queue, sub.sid)
    elif sub.guard is not None or delivery_filter_of(sub, session.permit) is not None:
        sub.account.unsubscribe(sub)
        place(session, sub, sub.account)


def withdraw_subscription(session: Session, subject: bytes, queue: bytes, sid: bytes) -> None:
    """Report that a subscription has ended because it is not allowed any more."""
    group = f" using queue {quoted(queue)}" if queue else ""
    session.err(f"Permissions Violation for Subscription to {quoted(subject)}{group} (sid {quoted(sid)})")
    claim = session.login.claim or 'User "N/A"'
    session.broker.log_info(f"Removed sub {quoted(subject)}{group} (sid {quoted(sid)}) for {claim} - not authorized")


def one_by_one(ops: list[Op]) -> list[Op]:
    """Return the same operations, each message one of its own."""
    if RUN not in [op[0] for op in ops]:
        return ops
    return [single for op in ops for single in (op[1].ops() if op[0] == RUN else (op,))]


SHORT_RUNS: Final = 4
"""Parts below `RUN_MIN` messages after which a run is not searched for more."""
SPENT: Final = Parser()
"""The parser of every session that has ended: it is never fed."""
RESERVED_REPLIES: Final = (b"_R_.", b"$JS.ACK.", b"_GR_.", b"$GR.")
"""Reply prefixes that belong to the server."""
RESERVED_SUBJECTS: Final = (b"_GR_.", b"$GR.")
"""Subject prefixes that do; `$NRG` is the system account's."""

MAX_LEFT_SUBS: Final = 1000
"""Subscriptions of a connection that are remembered when it has ended."""

ID_LETTERS: Final = {"websocket": "wid", "leafnode": "lid"}
"""Prefix of a session's number; clients have `cid`."""
CONNECTION_TYPES: Final = {"websocket": "WEBSOCKET", "inprocess": "IN_PROCESS"}
"""Names in users and JWTs of the kinds of connections that are not STANDARD."""


class Session:
    """The state of one connection. Read `close_reason` after every call: once set, the transport is to be closed."""

    __slots__ = (
        "_info_again", "_parser", "_seen_out_msgs", "account", "broker", "cid", "close_reason", "deferred",
        "deliveries", "echo", "headers", "host", "in_bytes", "in_msgs", "incomplete", "kind", "lang",
        "last_active_ns", "last_data_ns", "left_count", "left_subs", "login", "max_payload", "max_pending",
        "max_subscriptions", "name", "no_responders", "out", "out_bytes", "out_msgs", "pedantic", "pending_bytes",
        "permit", "port", "protocol", "rtt_ns", "start_ns", "stop_ns", "subs", "timers", "tls", "unread", "verbose",
        "version",
    )  # fmt: skip

    event_kind: ClassVar[int] = 0
    """Kind of connection in events of traces."""

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
        """Subscriptions when the connection ended, and their number."""
        self.out: list[bytes] = []
        self.pending_bytes = 0
        self.max_pending = broker.options.max_pending
        self.in_msgs = self.in_bytes = self.out_msgs = self.out_bytes = 0
        self.close_reason: CloseReason | None = None
        self.unread = 0
        """Bytes that had arrived when the session was closed and mean nothing any more."""
        self.start_ns = broker.clock.now_ns()
        self.stop_ns = 0
        self.rtt_ns = 0
        self.tls: TlsFacts | None = None
        """Result of the TLS handshake, set by the shell; None without TLS."""
        self._parser = Parser(broker.options.limits, runs=True)
        self.max_payload = broker.options.limits.max_payload
        self.max_subscriptions = broker.options.max_subscriptions or UNLIMITED
        self._info_again = True
        self.permit: SessionPermissions | None = None
        """Permissions of the user, None for all."""
        self.login = Login(self)
        self.incomplete: Iterator[int] | None = None
        """Remaining steps for the last subscription; later operations wait for them."""
        self.deliveries: tuple[Iterator[None], ...] = ()
        """Remaining deliveries of the last message; later operations wait for them too."""
        self.deferred: DeferredWork | None = None
        """Work that has arrived and is to be carried out later."""
        self.last_active_ns = self.last_data_ns = broker.clock.monotonic_ns()
        """Times of the last input, and of the last traffic other than PING and PONG."""
        self._seen_out_msgs = 0
        self.timers = Timers(self)
        self.timers.start()

    @property
    def user(self) -> str:
        """User that the client is logged in as, or claims to be."""
        return self.login.user

    @property
    def proxy(self) -> str:
        """Key of the trusted proxy that passes the client on; empty: none."""
        return self.login.proxy

    @property
    def connection_type(self) -> str:
        """The kind of connection as users and JWTs name it."""
        return CONNECTION_TYPES.get(self.kind, "STANDARD")

    def locate(self, host: str, port: int) -> None:
        """Take the address of a client that a proxy connects; until now INFO had none."""
        self.host, self.port, self.kind = host, port, "tcp"

    def open(self, *, full: bool) -> None:
        """Write INFO; where the server is `full`, refuse the connection after it."""
        self.send_info()
        if full:
            self.notice("maximum connections exceeded")
            self.close(CloseReason.MAX_CONNECTIONS_EXCEEDED, "maximum connections exceeded")
        elif self.login.authenticated:
            self.account.sessions.add(self)

    @property
    def log_name(self) -> str:
        """Name of the session in log lines: `host:port - cid:5 - "v1:lang:name" - "account/user:name"`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        name = f"{host}:{self.port} - {ID_LETTERS.get(self.kind, 'cid')}:{self.cid}"
        if self.login.credentials is None or not self.login.authenticated:
            return name
        version = f"v{self.version}" if self.version else ""
        client = ":".join(part for part in (version, self.lang, self.name) if part)
        user, account = self.login.label, self.account
        label = f"{account.name}/{account.config.display_name}" if account.config.display_name else account.name
        parts = [client, f"{label}/{user}" if user else ""]
        return " - ".join([name, *(go_quote(part) for part in parts if part)])

    def notice(self, text: str) -> None:
        self.broker.notice(self, text)

    # --- output

    def write(self, data: bytes) -> None:
        """Queue bytes that are not a message."""
        if not self.out:
            self.broker.dirty.append(self)
        self.out.append(data)
        self.pending_bytes += len(data)

    def send_info(self, *, connect_info: bool = False, lame_duck: bool = False) -> None:
        self.write(encode_info(self.broker.info_json(self, connect_info=connect_info, lame_duck=lame_duck)))

    def take_output(self) -> list[bytes]:
        """Remove and return the output that waits to be written, in order."""
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
        """Close a slow client and drop its pending output."""
        if self.close_reason is None:
            self.take_output()
            self.count_slow_consumer()
            self.close(CloseReason.SLOW_CONSUMER_PENDING_BYTES, "Slow Consumer")

    def count_slow_consumer(self) -> None:
        self.broker.slow_consumers += 1
        self.account.slow_consumers += 1

    def closed(self, reason: CloseReason = CloseReason.CLIENT_CLOSED) -> None:
        """Remove the session after its transport has closed; `reason` counts if the broker had none."""
        broker = self.broker
        if broker.sessions.pop(self.cid, None) is None:
            return
        if self.close_reason is None:
            self.close_reason = reason
        self._leave()
        self.stop_ns = broker.clock.now_ns()
        self.take_output()
        self._parser, self.deferred, self.incomplete = SPENT, None, None
        self.hand_over_deliveries()
        broker.ended(self)
        self.login.forget_secrets()

    def _leave(self) -> None:
        subs = self.subs
        if self.close_reason is not None and subs:
            self.left_subs, self.left_count = tuple(islice(subs.values(), MAX_LEFT_SUBS)), len(subs)
        self.drop_subscriptions()
        self.account.sessions.discard(self)

    def drop_subscriptions(self) -> None:
        """End all subscriptions because the client logs in again or has disconnected."""
        subs, self.subs = self.subs, {}
        self.account.end_subscriptions(subs)

    # --- timers

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is done."""
        return self.login.authenticated

    @property
    def patience_ns(self) -> int:
        """Time limit of the handshake."""
        return self.login.timeout_ns

    @property
    def first_ping_ns(self) -> int:
        """Delay of the first PING: it measures the round trip."""
        return self.broker.options.first_ping_ns

    @property
    def pings_always(self) -> bool:
        """Whether the other side is pinged while messages flow."""
        return False

    def run_out_of_patience(self) -> None:
        """Close a connection after its handshake timed out."""
        self.close(CloseReason.AUTHENTICATION_TIMEOUT, "Authentication Timeout")

    def count_stale(self) -> None:
        self.broker.stale_connections += 1

    def tick(self) -> None:
        self.timers.tick()

    def hold_timers(self) -> None:
        """Suspend all deadlines until `start_timers`: the client cannot send yet, and the shell bounds how long."""
        self.timers.hold()

    def start_timers(self) -> None:
        """Count from now on."""
        self.timers.start()

    @property
    def greeted(self) -> bool:
        """Return whether the client has sent PING and has complete INFO about its connection."""
        return not self._info_again

    # --- input

    def receive(self, chunk: bytes) -> None:
        """Carry out every operation that `chunk` completes."""
        if self.close_reason is not None:
            return
        self.last_active_ns = self.broker.clock.monotonic_ns()
        self.timers.pings_out = 0
        login = self.login
        if self.deferred is not None:
            receive_pieces(self, iter((chunk,)), len(chunk))
        elif login.pending is not None:
            login.hold(chunk)
        elif login.authenticated:
            self._carry_out(iter(self._parser.feed(chunk)))
        else:
            self._receive_outside(chunk)

    def _receive_outside(self, chunk: bytes) -> None:
        """Carry out input before the login: line by line, because the answer decides about the following lines."""
        login = self.login
        if not self._parser.buffered_bytes and chunk[:1] not in b"Cc":
            login.admit_silent()
        while chunk and self.close_reason is None:
            if login.pending is not None:
                login.hold(chunk)
                return
            end = 0 if login.authenticated else chunk.find(b"\n") + 1
            line, chunk = (chunk[:end], chunk[end:]) if end else (chunk, b"")
            self._carry_out(iter(self._parser.feed(line)))
        self.unread += len(chunk)

    def resume(self, ops: Iterator[Op], chunk: bytes) -> None:
        """Carry out input that arrived during the client's login, or was deferred."""
        waiting, self.deferred = self.deferred, None
        if self.close_reason is None:
            self.last_active_ns = self.broker.clock.monotonic_ns()
            self._carry_out(ops)
        if chunk and self.close_reason is None:
            self.receive(chunk)
        elif chunk:
            self.unread += len(chunk)
        if waiting is not None and self.close_reason is None:
            wait_again(self, waiting)

    def _carry_out(self, rest: Iterator[Op]) -> None:
        before, parser = self.in_msgs, self._parser
        publish, mappings, careful, wide = self._publish_state()
        msgs = size = subscribed = 0
        broker, clock, until = self.broker, self.broker.clock, slice_end_ns(self)
        if (self.incomplete is not None or self.deliveries) and not self._complete(rest, until):
            return
        while (op := next(rest, None)) is not None:
            if wide and self.account.postponed.are_many:
                defer(self, iter([op, *rest]))
                break
            if op[0] != PUB and (op[0] != HPUB or not self.headers):
                if op[0] == RUN:
                    left = op[1].ops() if careful or self.verbose else self._publish_run(op[1])
                    if left:
                        rest = iter(left + (list(rest) if left[0][0] == RUN else one_by_one(list(rest))))
                    if (not left or left[0][0] == RUN) and clock.monotonic_ns() > until and defer(self, rest):
                        break
                    continue
                subscribed += op[0] == SUB
                if not self._carry_out_other(op, rest, until, look=not subscribed & LOOK_MASK):
                    break
                publish, mappings, careful, wide = self._publish_state()
                continue
            _, subject, reply, header, payload = op
            to = subject if mappings is None else mappings.apply(subject)
            if wide and not self._is_routed(to, reply, until):
                if mappings is not None:
                    mappings.put_back(subject, to)
                defer(self, iter([op, *rest]))
                break
            if (
                careful or subject[0] in RESERVED_FIRST or (reply and reply[:3] in RESERVED_HEADS)
            ) and not self._may_publish(subject, to, reply, header, payload):
                if self.close_reason is not None or (clock.monotonic_ns() > until and defer(self, rest)):
                    break
                continue
            msgs += 1
            size += len(header) + len(payload)
            if self.verbose:
                self.write(OK_LINE)
            if header and self.account.config.asks_for_trace(header):
                recipients = publish_traced(subject, to, reply, header, payload, self)
            else:
                recipients = publish(to, reply, header, payload, self)
            unheard = not recipients and reply and self.no_responders
            if unheard:
                self.account.answer_no_responders(self, to, reply)
            if self.deliveries and not self._complete(rest, until):
                break
            look = not msgs & LOOK_MASK or recipients > MANY_RECIPIENTS or len(subject) > LONG_SUBJECT_BYTES or unheard
            look, broker.took_long = look or broker.took_long, False
            if (
                (look or (subject[0] == DOLLAR and subject.startswith(API_SUBJECTS)))
                and clock.monotonic_ns() > until
                and defer(self, rest)
            ):
                break
        self.in_msgs += msgs
        self.in_bytes += size
        if self.in_msgs != before:
            self.last_data_ns = self.last_active_ns
        if parser.fault is not None and self.deferred is None:
            self._fail(parser.fault)

    def _publish_run(self, run: PublishRun) -> list[Op]:
        """Publish a run part by part, each on one route, to recipients of runs; return the remaining operations.

        They are the messages of other recipients, or a shorter run if the recipient has taken a part.
        """
        account, short, start, count = self.account, 0, 0, len(run)
        if run.has_headers and any(map(account.config.asks_for_trace, run.headers())):
            return run.ops()
        while start < count and short < SHORT_RUNS:
            subject = run.subject(start)
            publish_part = account.run_recipient(subject, self, run.has_headers)
            if publish_part is None:
                break
            end = run.same_subject(start) if subject[0] != DOLLAR else count  # acks of one consumer take one route
            if end - start < min(RUN_MIN, count - start):
                short += 1
                size, longer = account.shared_size(subject)
                more = run.same_route(start, size, longer) if size else 0
                if more > end:
                    subject, end = b"", more
            part = run if end - start == count else run.part(start, end)
            if (handled := publish_part(subject, part)) is not None:
                part = part.part(0, handled)
            self.in_msgs += len(part)
            self.in_bytes += part.bytes
            start += len(part)
            if handled is not None:
                return [(RUN, run.part(start, count))] if handled and start < count else run.ops()[start:]
        return run.ops()[start:] if start < count else []

    def _publish_state(self) -> tuple[Callable[..., int], Mappings | None, bool, bool]:
        """Return how to publish, the mappings, whether to check each message, and whether it may have to wait.

        It waits for a long walk to its route, or because many messages of the server wait.
        """
        account = self.account
        careful = self.pedantic or not self.headers or self.permit is not None
        return account.publish, account.mappings, careful, bool(self.broker.wide_routes) or account.postponed.any

    def _carry_out_other(self, op: Op, rest: Iterator[Op], until_ns: int, *, look: bool) -> bool:
        """Carry out an operation other than a publish; return False if the `rest` is deferred or dropped.

        After a SUB the time is only checked with `look`, or if it may have taken long.
        """
        if op[0] == SUB and self.login.authenticated:
            subscribe(self, op[1], op[2], op[3])
            look = look or len(op[1]) > LONG_SUBJECT_BYTES or self.incomplete is not None
            look = look or len(self.account.listeners) > MANY_RECIPIENTS
            if self.incomplete is not None and not self._complete(rest, until_ns):
                return False
        else:
            look = True
            self._operate(op)
        if self.close_reason is not None:
            return False
        if op[0] == CONNECT and self.login.pending is not None:
            self.login.hold(b"", rest)
            return False
        return not (look and self.broker.clock.monotonic_ns() > until_ns and defer(self, rest))

    def _complete(self, rest: Iterator[Op], until_ns: int) -> bool:
        """Complete the last operation; return False, with the `rest` deferred, if the slice ends before."""
        while self.incomplete is not None or self.deliveries:
            steps: Iterator[object] = self.deliveries[0] if self.incomplete is None else self.incomplete
            if next(steps, self) is not self:
                if self.broker.clock.monotonic_ns() > until_ns:
                    self.deferred = DeferredWork(rest)
                    self.broker.unfinished.append(self)
                    return False
            elif self.incomplete is None:
                self.deliveries = self.deliveries[1:]
            else:
                self.incomplete = None
                if self.verbose:
                    self.write(OK_LINE)
        return True

    def add_deliveries(self, parts: Iterator[None]) -> None:
        """Let later operations wait for these deliveries of the message that is carried out."""
        if self.stop_ns:
            self.broker.long_work.add(parts, self.account)
        else:
            self.deliveries += (parts,)

    def hand_over_deliveries(self) -> None:
        """Let the broker go on with the deliveries of a session that has ended."""
        deliveries, self.deliveries = self.deliveries, ()
        for parts in deliveries:
            self.broker.long_work.add(parts, self.account)

    def _is_routed(self, to: bytes, reply: bytes, until_ns: int) -> bool:
        """Return whether the routes of a message and of its answer are known, in other accounts too.

        Look for them while the slice lasts.
        """
        own, clock = self.account.routes, self.broker.clock

        ways = [(own, reply), (own, to)] if reply else [(own, to)]
        return walk_ways(ways, lambda: clock.monotonic_ns() <= until_ns)

    def _fail(self, fault: ProtocolViolationError) -> None:
        self.unread += fault.unread
        if fault.kind is FaultKind.UNKNOWN_OPERATION and not self.login.authenticated:
            self.login.refuse(LoginRefusal())
            return
        self.notice(FAULT_NOTICES[fault.kind] % fault.detail)
        self.close(FAULT_REASONS[fault.kind], fault.text)

    def _operate(self, op: Op) -> None:
        kind = op[0]
        if kind == CONNECT:
            self.login.connect(op[1])
        elif not self.login.authenticated:
            self.login.refuse(LoginRefusal())
        elif kind == UNSUB:
            unsubscribe(self, op[1], op[2])
        elif kind == PING:
            self._answer_ping()
        elif kind == PONG:
            self.timers.answered()
        elif kind == HPUB:
            self._refuse_headers()

    def _may_publish(self, subject: bytes, to: bytes, reply: bytes, header: bytes, payload: bytes) -> bool:
        """Return whether a message is accepted; the error for a refused one has been written."""
        if header and not self.headers:
            self._refuse_headers()
            return False
        if self.pedantic and (has_wildcard(subject) or not has_valid_tokens(subject)):
            self.err("Invalid Publish Subject")  # and delivered anyway, as by nats-server
        to = to if self.permit is not None else subject
        if self._is_forbidden(to):
            refusal = refuse_publish(self, to)
        elif reply.startswith(RESERVED_REPLIES):
            refusal = refuse_reply(self, reply)
        else:
            return True
        if header:
            report_refusal(self, subject, to, header, payload, refusal)
        return False

    def _refuse_headers(self) -> None:
        self.notice("message headers not supported")
        self.close(CloseReason.PROTOCOL_VIOLATION)

    def _is_forbidden(self, subject: bytes) -> bool:
        if subject.startswith(RESERVED_SUBJECTS):
            return True
        if self.permit is not None and not self.permit.may_publish(subject):
            return True
        return subject.startswith(b"$NRG") and self.account is not self.broker.system_account

    def apply_permissions(self, grant: Grant, account: Account) -> None:
        """Apply the user's permissions and the strictest applicable limits."""
        options, limits = self.broker.options, account.config.limits
        self.permit = (
            SessionPermissions(grant.permissions, self.broker.clock) if grant.permissions is not None else None
        )
        most = (grant.max_subscriptions, limits.max_subscriptions, options.max_subscriptions or UNLIMITED)
        self.max_subscriptions = min((limit for limit in most if limit != UNLIMITED), default=UNLIMITED)
        sizes = (grant.max_payload, limits.max_payload, options.limits.max_payload)
        self.max_payload = min(limit for limit in sizes if limit != UNLIMITED)
        self._parser.limit(replace(options.limits, max_payload=self.max_payload))

    @property
    def is_full(self) -> bool:
        """Whether the client has all the subscriptions that it may have."""
        return self.max_subscriptions != UNLIMITED and self.max_subscriptions <= len(self.subs)

    def close_if_full(self) -> bool:
        """Close a client without room for another subscription, as nats-server does."""
        if self.is_full:
            self.close(CloseReason.MAX_SUBSCRIPTIONS_EXCEEDED, "maximum subscriptions exceeded")
        return self.is_full

    def apply_limits(self) -> None:
        """Apply the server's present limits; the permissions stay, with their caches."""
        permit = self.permit
        self.apply_permissions(self.login.grant, self.account)
        self.permit = permit

    def has_room(self, account: str) -> bool:
        of = self.broker.account(account)
        most = of.config.limits.max_connections
        return most == UNLIMITED or self in of.sessions or len(of.sessions) < most

    def enter(self, grant: Grant) -> bool:
        """Join the account of a grant with its permissions; return False if the account is full."""
        if not self.has_room(grant.account):
            return False
        account = self.broker.account(grant.account)
        self.apply_permissions(grant, account)
        self.move(account)
        return True

    def review_subscriptions(self, then: Callable[[], object] | None = None) -> None:
        """End what may no longer be subscribed to, after the permissions have changed; then call `then`.

        Where the subscriptions are many, both wait for their turn.
        """
        subs = list(self.subs.values())
        if len(subs) > MANY_SUBS:
            self.broker.long_work.add(self._reviewing(subs, then), self.account)
            return
        for sub in subs:
            review(self, sub)
        if then is not None:
            then()

    def _reviewing(self, subs: list[Subscription], then: Callable[[], object] | None) -> Iterator[None]:
        for start in range(0, len(subs), SUBS_STEP):
            for sub in subs[start : start + SUBS_STEP]:
                if self.subs.get(sub.sid) is sub:
                    review(self, sub)
            yield
        if then is not None and self.close_reason is None:
            then()

    def set_client_info(self, options: ConnectOptions) -> None:
        """Record the client's name, language and version."""
        self.name, self.lang, self.version = options.name, options.lang, options.version
        self.protocol = options.protocol

    def apply(self, options: ConnectOptions) -> None:
        self.verbose = options.verbose
        self.pedantic = options.pedantic
        self.echo = options.echo
        self.headers = options.headers and self.broker.options.headers
        self.no_responders = options.no_responders

    def move(self, account: Account) -> None:
        """Join an account; existing subscriptions move along."""
        if account is not self.account or self.permit is not None:  # else everything is in its place
            for sub in self.subs.values():
                self.account.unsubscribe(sub)
                place(self, sub, account)
            self.account.sessions.discard(self)
            self.account = account
        account.sessions.add(self)

    def _answer_ping(self) -> None:
        self.write(PONG_LINE)
        if self._info_again and self.login.connected:
            self._info_again = False
            if self.protocol >= 1:
                self.send_info(connect_info=True)

    def end_subscription(self, sub: Subscription) -> None:
        """Forget a subscription: unsubscribed, or its maximum was delivered."""
        if self.subs.get(sub.sid) is sub:
            del self.subs[sub.sid]
        sub.account.unsubscribe(sub)
