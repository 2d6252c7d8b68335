"""JetStream as one machine without I/O: its accounts, its timers, and the queue of parts with work to do.

Theory of operation. The broker calls into streams, consumers and the API dispatcher while it reads; they change the
appended view of the store at once and answer later, when the store's commits end. Work without a bound is not done
inside those calls: consumers put themselves into the ready queue; the shell runs it once per loop turn within a
budget. Deadlines are in one heap; the shell asks for the earliest and calls `run_timers` then.

Accounts. The configuration of an account decides who answers its API: its JetStream if it has limits for it, else a
refusal, else (if it imports the API of another account) nothing. Switching JetStream off leaves stored data in
place; switching it on serves that data again.

A domain is a second name of the API, `$JS.<domain>.API`: mappings of what clients publish. Verbs without one have no
responder under the domain's name. Source: nats-server, the mapping table of a domain.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api.account import UNLIMITED, AccountLimits
from natsctl.api.stream import StorageType
from natsctl.api.subject_transform import SubjectMapping
from natsctl.api.subjects import API_PREFIX, domain_prefix, is_subset
from natsctl.api.times import Clock
from natsctl.broker.broker import Broker
from natsctl.jetstream.account import JetStreamAccount, ServerUsage
from natsctl.jetstream.advisories import DiskFullAdvisories
from natsctl.jetstream.api_level import unmet
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.endpoints.dispatcher import Dispatcher, RefusedApi, SystemApi
from natsctl.jetstream.endpoints.templates import FOLDER as TEMPLATES
from natsctl.jetstream.engine_options import (
    ClockWatch,
    DurableChange,
    JetStreamOptions,
    OpenBatches,
    RequestFaults,
    Runnable,
)
from natsctl.jetstream.streams.stream import StreamMeta
from natsctl.jetstream.timers import EngineTimers
from natsctl.store.errors import StoreError
from natsctl.store.store import Store
from natsctl.store.stream import StreamStore

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker_options import Rng

_NOUNS: Final = ("STREAM", "CONSUMER", "DIRECT", "META", "SERVER", "ACCOUNT")
_BUCKETS: Final = ("$KV", "$OBJ")


def map_default_domain(account: Account, domain: str) -> None:
    """Map the plain API prefix of an account without JetStream to another server's domain."""
    _map(account, API_PREFIX, domain_prefix(domain), "", f"{domain_prefix(domain)}.")


def _map(account: Account, source: str, target: str, source_space: str, target_space: str) -> None:
    pairs = [(f"{source}.INFO", f"{target}.INFO")]
    pairs += [(f"{source}.{noun}.>", f"{target}.{noun}.>") for noun in _NOUNS]
    pairs += [(f"{source_space}{bucket}.>", f"{target_space}{bucket}.>") for bucket in _BUCKETS]
    for src, dest in pairs:
        account.map_subject(SubjectMapping.compile(src, dest, literal=False))


_INFO: Final = f"{API_PREFIX}.INFO"


class AccountLifecycle:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._refusals: dict[str, RefusedApi] = {}
        engine.broker.on_account_added(self._on_account_added)
        engine.broker.on_account_changed(self.follow)

    def _on_account_added(self, account: Account) -> None:
        domain = self._engine.options.domain
        if domain:
            _map(account, domain_prefix(domain), API_PREFIX, f"{domain_prefix(domain)}.", "")
        if account is self._engine.broker.system_account:
            SystemApi(self._engine, account)
        else:
            self.follow(account)

    def limits_of(self, account: Account) -> AccountLimits | None:
        """Return an account's limits, None if it has no JetStream."""
        named = self._engine.options.accounts
        if account is self._engine.broker.system_account or account.name not in self._engine.broker.accounts:
            return None
        return UNLIMITED if named is None else named.get(account.name, account.config.jetstream)

    def follow(self, account: Account) -> None:
        """Switch JetStream on or off for an account, or change its limits, as it is configured now."""
        engine, name = self._engine, account.name
        if account is engine.broker.system_account:
            return
        limits, js = self.limits_of(account), engine.accounts.get(name)
        if limits is None:
            if js is not None and js.account is account:
                del engine.accounts[name]
                js.stop()
            self._refuse(account)
        elif js is not None:
            js.limit(limits)
        else:
            self._stop_refusing(account)
            engine.accounts[name] = JetStreamAccount(engine, account, limits, Dispatcher)
            engine.adopt(name)

    def _stop_refusing(self, account: Account) -> None:
        refusal = self._refusals.pop(account.name, None)
        if refusal is not None:
            refusal.stop()

    def _refuse(self, account: Account) -> None:
        """Answer the clients of an account that it has no JetStream, unless it imports another account's."""
        here = account.name in self._engine.broker.accounts
        if not here or any(is_subset(_INFO, link.local) for link in account.imports.services):
            self._stop_refusing(account)
        elif account.name not in self._refusals:
            self._refusals[account.name] = RefusedApi(self._engine, account)


