"""`/jsz`: what JetStream holds, by account, stream and consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.times import format_time
from natsctl.server.monitor.refused import Refused

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


class JszOptions(msgspec.Struct, kw_only=True):
    """What is asked of `jsz`; names are those of the system account's requests."""

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


def jsz(server: ServerInstance, options: JszOptions) -> dict[str, Any]:
    """Return JetStream's counters, and its accounts where asked for. Raises Refused."""
    broker = server.broker
    return {"server_id": broker.server_id, "now": format_time(broker.clock.now_ns())}


def jsz_account(server: ServerInstance, options: JszOptions) -> dict[str, Any]:
    """Return the details of `options.account` alone: the answer to `$SYS.REQ.ACCOUNT.<name>.JSZ`. Raises Refused."""
    if server.engine is None:
        raise Refused("jetstream not enabled")
    return {"name": options.account, "id": options.account}


def jetstream_stats(server: ServerInstance) -> dict[str, Any]:
    """Return what JetStream uses on this server, as varz, jsz and STATSZ show it; empty without JetStream."""
    return {}


def jetstream_config(server: ServerInstance) -> dict[str, Any]:
    """Return JetStream's configuration as varz, jsz and STATSZ show it; empty without JetStream."""
    return {}


def jetstream_limits(server: ServerInstance) -> dict[str, Any]:
    """Return the configured limits of JetStream that are not 0, as varz, jsz and STATSZ show them."""
    return {}
