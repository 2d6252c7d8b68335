"""How long a PING takes to each address of the servers that a command may talk to."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace
from urllib.parse import urlsplit

import msgspec

from natsctl.api.errors import NatsctlError
from natsctl.api.times import format_time
from natsctl.client.dial import connect
from natsctl.client.servers import Target
from natsctl.client.settings import without_login


class Trip(msgspec.Struct, omit_defaults=True):
    """The round trips to one address: their mean as `rtt`, in nanoseconds; or why there were none."""

    time: str
    address: str
    url: str
    rtt: int = 0
    min: int = 0
    max: int = 0
    iterations: int = 0
    error: str = ""


class Trips(msgspec.Struct):
    """The addresses of one URL."""

    url: str
    results: list[Trip]


async def round_trips(target: Target, iterations: int) -> list[Trips]:
    """The round trips to every address of every URL, one after the other; a login is in no answer."""
    found = []
    for url in target.urls:
        shown = without_login(url)
        results = [await _trip(target, one, shown, iterations) for one in await _addresses(target, url)]
        found.append(Trips(shown, results))
    return found


async def _addresses(target: Target, url: str) -> list[str]:
    """The URL once for each address of its host; where TLS checks names, and for WebSockets, the URL itself."""
    parts = urlsplit(url)
    settings = target.settings
    if parts.scheme != "nats" or settings.ca or settings.cert or settings.tls_first or not parts.hostname:
        return [url]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError:
        return [url]  # connecting says why
    hosts = dict.fromkeys(str(one[4][0]) for one in found)
    login, at, _ = parts.netloc.rpartition("@")
    ports = f":{parts.port}"
    return [
        parts._replace(netloc=f"{login}{at}{f'[{host}]' if ':' in host else host}{ports}").geturl() for host in hosts
    ]


async def _trip(target: Target, address: str, url: str, iterations: int) -> Trip:
    trip = Trip(time=format_time(time.time_ns()), address=without_login(address), url=url)
    try:
        async with await connect(replace(target, urls=(address,)), name="natsctl rtt") as connection:
            taken = [int(await connection.rtt_s() * 1e9) for _ in range(iterations)]
    except NatsctlError as failure:
        trip.error = failure.text
        return trip
    trip.rtt, trip.min, trip.max, trip.iterations = sum(taken) // iterations, min(taken), max(taken), iterations
    return trip
