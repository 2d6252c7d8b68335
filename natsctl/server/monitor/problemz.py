"""`/problemz`: things that need somebody's attention, the worst first.

An error means that messages are refused, not stored or not delivered; a warning, that this comes closer or that a
client does not do its part. Thresholds equal the alert rules (examples/monitoring/alerts.yaml) if there is a
rule. Everything is derived from the present state, without a history: a consumer with clients that connect once an hour
counts as stalled in between.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.stream import DiscardPolicy, StorageType, StreamSourceInfo
from natsctl.api.units import MINUTE, SECOND, format_size, plural
from natsctl.broker.refusals import CloseReason
from natsctl.server.monitor.connz import name_tag
from natsctl.server.monitor.document import pieces, uptime
from natsctl.server.monitor.healthz import HealthzOptions, health_problems
from natsctl.server.monitor.query import BadRequestError, Query
from natsctl.server.monitor.streamz import (
    ListEntry,
    Paging,
    choosing,
    every_stream,
    page_head,
    read_paging,
    redelivered,
)

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.server.instance import ServerInstance


KINDS: Final = (
    "health", "disk", "storage", "account", "connections", "stream_limit", "source", "consumer_stalled",
    "acks_missing", "redeliveries", "slow_consumer",
)  # fmt: skip
"""Kinds of problems, in listing order."""
STORAGE_SHARE: Final = 0.85
"""Used part of the storage of the server or of an account that is reported; the rule NatsStorageFull."""
LIMIT_SHARE: Final = 0.9
"""Used part of another limit that is reported; the rule NatsConnectionsFull."""
FREE_DISK_SHARE: Final = 0.05
"""Free part of the disk below which it is reported."""
STALLED_NS: Final = 15 * MINUTE
"""Time without a delivery after which a consumer with messages is reported; the rule NatsConsumerStalled."""
ACKS_MISSING_NS: Final = 30 * MINUTE
"""Time without an ack after which a consumer that waits for some is reported; the rule NatsAcksMissing."""
REDELIVERED_SHARE: Final = 0.5
"""Part of the messages that await an ack which were delivered before; the rule NatsRedeliveries."""
REDELIVERED_MIN: Final = 100
"""Messages that await an ack below which that part is not looked at; the rule NatsRedeliveries."""
UPSTREAM_SILENT_NS: Final = MINUTE
"""Time after which a mirror or a source without even heartbeats from its origin is reported."""
PENDING_SHARE: Final = 0.5
"""Used part of `max_pending` of a client that is reported."""
DISCONNECTED_NS: Final = 10 * MINUTE
"""How long a disconnected slow consumer is reported; the rule NatsSlowConsumers."""
_SLOW: Final = (CloseReason.SLOW_CONSUMER_PENDING_BYTES, CloseReason.SLOW_CONSUMER_WRITE_DEADLINE)


class ServerProblem(msgspec.Struct, omit_defaults=True):
    """One problem and its object; `weight` orders problems of a kind, the largest first."""

    level: str
    kind: str
    text: str
    account: str = ""
    stream: str = ""
    consumer: str = ""
    cid: int = 0
    weight: int = 0


class ProblemzOptions(msgspec.Struct, frozen=True, kw_only=True):
    page: Paging
    kind: str = ""


def read(query: Query) -> ProblemzOptions:
    kind = query.text("kind")
    if kind and kind not in KINDS:
        raise BadRequestError(f"invalid kind: {kind}")
    page = read_paging(query, ("level",), "level")
    return ProblemzOptions(page=msgspec.structs.replace(page, descending=False), kind=kind)


def problemz(server: ServerInstance, options: ProblemzOptions) -> Iterator[bytes]:
    """Yield a page of problems, after the numbers of errors and warnings and of each kind."""
    kinds: Counter[str] = Counter()
    levels: Counter[str] = Counter()

    def entries() -> Iterator[ListEntry | None]:
        for problem in problems(server):
            if problem is None:
                yield None
                continue
            kinds[problem.kind] += 1
            levels[problem.level] += 1
            yield _entry(problem) if options.kind in ("", problem.kind) else None

    chosen = yield from choosing(entries(), options.page)
    yield from pieces(
        {
            **page_head(server, options.page, chosen.total),
            "errors": levels["error"],
            "warnings": levels["warning"],
            "kinds": {kind: kinds[kind] for kind in KINDS if kinds[kind]},
            "problems": [_row(problem) for problem in chosen.rows],
        }
    )


def _entry(problem: ServerProblem) -> ListEntry:
    """Return a problem with its place: errors before warnings, kinds in their order, the heaviest first."""
    rank = KINDS.index(problem.kind) + (len(KINDS) if problem.level == "warning" else 0)
    names = problem.stream + "\0" + problem.consumer + "\0" + problem.text
    return ListEntry((rank << _WEIGHT_BITS) - min(problem.weight, _WEIGHT_MAX), names, problem.account, "", problem)


_WEIGHT_BITS: Final = 64
_WEIGHT_MAX: Final = (1 << _WEIGHT_BITS) - 1


def _row(problem: ServerProblem) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(problem)
    row.pop("weight", None)
    return row


def problems(server: ServerInstance) -> Iterator[ServerProblem | None]:
    """Yield every problem, or None for an object without one, so that the caller may pause."""
    for health in health_problems(server, HealthzOptions()):
        account = server.engine.accounts.get(health.account) if server.engine is not None else None
        reason = account.offline.reasons().get(health.stream) if account is not None else None
        text = f"{health.text}: {reason}" if reason else health.text
        yield ServerProblem("error", "health", text, health.account, health.stream, health.consumer)
    yield from _of_connections(server)
    if server.engine is None:
        return
    yield from _of_storage(server)
    for account in list(server.engine.accounts.values()):
        yield from _of_account(account)
    for stream in every_stream(server):
        yield None
        yield from _of_limits(stream)
        if stream.config.mirror is not None or stream.config.sources:
            yield from _of_upstreams(stream)
        for consumer in list(stream.consumers.values()):
            yield None if consumer.config.direct or consumer.stopped else _of_consumer(consumer)


def _usage(kind: str, what: str, used: int, most: int, share: float, account: str = "") -> ServerProblem | None:
    """Return the problem of a number of bytes near or above its limit; negative means no limit."""
    if most < 0 or used < share * most or not used:
        return None
    level = "error" if used >= most else "warning"
    full = ": new messages are refused" if used >= most else ""
    text = f"{what}: {format_size(used)} of {format_size(most)}{_percent(used, most)} used{full}"
    return ServerProblem(level, kind, text, account, weight=_permille(used, most))


def _percent(used: int, most: int) -> str:
    return f" ({100 * used // most}%)" if most else ""


def _permille(used: int, most: int) -> int:
    return 1000 * used // max(most, 1)


def _of_storage(server: ServerInstance) -> Iterator[ServerProblem | None]:
    engine, folder = server.engine, server.options.store_path
    assert engine is not None
    with suppress(OSError):
        disk = shutil.disk_usage(folder)
        free = f"{format_size(disk.free)} of {format_size(disk.total)} are free on the disk of {folder}"
        if not engine.store.has_room:
            yield ServerProblem("error", "disk", f"The disk is full: {free}", weight=disk.total)
        elif disk.free < FREE_DISK_SHARE * disk.total:
            yield ServerProblem("warning", "disk", f"The disk is nearly full: {free}", weight=disk.total - disk.free)
    for what, storage in (("File storage of the server", StorageType.FILE), ("Memory", StorageType.MEMORY)):
        usage = engine.usage[storage]
        yield _usage("storage", what, usage.used, usage.limit, STORAGE_SHARE)


def _of_account(account: JetStreamAccount) -> Iterator[ServerProblem | None]:
    name = name_tag(account.account)
    for what, storage in (("File storage", StorageType.FILE), ("Memory storage", StorageType.MEMORY)):
        usage = account.usage[storage]
        yield _usage("account", f"{what} of the account", usage.used, usage.limit, STORAGE_SHARE, account=name)
    most, used = account.quota.limits.max_streams, len(account.streams)
    if most > 0 and used >= LIMIT_SHARE * most:
        text = f"Streams of the account: {used:,} of {most:,}"
        yield ServerProblem("warning", "account", text, name, weight=_permille(used, most))


def _of_limits(stream: Stream) -> Iterator[ServerProblem | None]:
    """Yield reached limits of streams that refuse messages; with `discard: old` they make room instead."""
    config, store = stream.config, stream.store
    if config.discard is not DiscardPolicy.NEW:
        return
    yield _limit(stream, "max_msgs", store.messages, config.max_msgs, f"{store.messages:,} of {config.max_msgs:,}")
    sizes = f"{format_size(store.bytes)} of {format_size(config.max_bytes)}"
    yield _limit(stream, "max_bytes", store.bytes, config.max_bytes, sizes)


def _limit(stream: Stream, name: str, used: int, most: int, numbers: str) -> ServerProblem | None:
    if most <= 0 or used < LIMIT_SHARE * most:
        return None
    full = used >= most
    text = f"{name} is reached" if full else f"{name} is nearly reached"
    text = (
        f"{text}, {numbers}{_percent(used, most)}: with discard new, {'' if full else 'further '}messages are refused"
    )
    names = name_tag(stream.account), stream.name
    return ServerProblem("error" if full else "warning", "stream_limit", text, *names, weight=_permille(used, most))


def _of_upstreams(stream: Stream) -> Iterator[ServerProblem | None]:
    info = stream.info()
    for what, one in chain((("Mirror", info.mirror),), (("Source", source) for source in info.sources)):
        if one is not None and (why := _stuck(stream, one)):
            behind = f", {plural(one.lag, 'message')} behind" if one.lag else ""
            text = f"{what} of {one.name}: {why}{behind}"
            yield ServerProblem("error", "source", text, name_tag(stream.account), stream.name, weight=one.lag)


def _stuck(stream: Stream, one: StreamSourceInfo) -> str:
    """Return why nothing comes from an origin, "" while it does or may be about to."""
    if one.error is not None:
        return one.error.description
    age_ns = stream.engine.clock.now_ns() - stream.created_ns
    if one.active < 0:
        return "never connected" if age_ns >= UPSTREAM_SILENT_NS else ""
    return f"no heartbeat for {_age(one.active)}" if one.active >= UPSTREAM_SILENT_NS else ""


def _of_consumer(consumer: Consumer) -> ServerProblem | None:
    state, pending = consumer.state, consumer.undelivered.count
    unacked = len(state.pending)
    if (not pending and not unacked) or consumer.lifetime.paused:
        return None
    found = _stalled(consumer, pending, unacked) or _unacked(consumer, unacked) or _repeated(consumer, unacked)
    if found is None:
        return None
    kind, text, weight = found
    names = name_tag(consumer.account), consumer.stream.name, consumer.name
    return ServerProblem("warning", kind, text, *names, weight=weight)


def _stalled(consumer: Consumer, pending: int, unacked: int) -> tuple[str, str, int] | None:
    """Return the problem of a consumer that has messages and has long delivered none, or none but the same, and why."""
    most, state = consumer.config.max_ack_pending, consumer.state
    used_up = 0 < most <= unacked
    idle_ns = consumer.now_ns() - ((state.last_ack_ns if used_up else state.last_delivered_ns) or consumer.created_ns)
    if pending <= 0 or idle_ns < STALLED_NS:
        return None
    if used_up:
        why = f"no ack for {_age(idle_ns)}: max_ack_pending is used up by {plural(unacked, 'message')}"
    else:
        why = f"no delivery for {_age(idle_ns)}: {_client_state(consumer)}"
    return "consumer_stalled", f"{plural(pending, 'message')} pending, {why}", pending


def _client_state(consumer: Consumer) -> str:
    if consumer.delivery.active():
        return "a client is there"
    return "no client subscribes to its delivery subject" if consumer.config.deliver_subject else "no client pulls"


def _unacked(consumer: Consumer, unacked: int) -> tuple[str, str, int] | None:
    state, now_ns = consumer.state, consumer.now_ns()
    if not unacked:
        return None
    seq, (_, delivered_ns) = next(iter(state.pending.items()))
    waited_ns = now_ns - delivered_ns + state.redelivered.get(seq, 0) * consumer.config.ack_wait
    idle_ns = min(now_ns - (state.last_ack_ns or consumer.created_ns), waited_ns)
    if idle_ns < ACKS_MISSING_NS:
        return None
    waiting = plural(unacked, "message", ("waits", "wait"))
    return "acks_missing", f"{waiting} for an ack, none came for {_age(idle_ns)}", unacked


def _repeated(consumer: Consumer, unacked: int) -> tuple[str, str, int] | None:
    again = redelivered(consumer)
    if unacked <= REDELIVERED_MIN or again <= REDELIVERED_SHARE * unacked:
        return None
    text = f"{again:,} of {unacked:,} messages that wait for an ack were delivered before"
    return "redeliveries", text, again


def _of_connections(server: ServerInstance) -> Iterator[ServerProblem | None]:
    broker = server.broker
    most, used = broker.options.max_connections, len(broker.sessions)
    if most > 0 and used >= LIMIT_SHARE * most:
        full = ": no client can connect" if used >= most else ""
        text = f"Connections: {used:,} of {most:,}{_percent(used, most)}{full}"
        yield ServerProblem("error" if full else "warning", "connections", text, weight=_permille(used, most))
    for session in list(broker.sessions.values()):
        yield _of_session(session)
    now_ns = broker.clock.now_ns()
    for session in list(broker.closed):
        age_ns = now_ns - session.stop_ns
        if session.close_reason in _SLOW and age_ns < DISCONNECTED_NS:
            reason = session.close_reason.value if session.close_reason is not None else ""
            text = f"{_client(session)} was disconnected {_age(age_ns)} ago: {reason}"
            yield ServerProblem("warning", "slow_consumer", text, name_tag(session.account), cid=session.cid)
        else:
            yield None


def _of_session(session: Session) -> ServerProblem | None:
    pending, most = session.pending_bytes, session.max_pending
    if pending < PENDING_SHARE * most:
        return None
    text = f"{_client(session)} reads too slowly: {format_size(pending)} of {format_size(most)} wait for it"
    return ServerProblem("warning", "slow_consumer", text, name_tag(session.account), cid=session.cid, weight=pending)


def _client(session: Session) -> str:
    return f"{session.name} (cid {session.cid})" if session.name else f"Client cid {session.cid}"


def _age(age_ns: int) -> str:
    """Return an age without its seconds, from a minute on."""
    if age_ns < MINUTE:
        return f"{max(age_ns, 0) // SECOND}s"
    return uptime(age_ns - age_ns % MINUTE).removesuffix("0s")
