"""Core NATS: the accounts, the sessions, and the work for the shell.

Theory of operation. The shell makes a `Session` per connection with `connect`, gives it what arrives (`receive`) and
calls `closed` after the transport has closed. Whatever has output or wants to be closed is in `dirty`, possibly more
than once; the shell empties that list once per loop turn, takes each session's output and writes it, and closes the
transport if `close_reason` is set. While a transport is paused the shell leaves the output in place, so that
`pending_bytes` grows and a slow consumer is found; it takes it when the transport resumes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.subject_index import Steps, finish
from natsctl.api.times import Clock
from natsctl.broker.account import Account, Traffic
from natsctl.broker.auth.credentials import Delegation, Grant, LoginRefusal
from natsctl.broker.auth.login import ACCOUNT_FULL
from natsctl.broker.broker_options import BrokerOptions, Rng
from natsctl.broker.deferred_work import MANY_SUBS, SLICE_NS, LongWork
from natsctl.broker.event_listener import EventListener
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT, UNLIMITED, AccountConfig
from natsctl.broker.imports.account_imports import AccountImports, ImportChain, ImportChange
from natsctl.broker.imports.import_plan import ImportPlan, Problem
from natsctl.broker.imports.mappings import Mappings
from natsctl.broker.info import info_json, make_server_id, server_info, user_info_json
from natsctl.broker.ordered_jobs import OrderedJobs
from natsctl.broker.refusals import CloseReason
from natsctl.broker.session import Session
from natsctl.broker.timers import NEVER_NS, PINGS_A_LOOK

if TYPE_CHECKING:
    from natsctl.broker.jwt.callout_requests import Callouts
    from natsctl.broker.leaf.link import LeafLink
    from natsctl.broker.routes import Routes

USER_INFO_SUBJECT: Final = b"$SYS.REQ.USER.INFO"


def _do_nothing(*args: object) -> None:
    """Ignore the event (default callback)."""


SESSION_COST: Final = 16
"""Cost of authenticating a client again."""
MAX_SUBS: Final = 20_000
"""Subscriptions of all of them together that are remembered, about 200 bytes each."""


class ClosedSessions(deque["Session"]):
    """The newest sessions that have ended, the oldest first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._with_subs: deque[Session] = deque()
        self._subs = 0

    def add(self, session: Session) -> None:
        """Keep one more, and drop the oldest above the limit."""
        self.append(session)
        if session.left_subs:
            self._with_subs.append(session)
            self._subs += len(session.left_subs)
        while len(self) > self._most:
            if self.popleft().left_subs:
                self._forget_subs()  # both are in the order of their ends, so that its subscriptions are the oldest
        while self._subs > MAX_SUBS:
            self._forget_subs()

    def _forget_subs(self) -> None:
        oldest = self._with_subs.popleft()
        self._subs -= len(oldest.left_subs)
        oldest.left_subs = ()


