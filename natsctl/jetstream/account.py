"""One account's JetStream: its streams by name, their use of resources, and the API.

Streams that are stored and not served are kept apart as offline: damaged ones, those without some of their files or
with files of others, and those written by a newer version. They are shown with the reason, refuse everything, keep
their names, and stay untouched until they are deleted (STREAM.DELETE), until missing files are restored, or until
`natsctl server repair` makes a stream of the readable data.

Streams, consumers and reservations are not counted: they are looked up when a request needs more, so that a restart,
a restore or a removal needs no bookkeeping. Bytes of messages are counted. A stream reports added or removed bytes to
its account's usage of one storage type (`moved`), once a commit, and before each message where the account is
limited; the account passes it on to the server's. The server refuses everything once it is `full`, and informs its
streams; an account refuses the message beyond its limit. Source: nats-server, limits of accounts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api.account import AccountLimits, ApiStats, Tier
from natsctl.api.advisories import ActionType, Advisory
from natsctl.api.answers import AccountInfoAnswer
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode
from natsctl.api.errors import ErrCode
from natsctl.api.stream import StorageType, StreamConfig
from natsctl.api.stream_rules import Draft
from natsctl.api.subject_index import STEP, SubjectIndex, cost_of, subject_pieces
from natsctl.api.times import format_time
from natsctl.api.versions import API_LEVEL
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.jetstream.advisories import nuid
from natsctl.jetstream.claims import Claim
from natsctl.jetstream.consumers.consumer_router import ConsumerRouter
from natsctl.jetstream.endpoints.templates import Templates
from natsctl.jetstream.streams.stream import Stream, StreamMeta
from natsctl.jetstream.work import Work
from natsctl.store.steps import Steps, finish
from natsctl.store.stream import RecordsCallback, StreamStore

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.deferred_work import LongWork
    from natsctl.jetstream.endpoints.dispatcher import Dispatcher
    from natsctl.jetstream.engine import Engine
    from natsctl.jetstream.engine_options import DurableChange
    from natsctl.store.file_commit import Settled


class Quota:
    def __init__(self, js: JetStreamAccount, limits: AccountLimits) -> None:
        self._js = js
        self.limits = limits

    def refuse_new(self, config: StreamConfig, sized: bool = True) -> ApiError | None:
        """Return why there is no room for one more stream, or None; the configuration may not be checked yet.

        A stream of that name that exists is not counted. Without `sized` bytes are not checked: nats-server does
        not know yet which storage a request means that does not name it.
        """
        others = len(self._js.streams) - (config.name in self._js.streams)
        if 0 < self.limits.max_streams <= others:
            return error(ErrCode.MAXIMUM_STREAMS_LIMIT)
        return self.refuse_reservation(config) if sized else None

    def refuse_bytes(self, config: StreamConfig) -> ApiError | None:
        """Return why the account does not allow a stream to be that large, or None."""
        limits = self.limits
        if limits.max_bytes_required and config.max_bytes <= 0:
            return error(ErrCode.STREAM_MAX_BYTES_REQUIRED)
        memory = config.storage is StorageType.MEMORY
        largest = limits.memory_max_stream_bytes if memory else limits.storage_max_stream_bytes
        return error(ErrCode.STREAM_MAX_STREAM_BYTES_EXCEEDED) if 0 < largest < config.max_bytes else None

    def refuse_reservation(self, config: StreamConfig) -> ApiError | None:
        """Return the reason why there is no room for the reservation of a new or changed stream, or None."""
        if 0 < self.limits.max_consumers < config.max_consumers:
            return error(ErrCode.MAXIMUM_CONSUMERS_LIMIT)
        js, storage = self._js, config.storage
        existing = js.streams.get(config.name)
        same = existing is not None and existing.config.storage is storage
        granted = max(existing.config.max_bytes, 0) if existing is not None and same else 0
        size = config.max_bytes if config.max_bytes >= 0 else int(existing is None)
        memory = storage is StorageType.MEMORY
        for most, reserved in (
            (self.limits.max_memory if memory else self.limits.max_storage, js.reserved(storage)),
            (js.engine.usage[storage].limit, js.engine.reserved(storage)),
        ):
            if 0 <= most < reserved - granted + size:
                return error(ErrCode.MEMORY_RESOURCES_EXCEEDED if memory else ErrCode.STORAGE_RESOURCES_EXCEEDED)
        return None

    def refuse_consumer(self, stream: Stream) -> ApiError | None:
        most, of_account = stream.config.max_consumers, self.limits.max_consumers
        if most <= 0 or 0 < of_account < most:
            most = of_account
        if most <= 0:
            most = self._js.engine.options.default_max_consumers
        return error(ErrCode.MAXIMUM_CONSUMERS_LIMIT) if 0 < most <= stream.consumer_count else None


class ServerUsage:
    """Bytes of messages in all streams of one storage type; `limit` below 0: none."""

    __slots__ = ("_changed", "full", "limit", "used")

    def __init__(self, limit: int, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `full` turned."""
        self.limit = limit
        self.used = 0
        self.full = False
        self._changed = changed

    def turn(self) -> None:
        self.full = not self.full
        self._changed()


