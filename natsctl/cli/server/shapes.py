"""What `server … -j` prints: servers' own answers as they were sent, and documents that are made of them."""

from __future__ import annotations

from typing import Any

import msgspec


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


class ToldBy(msgspec.Struct):
    """Which server an entry is of."""

    name: str
    id: str
    cluster: str = ""


class Connection(msgspec.Struct):
    """A connection as its server describes it."""

    cid: int
    kind: str
    server: ToldBy
    account: str = ""
    name: str = ""
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    subscriptions: int = 0


class Moved(msgspec.Struct):
    """How much was moved."""

    msgs: int
    bytes: int


class Account(msgspec.Struct):
    """An account over all servers; `servers` has what each of them tells."""

    acc: str
    name: str
    conns: int
    leafnodes: int
    num_subscriptions: int
    slow_consumers: int
    sent: Moved
    received: Moved
    servers: list[dict[str, Any]]


class Leafnode(msgspec.Struct):
    """A leaf node connection as its server describes it."""

    server: ToldBy
    account: str
    name: str = ""


class Route(msgspec.Struct):
    """A route as its server describes it."""

    rid: int
    server: ToldBy
    remote_id: str = ""


class Gateway(msgspec.Struct):
    """A gateway connection as its server describes it, with the cluster at its other end."""

    server: ToldBy
    remote: str
    direction: str
    connection: dict[str, Any]


class Asset(msgspec.Struct):
    """A stream, or a consumer of it, and the API level that it needs."""

    account: str
    stream: str
    consumer: str
    required_api_level: int


class Metric(msgspec.Struct):
    """A measured value; times are seconds."""

    name: str
    value: float
    unit: str = ""
    warning: float | None = None
    critical: float | None = None


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


class Balance(msgspec.Struct):
    """How many connections were sent away, and how many each server had before."""

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
