"""JetStream usage and limits of an account."""

from msgspec import field

from natsctl.api.model import Int, Int64, Model, Uint64, off, zero


class AccountLimits(Model):
    """Limits of an account or tier, sizes in bytes; -1 for no limit."""

    max_memory: Int64 = field(default_factory=zero)
    max_storage: Int64 = field(default_factory=zero)
    max_streams: Int = field(default_factory=zero)
    max_consumers: Int = field(default_factory=zero)
    max_ack_pending: Int = field(default_factory=zero)
    memory_max_stream_bytes: Int64 = field(default_factory=zero)
    storage_max_stream_bytes: Int64 = field(default_factory=zero)
    max_bytes_required: bool = field(default_factory=off)


class ApiStats(Model):
    """Numbers of API requests: all, answered with an error, and not answered yet (`inflight`)."""

    level: Int = field(default_factory=zero)
    total: Uint64 = field(default_factory=zero)
    errors: Uint64 = field(default_factory=zero)
    inflight: Uint64 = 0


class Tier(Model):
    """Usage and limits of one tier of an account; sizes in bytes."""

    memory: Uint64 = field(default_factory=zero)
    storage: Uint64 = field(default_factory=zero)
    reserved_memory: Uint64 = field(default_factory=zero)
    reserved_storage: Uint64 = field(default_factory=zero)
    streams: Int = field(default_factory=zero)
    consumers: Int = field(default_factory=zero)
    limits: AccountLimits = field(default_factory=lambda: AccountLimits())


class AccountInfo(Tier):
    """Usage and limits of an account, and of its tiers by name."""

    domain: str = ""
    api: ApiStats = field(default_factory=lambda: ApiStats())
    tiers: dict[str, Tier] = field(default_factory=dict)


UNLIMITED = AccountLimits(
    max_memory=-1,
    max_storage=-1,
    max_streams=-1,
    max_consumers=-1,
    max_ack_pending=-1,
    memory_max_stream_bytes=-1,
    storage_max_stream_bytes=-1,
)
"""The limits of an account without limits; not to be modified."""