class AccountUsage:
    """Bytes of messages in the streams of one account and storage type; `limit` below 0: none."""

    __slots__ = ("_server", "limit", "used")

    def __init__(self, server: ServerUsage, limit: int) -> None:
        self._server = server
        self.limit = limit
        self.used = 0

    @property
    def full(self) -> bool:
        return self._server.full

    @property
    def limited(self) -> bool:
        return self.limit >= 0

    def refuses(self, size: int) -> bool:
        """Return whether a message of `size` bytes would go beyond the account's limit."""
        return 0 <= self.limit < self.used + size

    @property
    def room(self) -> int:
        """Return how many bytes may still be added."""
        rooms = [usage.limit - usage.used for usage in (self, self._server) if usage.limit >= 0]
        return min(rooms, default=1 << 62)

    def moved(self, delta: int) -> None:
        """Record added (or, negative, removed) bytes."""
        self.used += delta
        server = self._server
        server.used += delta
        if (0 <= server.limit < server.used) is not server.full:
            server.turn()


class OfflineStreams:
    def __init__(self, engine: Engine, account: str) -> None:
        self._engine = engine
        self._account = account

    def reasons(self) -> dict[str, str]:
        found = self._engine.offline
        return {name: found[key] for name, key in sorted(self._keys(found).items())}

    def refusal(self, name: str) -> ApiError:
        """Return the error for a name that is not served: offline if data is stored under it, else not found."""
        why = self.reasons().get(name)
        return error(ErrCode.STREAM_NOT_FOUND) if why is None else error(ErrCode.STREAM_OFFLINE_REASON, err=why)

    def remove(self, name: str) -> DurableChange:
        """Delete one; `on_durable` of the returned object calls back when that is durable. KeyError for other names."""
        engine = self._engine
        key = self._keys(engine.offline)[name]
        if key in engine.store.damaged:
            return engine.store.discard(key)
        engine.forget_unreadable(key)
        return engine.store.delete(key)

    def _keys(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the store's keys by name; a key with a lost name is listed by its folder, in the global account."""
        found = {}
        for key in keys:
            account, slash, name = key.partition("/")
            if (account if slash else GLOBAL_ACCOUNT) == self._account:
                found[name or key] = key
        return found


class SubjectClaim(Claim):
    __slots__ = ("config",)

    def __init__(self, config: StreamConfig) -> None:
        super().__init__()
        self.config = config


class StreamSubjects:
    """The subjects and reserved bytes of an account's streams, so that adding one costs nothing for all others."""

    def __init__(self, long_work: LongWork) -> None:
        """Create an empty index; large removals from it go through `long_work`."""
        self.reserved = dict.fromkeys(StorageType, 0)
        self._claims: dict[str, SubjectClaim] = {}
        self._claimed: dict[str, SubjectClaim] = {}
        """Claims of configurations that are not in use yet."""
        self._index: SubjectIndex[SubjectClaim] = SubjectIndex()
        self._long_work = long_work

    def claiming(self, config: StreamConfig) -> Steps[bool]:
        """Claim the subjects that a stream is about to have; return False if another one captures part of them."""
        claim, kept = SubjectClaim(config), False
        unclaimed, self._claimed[config.name] = self._claimed.get(config.name), claim
        if unclaimed is not None:
            self._end(unclaimed)
        try:
            for piece in subject_pieces([*dict.fromkeys(config.subjects)]):
                for subject in piece:
                    raw = subject.encode()
                    self._index.add(raw, claim)  # before the comparison, so that who claims meanwhile finds it
                    claim.subjects.append(raw)
                if (cost := sum(map(cost_of, piece))) >= STEP:
                    yield cost
            kept = not (yield from self.finding_taken(config))
            return kept
        finally:
            if not kept:
                self.unclaim(config)
                self._end(claim)

    def put(self, config: StreamConfig) -> None:
        before = self._claims.get(config.name)
        if before is not None and before.config is config:
            return
        self.drop(config.name)
        claim = self._claimed.pop(config.name, None)
        if claim is None or claim.config is not config or claim.ended:
            claim = SubjectClaim(config)
            claim.subjects = [subject.encode() for subject in dict.fromkeys(config.subjects)]
            for subject in claim.subjects:
                self._index.add(subject, claim)
        self._claims[config.name] = claim
        self.reserved[config.storage] += max(config.max_bytes, 0)

    def unclaim(self, config: StreamConfig) -> None:
        """Release the claims of a configuration that is not used after all."""
        claim = self._claimed.get(config.name)
        if claim is not None and claim.config is config:
            self._end(self._claimed.pop(config.name))

    def drop(self, name: str) -> None:
        claim = self._claims.pop(name, None)
        if claim is not None:
            self.reserved[claim.config.storage] -= max(claim.config.max_bytes, 0)
            self._end(claim)

    def _end(self, claim: SubjectClaim) -> None:
        claim.end(self._index, self._long_work)

    def taken(self, config: StreamConfig) -> bool:
        """Return whether another stream captures part of a stream's subjects."""
        return finish(self.finding_taken(config))

    def finding_taken(self, config: StreamConfig) -> Steps[bool]:
        cost = 0
        for subject in config.subjects:
            cost += cost_of(subject)
            for claims in self._index.meeting(subject.encode()):
                if any(not claim.ended and claim.config.name != config.name for claim in claims):
                    return True
                cost += self._index.take_cost()
                if cost >= STEP:
                    yield cost
                    cost = 0
        return False

    def colliding(self, subject: str) -> Steps[set[str]]:
        names = set[str]()
        for claims in self._index.meeting(subject.encode()):
            names |= {claim.config.name for claim in claims if self._claims.get(claim.config.name) is claim}
            yield self._index.take_cost()
        return names


class _Removal(NamedTuple):
    """The deletion of a stream, and the work that ends its consumers."""

    stored: StreamStore
    work: Work

    def on_durable(self, callback: Settled) -> None:
        self.stored.on_durable(RecordsCallback(partial(self.when_ended, callback)))

    def when_ended(self, call: Callable[..., object], *arguments: Any) -> None:
        """Make a call after the consumers ended, and after the jobs that this began: the ends of pull requests."""
        self.work.after(self.work.after, call, *arguments)


class JetStreamAccount:
    def __init__(
        self,
        engine: Engine,
        account: Account,
        limits: AccountLimits,
        serve: Callable[[JetStreamAccount], Dispatcher],
    ) -> None:
        self.engine = engine
        self.account = account
        self.name = account.name
        self.streams: dict[str, Stream] = {}
        self.subjects = StreamSubjects(engine.broker.long_work)
        self.work = Work(engine)
        self.quota = Quota(self, limits)
        self.usage = {
            StorageType.MEMORY: AccountUsage(engine.usage[StorageType.MEMORY], limits.max_memory),
            StorageType.FILE: AccountUsage(engine.usage[StorageType.FILE], limits.max_storage),
        }
        self.offline = OfflineStreams(engine, account.name)
        self.templates = Templates(self)
        self.dispatcher = serve(self)
        self.router = ConsumerRouter(account)

    def limit(self, limits: AccountLimits) -> None:
        """Apply other limits; existing streams and consumers stay."""
        if limits == self.quota.limits:
            return
        self.quota = Quota(self, limits)
        self.usage[StorageType.MEMORY].limit = limits.max_memory
        self.usage[StorageType.FILE].limit = limits.max_storage
        for stream in self.streams.values():
            stream.pipeline.configure()

    def stop(self) -> None:
        """Stop serving the account and leave its stored data unchanged."""
        self.dispatcher.stop()
        self.router.stop()
        self.templates.stop()
        for stream in tuple(self.streams.values()):
            self.release(stream)

    def adopt(self, stored: StreamStore) -> Stream:
        stream = self.add_stored(stored, StreamMeta.decode(stored.meta))
        finish(stream.following())
        return stream

    def add_stored(self, stored: StreamStore, meta: StreamMeta) -> Stream:
        """Add a stream of the store, possibly with claimed subjects; nothing is captured before `following`."""
        return self._add(Stream(self, meta.config, meta.created_ns, stored))

    def create(self, config: StreamConfig, created_ns: int = 0) -> Stream:
        """Create a stream from a checked configuration; it is durable when its store's first commit ends."""
        return finish(self.creating(config, created_ns))

    def creating(self, config: StreamConfig, created_ns: int = 0) -> Steps[Stream]:
        created_ns = created_ns or self.engine.clock.now_ns()
        stored = self.engine.store.create(
            f"{self.name}/{config.name}",
            StreamMeta(created_ns, config).encode(),
            "memory" if config.storage is StorageType.MEMORY else "file",
            max(config.first_seq, 1),
        )
        stream = self._add(Stream(self, config, created_ns, stored))
        yield from stream.following()
        if self.streams.get(config.name) is stream:
            yield from stream.upstreams.starting()
        return stream

    def _add(self, stream: Stream) -> Stream:
        self.streams[stream.name] = stream
        self.subjects.put(stream.config)
        self.templates.stream_created(stream.config)
        stream.start()
        return stream

    def draft(self, config: StreamConfig, pedantic: bool = False) -> Draft:
        """Return a draft of a configuration for the checks against the account's streams and limits."""

        def origin(name: str) -> StreamConfig | None:
            stream = self.streams.get(name)
            return None if stream is None else stream.config

        return Draft(
            config=config,
            pedantic=pedantic,
            max_window_ns=self.engine.options.max_duplicate_window_ns,
            origin=origin,
            refuse_bytes=self.quota.refuse_bytes,
        )

    def claiming(self, config: StreamConfig) -> Steps[ApiError | None]:
        """Claim the subjects of a stream that is about to have a checked configuration; return why it cannot."""
        claimed = yield from self.subjects.claiming(config)
        return None if claimed else error(ErrCode.STREAM_SUBJECT_OVERLAP)

    def refusing_stream(self, config: StreamConfig) -> Steps[ApiError | None]:
        """Return why the account cannot take one more stream of this checked configuration, or None."""
        refusal = self.quota.refuse_new(config) or self.quota.refuse_bytes(config)
        if refusal is None and (yield from self.subjects.finding_taken(config)):
            return error(ErrCode.STREAM_SUBJECT_OVERLAP)
        return refusal

    def refuse_update(self, stream: Stream, config: StreamConfig) -> ApiError | None:
        """Return why the account cannot take the new limits of a stream, or None."""
        return self.quota.refuse_reservation(config) or _refuse_consumer_limits(stream, config)

    def forget(self, stream: Stream) -> None:
        """Undo a creation that could not be made durable."""
        if self.streams.get(stream.name) is stream:
            self.release(stream)
            if stream.store.key in self.engine.store.streams:
                self.engine.store.delete(stream.store.key)

    def no_stream(self, name: str) -> ApiError:
        """Return the error for a stream that is not served: offline if data is stored under it, else not found."""
        return self.offline.refusal(name)

    def advise(self, event: Advisory) -> None:
        subject = event.published_on().encode()
        if self.account.has_interest(subject):
            event.id = nuid(self.engine.rng)
            event.timestamp = format_time(self.engine.clock.now_ns())
            event.domain = self.engine.options.domain
            self.account.publish(subject, b"", b"", encode(event))

    def release(self, stream: Stream, removed: bool = False) -> None:
        """Stop serving a stream and leave its stored data unchanged, though it may be `removed` next."""
        stream.stop(removed)
        del self.streams[stream.name]
        self.subjects.drop(stream.name)
        self.templates.stream_deleted(stream.config)
        stream.work.stop()

    def remove(self, stream: Stream) -> _Removal:
        """Delete a stream; `on_durable` calls back when the removal is durable and its consumers have ended."""
        self.release(stream, removed=True)
        return _Removal(self.engine.store.delete(stream.store.key), self.work)

    def remove_and_advise(self, name: str) -> DurableChange:
        stream = self.streams[name]
        leaving = self.remove(stream)
        leaving.when_ended(stream.advise, ActionType.DELETE)
        return leaving

    def remove_all(self) -> list[DurableChange]:
        templates = sorted(self.templates.by_name.items())
        leaving = [change for _, template in templates for change in self.templates.remove(template)]
        leaving += [self.remove_and_advise(name) for name in tuple(self.streams)]
        return leaving + [self.offline.remove(name) for name in self.offline.reasons()]

    def by_name(self, subject: str = "") -> Steps[list[Stream]]:
        """Return streams in order of their names; with `subject` those with a subject that collides with it."""
        names = (yield from self.subjects.colliding(subject)) if subject else self.streams
        return [self.streams[name] for name in sorted(names) if name in self.streams]

    def used(self, storage: StorageType) -> int:
        return sum(s.store.bytes for s in self.streams.values() if s.config.storage is storage)

    def reserved(self, storage: StorageType) -> int:
        return self.subjects.reserved[storage]

    def info(self) -> AccountInfoAnswer:
        """Return the answer to INFO; everything on a single node belongs to the tier R1."""
        tiers = {name: Tier(limits=limits) for name, limits in self.account.config.jetstream_tiers}
        use = Tier(
            memory=self.used(StorageType.MEMORY),
            storage=self.used(StorageType.FILE),
            reserved_memory=self.reserved(StorageType.MEMORY),
            reserved_storage=self.reserved(StorageType.FILE),
            streams=len(self.streams),
            consumers=sum(len(stream.consumers) for stream in self.streams.values()),  # of mirrors and sources too
            limits=self.quota.limits,
        )
        if tiers and (use.streams or "R1" in tiers):
            tiers["R1"] = use
        return AccountInfoAnswer(
            memory=use.memory,
            storage=use.storage,
            reserved_memory=use.reserved_memory,
            reserved_storage=use.reserved_storage,
            streams=use.streams,
            consumers=use.consumers,
            limits=AccountLimits() if tiers else use.limits,
            tiers=tiers,
            domain=self.engine.options.domain,
            api=ApiStats(level=API_LEVEL, total=self.dispatcher.total, errors=self.dispatcher.errors),
        )


def _refuse_consumer_limits(stream: Stream, config: StreamConfig) -> ApiError | None:
    """Return the error if an existing consumer exceeds new consumer limits; unchanged limits are not checked."""
    limits = config.consumer_limits
    if limits == stream.config.consumer_limits:
        return None
    beyond = [
        name
        for name, consumer in sorted(stream.consumers.items())
        if 0 < limits.max_ack_pending < consumer.config.max_ack_pending
        or 0 < limits.inactive_threshold < consumer.config.inactive_threshold
    ]
    return (
        error(ErrCode.STREAM_UPDATE, err="change to limits violates consumers: " + ", ".join(beyond))
        if beyond
        else None
    )