class Broker:
    """The state of one server's core."""

    __slots__ = (
        "_changed",
        "_configured",
        "_event_seq",
        "_followers",
        "_greeters",
        "_imports",
        "_last_cid",
        "_plan",
        "accounts",
        "alarms",
        "callouts",
        "clock",
        "closed",
        "dirty",
        "event_listener",
        "gathering",
        "gone",
        "hops",
        "hurry",
        "import_problems",
        "jobs",
        "leafs",
        "log_info",
        "log_warning",
        "login_decided",
        "long_work",
        "look_ns",
        "notice",
        "on_tick",
        "options",
        "pending_logins",
        "pings_left",
        "removals_left",
        "rng",
        "secret_rng",
        "server_id",
        "server_name",
        "sessions",
        "slow_consumers",
        "stale_connections",
        "start_ns",
        "storing",
        "system_account",
        "tick_ends_ns",
        "took_long",
        "total_connections",
        "unfinished",
        "wide_routes",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, rng: Rng, options: BrokerOptions | None = None, secret_rng: Rng | None = None
    ) -> None:
        self.clock = clock
        self.rng = rng
        self.secret_rng = secret_rng or rng
        """Random source of nonces and reply subjects: the next must not be guessable from those before."""
        self.options = options or BrokerOptions()
        self.server_id = self.options.server_id or make_server_id(rng)
        self.server_name = self.options.server_name or self.server_id
        self.start_ns = clock.now_ns()
        self.dirty: list[Session] = []
        self.gathering: dict[Account, None] | None = None
        """The accounts with acks that wait for `send_acks`; None: acks leave at once."""
        self.sessions: dict[int, Session] = {}
        self.leafs: dict[int, LeafLink] = {}
        """Leaf node connections, dialled and accepted ones."""
        self.closed = ClosedSessions(self.options.max_closed_clients)
        self.slow_consumers = 0
        self.storing: dict[str, Any] | None = None
        self.stale_connections = 0
        self.total_connections = 0
        self.gone = Traffic()
        """Traffic of clients that have disconnected."""
        self._set_callbacks()
        self.unfinished: deque[Session] = deque()
        """Sessions with deferred input (deferred_work.py), in the order of their turns."""
        self.long_work = LongWork()
        self.jobs = OrderedJobs(self.long_work)
        """Changes of accounts, and work that has to wait for them."""
        self.wide_routes: set[Routes] = set()
        """The tables of accounts through which a walk may be long."""
        self._event_seq = 0
        self._last_cid = 3  # nats-server uses small ids for its own internal clients
        self.accounts: dict[str, Account] = {}
        self._imports: dict[str, AccountImports] = {}
        self._greeters: list[Callable[[Account], None]] = []
        self._followers: list[Callable[[Account], None]] = []
        self._configured: set[str] = set()
        self._changed: dict[Account, None] = {}
        self.hops = ImportChain()
        """Messages on their way over imported services."""
        self._plan = ImportPlan()
        self.import_problems: list[Problem] = self._plan.problems
        """Exports and imports that are not in effect, and why."""
        self.on_tick: list[Callable[[], None]] = []
        """Functions called each time that the sessions check their deadlines."""
        self.alarms: list[Callable[[], int]] = []
        """Return when something else is due that should be in time."""
        self.pings_left = PINGS_A_LOOK
        """Pings that this call of `tick` may still send."""
        self.tick_ends_ns = 0
        """When this call of `tick` leaves sessions that are due to the next one, monotonic clock; 0: none was due."""
        self.removals_left = MANY_SUBS
        """Subscriptions that may still be removed at once in this turn: thousands of clients may be closed in one."""
        self.took_long = False
        """Whether a handler has just worked for milliseconds: the publisher's session looks at the clock."""
        self.look_ns = NEVER_NS
        """Time of the shell's next call of `tick`, monotonic clock."""
        self.hurry: Callable[[], None] = _do_nothing
        """Called when `look_ns` is earlier than the shell knows."""
        self.account(GLOBAL_ACCOUNT)
        system = self.options.system_account
        self.system_account = self.account(system) if system else Account(self, "", self._make_imports)
        """Without a name it is not in `accounts`: no client is ever in it."""

    def _set_callbacks(self) -> None:
        """Set callbacks that the shell and the services of logins replace."""
        self.event_listener = EventListener()
        self.log_info: Callable[[str], None] = _do_nothing
        """Called with notices about the server for an operator."""
        self.log_warning: Callable[[str], None] = _do_nothing
        """Called with notices about login services for an operator."""
        self.notice: Callable[[Session, str], None] = _do_nothing
        """Called with notices about a session for an operator: violations and failed logins, never a secret."""
        self.pending_logins: list[Session] = []
        """Sessions with a login that the shell has to compute: `login.pending.work()`, then `login.decide(…)`.

        One that comes again while it waits, or waits for a service, sends much: it should not be read from.
        """
        self.callouts: Callouts | None = None
        """The services that decide about logins, if any."""
        self.login_decided: Callable[[Session], None] = _do_nothing
        """Called with each session that had to wait for the answer to its login, when that has come."""

    def account(self, name: str) -> Account:
        """Return the account of that name, created if new."""
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(self, name, self._make_imports)
            if self.options.system_account:
                account.subscribe(USER_INFO_SUBJECT, self._answer_user_info)
            for greet in self._greeters:
                greet(account)
        return account

    def _make_imports(self, account: Account) -> AccountImports:
        imports = self._imports[account.name] = AccountImports(account, self._imports, self.hops)
        return imports

    def configure(self, configs: Sequence[AccountConfig]) -> list[Account]:
        """Run all steps of `configuring`."""
        return finish(self.configuring(configs))

    def configuring(
        self, configs: Sequence[AccountConfig], then: Callable[[], None] = _do_nothing
    ) -> Steps[list[Account]]:
        """Create all configured accounts; called again at a reload with the new configuration.

        Calls `then` when they change. Returns the accounts that are not named any more and therefore removed: the
        caller closes their sessions.
        """
        names = {config.name for config in configs}
        gone = [name for name in self._configured if name not in names and name in self.accounts]
        kept = [name for name in gone if name in (GLOBAL_ACCOUNT, self.system_account.name)]
        removed = [self.accounts[name] for name in gone if name not in kept]
        yield from self.configure_accounts([*configs, *map(AccountConfig, kept)], removed, then)
        self._configured = names
        return removed

    def configure_accounts(
        self, configs: Sequence[AccountConfig], removed: Sequence[Account] = (), then: Callable[[], None] = _do_nothing
    ) -> Steps[None]:
        """Make, change and remove accounts, all at once after many steps, and call `then` in the same moment.

        No other accounts may be changed meanwhile (`jobs`). Where this fails, everything is as before.
        """
        plan, gone = self._plan, set(removed)
        changed = [config for config in configs if not plan.covers(config)]
        names = [config.name for config in changed]
        if removed or not plan.may_extend(changed):
            after = {name: account.config for name, account in self.accounts.items() if account not in gone}
            after |= {config.name: config for config in configs}
            plan, names = ImportPlan(), list(after)
            yield from plan.extend(list(after.values()))
        changes: dict[Account, ImportChange] = {}
        mappings: dict[Account, Mappings] = {}
        try:
            if plan is self._plan:
                yield from plan.extend(changed)
            for config in configs:
                account = self.account(config.name)
                if account.config.mappings != config.mappings:
                    mappings[account] = yield from account.prepare_mappings(config.mappings)
            for account in (*map(self.account, names), *removed):
                name = account.name
                change = changes[account] = ImportChange(self._imports[name])
                links = plan.streams.get(name, []), plan.services.get(name, [])
                if not (yield from change.prepare(*(([], []) if account in gone else links))):
                    del changes[account]
                yield 1
        except BaseException:
            for change in changes.values():
                change.abandon()
            if plan is self._plan:
                plan.forget(changed)
            raise
        self._plan, self.import_problems = plan, plan.problems
        for config in configs:
            self._set_config(self.account(config.name), config)
        for account, compiled in mappings.items():
            account.use_mappings(compiled)
        for account, change in changes.items():
            if change.apply():
                self._changed[account] = None
        for account in removed:
            self._set_config(account, AccountConfig(account.name))
            self._changed[account] = None
            del self.accounts[account.name], self._imports[account.name]
            self.wide_routes.discard(account.routes)
        then()
        self._notify_followers()
        yield 1
        for change in changes.values():
            yield from change.clean_up()

    def _set_config(self, account: Account, config: AccountConfig) -> None:
        if account.config != config:
            account.config = config
            self._changed[account] = None

    def on_account_changed(self, follow: Callable[[Account], None]) -> None:
        """Call `follow` with every changed account, including removed ones."""
        self._followers.append(follow)

    def _notify_followers(self) -> None:
        changed, self._changed = self._changed, {}
        for account in changed:
            for follow in self._followers:
                follow(account)

    def on_account_added(self, greet: Callable[[Account], None]) -> None:
        """Call `greet` with every account that there is, and with each new one when it is made."""
        self._greeters.append(greet)
        for account in tuple(self.accounts.values()):
            greet(account)

    def _answer_user_info(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> None:
        if reply and origin is not None:
            origin.account.publish(reply, b"", b"", user_info_json(self, origin))

    def next_event_seq(self) -> int:
        """Return the next number of this server's system messages."""
        self._event_seq += 1
        return self._event_seq

    def enter_lame_duck(self) -> None:
        """Announce to every client that this server is about to stop."""
        for session in self.sessions.values():
            if session.protocol >= 1:
                session.send_info(lame_duck=True)

    def next_cid(self) -> int:
        self._last_cid += 1
        self.total_connections += 1
        return self._last_cid

    def connect(self, host: str, port: int, kind: str = "tcp") -> Session:
        """Return the session of a new connection from `host`:`port`; its INFO waits to be written."""
        session = Session(self, self.next_cid(), host, port, kind)
        full = len(self.sessions) >= self.options.max_connections
        self.sessions[session.cid] = session
        session.open(full=full)
        return session

    def reauthorize(self, unchanged: Collection[str], known: Collection[str]) -> Steps[None]:
        """Close the clients that would be refused or be other users now, and hold the others to their permissions now.

        Users in `unchanged` are the same as before: their secrets are not compared again. `known` are all
        names; a client with another name is closed without an error, like one with a user in another
        account now.
        """
        for session in tuple(self.sessions.values()):
            yield SESSION_COST
            if session.close_reason is None and session.login.authenticated:
                if session.login.grant.user in unchanged or session.login.grant.assigned is not None:
                    session.apply_limits()
                else:
                    session.login.ask_again(partial(_stay, session, known))
        for account in tuple(self.accounts.values()):
            yield from _close_crowd(account)

    def close_excess(self) -> Steps[int]:
        """Close the clients that are more than the server may have now, and return how many."""
        sessions = [session for session in self.sessions.values() if session.close_reason is None]
        excess = sessions[: max(len(sessions) - self.options.max_connections, 0)]
        for session in excess:
            yield SESSION_COST
            session.close(CloseReason.MAX_CONNECTIONS_EXCEEDED, "maximum connections exceeded")
        return len(excess)

    def ended(self, session: Session) -> None:
        """Count and remember a session that has ended, and report it."""
        self.gone.add(session)
        session.account.gone.add(session)
        self.closed.add(session)
        self.event_listener.disconnected(session)

    def info_json(self, session: Session, *, connect_info: bool = False, lame_duck: bool = False) -> bytes:
        return info_json(self, session, connect_info=connect_info, lame_duck=lame_duck)

    def server_info(self) -> dict[str, object]:
        """Return the facts about this server in system messages; each call counts one message."""
        return server_info(self)

    def members(self, account: Account) -> list[Session]:
        """Return the clients of an account and the leaf node connections that serve it, the oldest first."""
        links = [peer for peer in self.leafs.values() if isinstance(peer, Session) and peer.account is account]
        return sorted([*account.sessions, *links], key=lambda session: session.cid)

    def gather_acks(self) -> None:
        """Keep acks until `send_acks`: the commits of several streams end."""
        self.gathering = {}

    def send_acks(self) -> None:
        accounts, self.gathering = self.gathering, None
        for account in accounts or ():
            account.send_acks()

    def take_dirty(self) -> list[Session]:
        """Return the sessions that have output or want to be closed, and start a new list."""
        dirty = self.dirty
        self.dirty = []
        self.removals_left = MANY_SUBS
        return dirty

    def tick(self) -> int:
        """Run every session's timers; return when the next thing is due that should be in time, monotonic clock."""
        self.look_ns = 0  # changes meanwhile are in the answer
        self.pings_left = PINGS_A_LOOK
        self.tick_ends_ns = 0
        alarm_ns = NEVER_NS
        for session in tuple(self.sessions.values()):
            session.tick()
            if session.timers.alarm_ns < alarm_ns:
                alarm_ns = session.timers.alarm_ns
        if self.long_work:
            self.do_long_work(self.clock.monotonic_ns() + SLICE_NS)
        self.tick_ends_ns = 0  # of leaf nodes
        for look in self.on_tick:
            look()
        self.look_ns = min([alarm_ns, *(due_ns() for due_ns in self.alarms)])
        return self.look_ns

    def do_long_work(self, until_ns: int) -> None:
        """Continue work that concerns many subscriptions, until the monotonic clock says `until_ns`."""
        work = self.long_work
        while work:
            work.step()
            if self.clock.monotonic_ns() >= until_ns:
                return

    def tick_by(self, at_ns: int) -> None:
        """Call `tick` at `at_ns` of the monotonic clock, or before."""
        if at_ns < self.look_ns:
            self.look_ns = at_ns
            self.hurry()

    @property
    def subscriptions(self) -> int:
        return sum(account.subscriptions for account in self.accounts.values())


def _close_crowd(account: Account) -> Steps[None]:
    """Close the newest clients above their account's limit."""
    most = account.config.limits.max_connections
    if most != UNLIMITED and most < len(account.sessions):
        clients = [session for session in account.sessions if session.close_reason is None]
        for session in sorted(clients, key=lambda session: session.cid)[max(most, 0) :]:
            yield SESSION_COST
            session.notice(ACCOUNT_FULL)
            session.close(CloseReason.MAX_ACCOUNT_CONNECTIONS_EXCEEDED, ACCOUNT_FULL)


def _stay(session: Session, known: Collection[str], answer: Grant | LoginRefusal | Delegation) -> None:
    """Go on with a client as the answer that it would get now says."""
    login = session.login
    claimed = login.options.nkey or login.options.user
    if isinstance(answer, Delegation):  # it connects again, and the service is asked
        session.close(CloseReason.CLIENT_CLOSED)
    elif isinstance(answer, Grant) and answer == login.grant:
        session.apply_limits()
    elif isinstance(answer, LoginRefusal) and not (claimed and claimed not in known):
        login.refuse(answer)
    elif isinstance(answer, LoginRefusal) or (answer.account, answer.user) != (login.grant.account, login.grant.user):
        session.close(CloseReason.CLIENT_CLOSED)
    else:
        login.grant = answer
        session.apply_permissions(answer, session.account)
        session.review_subscriptions()
