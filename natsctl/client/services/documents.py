"""What services of the micro protocol say of themselves. Source: ADR-32."""

from __future__ import annotations

from typing import Any

import msgspec

PING, INFO, STATS = "PING", "INFO", "STATS"


class _Identity(msgspec.Struct, kw_only=True):
    """What every answer begins with."""

    name: str
    id: str
    version: str
    metadata: dict[str, str] | None = None


class ServicePing(_Identity, kw_only=True):
    """The answer to a ping."""

    type: str = "io.nats.micro.v1.ping_response"


class Endpoint(msgspec.Struct, kw_only=True):
    """One thing that a service does, and the subject on which it is asked for it."""

    name: str
    subject: str
    queue_group: str = ""
    metadata: dict[str, str] | None = None


class ServiceInfo(_Identity, kw_only=True):
    """What a service is and does."""

    type: str = "io.nats.micro.v1.info_response"
    description: str = ""
    endpoints: list[Endpoint] = []


class EndpointStats(msgspec.Struct, kw_only=True):
    """What an endpoint has done since its service started; times in nanoseconds."""

    name: str
    subject: str
    queue_group: str = ""
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time: int = 0
    average_processing_time: int = 0
    data: Any | msgspec.UnsetType = msgspec.UNSET
    """Whatever the service has to tell beside that."""


class ServiceStats(_Identity, kw_only=True):
    """What a service has done."""

    type: str = "io.nats.micro.v1.stats_response"
    started: str = ""
    endpoints: list[EndpointStats] = []


class Instance(msgspec.Struct):
    """Both answers of one instance."""

    info: ServiceInfo
    stats: ServiceStats


class Pinged(ServicePing, kw_only=True):
    """The answer to a ping, and the nanoseconds until it came."""

    rtt: int
