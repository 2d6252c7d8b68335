"""`/jsz`: the state of JetStream by account, stream and consumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from msgspec import field

from natsctl.api.codec import recast
from natsctl.api.consumer import ConsumerConfig, ConsumerInfo
from natsctl.api.model import UINT64_MAX
from natsctl.api.stream import StorageType
from natsctl.server.monitor.connz import name_tag
from natsctl.server.monitor.document import head
from natsctl.server.monitor.query import BadRequestError, EndpointOptions
from natsctl.server.monitor.varz import jetstream_config, jetstream_limits, jetstream_stats

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.server.instance import ServerInstance


DEFAULT_LIMIT: Final = 1024


class JszOptions(EndpointOptions, kw_only=True):
    QUERY: ClassVar = {
        "account": "acc", "consumer": "consumers", "direct_consumer": "direct-consumers", "leader_only": "leader-only",
        "stream_leader_only": "stream-leader-only",
    }  # fmt: skip

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = False
    config: bool = False
    leader_only: bool = False
    offset: int = 0
    limit: int = 0
    raft: bool = False
    stream_leader_only: bool = False


class ConsumerDetail(ConsumerInfo):
    """A consumer with its configuration only on request."""

    config: ConsumerConfig | None = field(default=None)  # type: ignore[assignment]  # wider than an info's, in its place


def jsz(server: ServerInstance, options: JszOptions) -> dict[str, Any]:
    """Return the document of `jsz`, with accounts, streams and consumers as iterators.

    Raises BadRequestError.
    """
    broker, engine = server.broker, server.engine
    answer = {
        **(jetstream_stats(server) or _NO_STATS),
        **head(broker),
    }
    if engine is None:
        if options.leader_only:
            raise BadRequestError("skip request: not leader")
        nothing = {"streams": 0, "consumers": 0, "messages": 0, "bytes": 0, "total": 0}
        return {**answer, "disabled": True, "config": {"max_memory": 0, "max_storage": 0}, **nothing}
    every = list(engine.accounts.values())
    answer |= {"config": jetstream_config(server), "limits": jetstream_limits(server), **_sums(every, options.raft)}
    accounts = _asked(every, options)
    if accounts:
        details = msgspec.structs.replace(options, streams=options.streams or options.consumer)
        answer["account_details"] = (account_detail(server, js, details) for js in accounts)
    return {**answer, "total": len(every)}


def jsz_account(server: ServerInstance, options: JszOptions) -> dict[str, Any]:
    """Return the details of `options.account` only: the answer to `$SYS.REQ.ACCOUNT.<name>.JSZ`.

    Raises BadRequestError.
    """
    if server.engine is None:
        raise BadRequestError("jetstream not enabled")
    if options.account not in server.broker.accounts:
        raise BadRequestError(f'account "{options.account}" not found')
    js = server.engine.accounts.get(options.account)
    if js is None:
        raise BadRequestError(f'account "{options.account}" not jetstream enabled')
    return account_detail(server, js, options)


_NO_STATS: Final = {
    "memory": 0,
    "storage": 0,
    "reserved_memory": 0,
    "reserved_storage": 0,
    "accounts": 0,
    "ha_assets": 0,
    "api": {"level": 0, "total": 0, "errors": 0},
}


def _sums(accounts: Iterable[JetStreamAccount], leaders: bool) -> dict[str, int]:
    """Return the numbers of all streams and consumers; on one node each is its own leader."""
    streams = consumers = messages = size = 0
    for js in accounts:
        streams += len(js.streams)
        for stream in js.streams.values():
            consumers += stream.consumer_count
            messages += stream.store.messages
            size += stream.store.bytes
    counts = {"streams": streams}
    if leaders and streams:
        counts["streams_leader"] = streams
    counts["consumers"] = consumers
    if leaders and consumers:
        counts["consumers_leader"] = consumers
    return {**counts, "messages": messages, "bytes": size}


def _asked(every: list[JetStreamAccount], options: JszOptions) -> list[JetStreamAccount]:
    named = [js for js in every if js.name == options.account]
    if named:
        return named
    streams = options.streams or options.consumer
    if not (options.accounts or (streams and not options.account)):
        return []
    limit = options.limit or DEFAULT_LIMIT
    if limit < 0:
        return every
    offset = max(options.offset, 0)
    return sorted(every, key=lambda js: js.name)[offset : offset + limit]


def account_detail(server: ServerInstance, js: JetStreamAccount, options: JszOptions) -> dict[str, Any]:
    """Return the usage of one account, and its streams on request, as an iterator."""
    limits = js.quota.limits
    detail = {
        "name": name_tag(js.account),
        "id": js.name,
        "memory": js.usage[StorageType.MEMORY].used,
        "storage": js.usage[StorageType.FILE].used,
        "reserved_memory": limits.max_memory & UINT64_MAX,
        "reserved_storage": limits.max_storage & UINT64_MAX,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": js.dispatcher.total, "errors": js.dispatcher.errors},
    }
    if options.streams and js.streams:
        detail["stream_detail"] = _streams(server, js, options)
    if options.streams and (offline := js.offline.reasons()):
        detail["offline"] = offline
    return detail


def _streams(server: ServerInstance, js: JetStreamAccount, options: JszOptions) -> Iterator[dict[str, Any]]:
    for stream in list(js.streams.values()):
        if js.streams.get(stream.name) is stream:
            yield _stream(server, stream, options)


def _stream(server: ServerInstance, stream: Stream, options: JszOptions) -> dict[str, Any]:
    info = stream.info()
    detail: dict[str, Any] = {
        "name": info.config.name,
        "created": info.created,
        "cluster": {"leader": server.broker.server_name},
    }
    if options.config:
        detail["config"] = info.config
    detail["state"] = info.state
    if options.consumer:
        consumers = stream.consumer_set.visible()
        if consumers:
            detail["consumer_detail"] = _consumers(stream, consumers, options.config)
        hidden = [consumer for consumer in stream.consumers.values() if consumer.config.direct]
        if hidden and options.direct_consumer:
            detail["direct_consumer_detail"] = _consumers(stream, hidden, options.config)
    if info.mirror is not None:
        detail["mirror"] = info.mirror
    if info.sources:
        detail["sources"] = info.sources
    return detail


def _consumers(stream: Stream, consumers: list[Consumer], with_config: bool) -> Iterator[ConsumerDetail]:
    for consumer in consumers:
        if stream.consumers.get(consumer.name) is consumer:
            yield consumer_detail(consumer, with_config)


def consumer_detail(consumer: Consumer, with_config: bool) -> ConsumerDetail:
    detail = recast(consumer.info(), ConsumerDetail)
    if not with_config:
        detail.config = None
    return detail