RUN_MIN: Final = 32
"""Least share of a turn's budget that a runnable gets, messages."""
RUN_COST: Final = 16
"""Cost of one run in a turn's budget, next to its messages: a consumer that delivers one takes 20 to 40 µs."""
TIMERS_NS: Final = 2_000_000
"""Time of one call of the timers; thousands may be due in the same moment, and the others follow in the next call."""


def _unreadable(key: str, why: str) -> str:
    """Return the message about a stream that stays offline."""
    return f"stream {key} is offline: {why}"


def ignore_notice(text: str) -> None:
    """Discard the notice (default callback)."""


class Engine:
    """The state of one server's JetStream."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        clock: Clock,
        rng: Rng,
        options: JetStreamOptions | None = None,
        notice: Callable[[str], None] = ignore_notice,
    ) -> None:
        """Bind to an open store and a broker; `recover` starts the stored streams.

        `notice` is called with a sentence for the operator.
        """
        self.store = store
        self.broker = broker
        self.clock = clock
        self.now_ns = clock.now_ns
        """The one method that all streams share."""
        self.rng = rng
        self.options = options or JetStreamOptions()
        self.timers = EngineTimers()
        self.notice = notice
        self.clock_watch = ClockWatch(clock, notice)
        self.request_faults = RequestFaults(clock, notice)
        self.accounts: dict[str, JetStreamAccount] = {}
        self.unreadable: dict[str, str] = {}
        self.disk_full = DiskFullAdvisories(self)
        self.open_batches = OpenBatches(self.options.batches)
        self._ready: OrderedDict[Runnable, None] = OrderedDict()
        self.closed: dict[StreamStore, None] = {}
        """Streams that a job keeps closed (work.py)."""
        self._recovered = False
        self.usage = {
            StorageType.MEMORY: ServerUsage(self.options.max_memory or -1, self._on_full_changed),
            StorageType.FILE: ServerUsage(self.options.max_storage or -1, self._on_full_changed),
        }
        self.account_lifecycle = AccountLifecycle(self)

    def set_accounts(self, accounts: dict[str, AccountLimits] | None) -> None:
        """Enable JetStream for these accounts, with their limits; None: for all, without limits."""
        self.options.accounts = accounts
        for account in tuple(self.broker.accounts.values()):
            self.account_lifecycle.follow(account)

    def account(self, name: str) -> JetStreamAccount | None:
        """Return the JetStream of an account, created if new, or None if it is disabled there."""
        self.broker.account(name)
        return self.accounts.get(name)

    def recover(self) -> None:
        """Start every stream that the store holds, expire due messages, and resume the consumers.

        A stream that this version cannot read stays unchanged and offline; the store reports it.
        """
        self._recovered = True
        self._take_over(tuple(self.store.streams))

    def adopt(self, account: str) -> None:
        """Start the stored streams of an account that JetStream was switched on for; before `recover` do nothing."""
        if self._recovered:
            self._take_over(tuple(key for key in self.store.streams if key.startswith(f"{account}/")))

    def _take_over(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                self._recover(key, self.store.streams[key])
            except (msgspec.MsgspecError, KeyError, ValueError, StoreError) as fault:
                self._leave_offline(key, f"this version can not read it: {fault!r}")

    def _leave_offline(self, key: str, why: str) -> None:
        self.unreadable[key] = why
        self.store.report_fault(_unreadable(key, why))

    def _recover(self, key: str, stored: StreamStore) -> None:
        account, _, name = key.partition("/")
        js = self.account(account)
        if js is None:
            self.notice(f"stream {key} is not served: account {account} has no JetStream")
            return
        if name.startswith(TEMPLATES + "/"):
            js.templates.adopt(stored)
            return
        meta = StreamMeta.decode(stored.meta)
        if meta.restoring:
            self.store.delete(key)
            return
        too_new = unmet(meta.config.metadata)
        if too_new:
            self._leave_offline(key, too_new)
            return
        stream = js.adopt(stored)
        try:
            stream.recover()
        except BaseException:
            js.release(stream)
            raise

    def shut_down(self) -> None:
        """End jobs and open pull requests; for a server that stops and takes no more requests."""
        for js in self.accounts.values():
            for stream in tuple(js.streams.values()):
                stream.work.finish()
            for stream in js.streams.values():
                for consumer in stream.consumers.values():
                    consumer.delivery.shut_down()

    def reserved(self, storage: StorageType) -> int:
        """Return the sum of max_bytes over all accounts."""
        return sum(js.reserved(storage) for js in self.accounts.values())

    @property
    def offline(self) -> dict[str, str]:
        """Return why each stream of the store that is not served is not, by key: its account, a slash and its name.

        A stream with a lost name is listed by its folder, without a slash.
        """
        return {**self.store.damaged, **self.unreadable}

    def forget_unreadable(self, key: str) -> None:
        """No longer count a stream as offline: it is about to be deleted. KeyError if it is not offline."""
        fault = _unreadable(key, self.unreadable.pop(key))
        if fault in self.store.faults:
            self.store.faults.remove(fault)

    def remove_streams(self, account: str) -> list[DurableChange]:
        """Remove every stream of an account, including unreadable ones, and return the removals in progress."""
        js = self.accounts.get(account)
        return [] if js is None else js.remove_all()

    def _on_full_changed(self) -> None:
        for js in self.accounts.values():
            for stream in js.streams.values():
                stream.pipeline.replan()

    # The ready queue

    def ready(self, runnable: Runnable) -> None:
        """Run `runnable` in the next turn, once, however often it is called."""
        self._ready[runnable] = None

    def settle_acks(self) -> None:
        """Apply the acks that were gathered in this turn, before a request that followed them is served."""
        for runnable in list(self._ready):
            if isinstance(runnable, Consumer) and runnable.log.acked:
                runnable.settle_acks()

    def run_ready(self, budget: int) -> bool:
        """Run the ready queue once, `budget` messages in all, and return whether more is waiting."""
        waiting = self._ready
        for left in range(len(waiting), 0, -1):
            if budget <= 0 or not waiting:
                break
            runnable, _ = waiting.popitem(last=False)
            budget -= RUN_COST + runnable.run(max(budget // left, RUN_MIN))
        return bool(waiting)

    # Time

    def next_deadline_ns(self) -> int | None:
        """Return the monotonic time for the next call of `run_timers`, or None."""
        mine, stored = self.timers.next_ns(), self.store.next_deadline_ns()
        if mine is None or (stored is not None and stored < mine):
            return stored
        return mine

    def run_timers(self) -> None:
        """Do everything that is due, in the store too; the rest of very much in the next call."""
        clock = self.clock
        now_ns = clock.monotonic_ns()
        stored = self.store.next_deadline_ns()
        if stored is not None and stored <= now_ns:
            self.store.run_timers()
        until_ns = clock.monotonic_ns() + TIMERS_NS
        self.timers.run(now_ns, lambda: clock.monotonic_ns() > until_ns)
