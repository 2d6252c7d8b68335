"""The JetStream limits of one account, and the bytes stored by each account and by the whole server.

Theory of operation. Streams, consumers and reservations are not counted: they are looked up in the account when a
request needs more, so that a restart, a restore or a removal needs no bookkeeping. A stream without max_bytes reserves
nothing, but there must be a byte of room for it to be made. Source: nats-server, limits of accounts.

Bytes of messages are counted. A stream reports added or removed bytes to its account's usage of one storage type
(`moved`), once a commit, and before each message where the account is limited; the account passes it on to the
server's. The server refuses everything once it is `full`, and informs its streams of it; an account refuses the message
that would go beyond its limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from natsctl.api.catalogue import ApiError, error
from natsctl.api.errors import ErrCode
from natsctl.api.stream import StorageType, StreamConfig

if TYPE_CHECKING:
    from natsctl.api.account import AccountLimits
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.streams.stream import Stream


class Quota:
    __slots__ = ("_js", "limits")

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

    def moved(self, delta: int) -> None:
        """Record added (or, negative, removed) bytes."""
        self.used += delta
        full = 0 <= self.limit < self.used
        if full is not self.full:
            self.full = full
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
        self._server.moved(delta)
