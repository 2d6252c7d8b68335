"""What `server … -j` prints: servers' own answers as they were sent, and documents that are made of them."""

from __future__ import annotations

from typing import Any

import msgspec

from natsctl.client.system.cluster import Member


class Server(msgspec.Struct):
    """Who answered."""

    name: str
    id: str
    host: str = ""
    cluster: str = ""
    ver: str = ""
    tags: list[str] = []
    jetstream: bool = False


class Statistics(msgspec.Struct):
    """A server's statistics, as it sent them."""

    server: Server
    statsz: dict[str, Any]


class Ping(msgspec.Struct):
    """How quickly a server answered; `rtt` in nanoseconds."""

    server: Server
    rtt: int


class ServerAnswer(msgspec.Struct):
    """What one server answered, as it sent it: `data`, or an `error` with `code` and `description`."""

    server: Server
    data: Any = None
    error: Any = None


class Connection(msgspec.Struct):
    """A connection as its server describes it."""

    cid: int
    kind: str
    server: Server
    account: str = ""
    name: str = ""
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    subscriptions: int = 0


class Account(msgspec.Struct):
    """The connections of an account over all servers, and what they have moved."""

    account: str
    connections: int
    connection_info: list[Connection]
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    subscriptions: int
    server: list[Server]


class Leafnode(msgspec.Struct):
    """A leaf node connection as its server describes it."""

    server: Server
    account: str
    name: str = ""


class Route(msgspec.Struct):
    """A route as its server describes it."""

    rid: int
    server: Server
    remote_id: str = ""


class Gateway(msgspec.Struct):
    """A gateway connection as its server describes it, with the cluster at its other end."""

    server: Server
    remote: str
    direction: str
    connection: dict[str, Any]


class StreamAbove(msgspec.Struct):
    """A stream that needs a higher API level."""

    account: str
    name: str
    api_level: int


class ConsumerAbove(msgspec.Struct):
    """A consumer that needs a higher API level, or whose stream does, whose name then ends with `*`."""

    account: str
    name: str
    stream: str
    api_level: int


class Downgrade(msgspec.Struct):
    """The streams and consumers that are in the way of a lower API level."""

    streams: list[StreamAbove] = []
    consumers: list[ConsumerAbove] = []


Use = dict[str, float]
"""How busy each server is in percent, or how much memory it uses in bytes, by its name."""


class Metric(msgspec.Struct):
    """A measured value with its thresholds, 0 for none; times are seconds."""

    name: str
    value: float
    warning: float
    critical: float
    unit: str = ""


class CheckResult(msgspec.Struct):
    """How a check ended."""

    status: str
    check_suite: str
    check_name: str
    perf_data: list[Metric]
    critical: list[str] = []
    unknown: list[str] = []
    warning: list[str] = []
    ok: list[str] = []


class Profile(msgspec.Struct):
    """A profile of a server and the file that it was written to."""

    server: Server
    profile: str
    file: str


class Success(msgspec.Struct):
    """An answer of the JetStream API that has nothing but success to tell."""

    type: str
    success: bool = False
    initiated: bool = False


class Election(msgspec.Struct):
    """Who led the cluster, and who leads it now."""

    previous: str
    leader: str
    meta_cluster: dict[str, Any]


class Rescue(msgspec.Struct):
    """JetStream's cluster as its servers see it, and what each answered that was to lower its quorum."""

    servers: list[Member]
    answers: list[dict[str, Any]]


class Balance(msgspec.Struct):
    """How many connections were moved, and how many each server had before."""

    balanced: int
    servers: list[dict[str, Any]]


class Mapped(msgspec.Struct):
    """A subject and what it is mapped to, null where the source does not match it."""

    subject: str
    mapped: str | None


class Hashed(msgspec.Struct):
    """The hash of a password, and the password if it was made up."""

    hash: str
    password: str = ""


class Refused(msgspec.Struct):
    """A stream that a server refuses to serve, with the reason; after a repair what became of it."""

    account: str
    name: str
    reason: str
    repaired: bool
    messages: int
    last_seq: int
    notes: list[str]
    remains: str


class Activity(msgspec.Struct):
    """One look: a row for each server, account or subject, with what it does a second."""

    rows: list[dict[str, Any]]
