"""Description of a benchmark; every client has the same one and a share of the work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from natsctl.api.errors import UsageError

DEFAULT_STREAM = "benchstream"
DEFAULT_BUCKET = "benchbucket"
DEFAULT_CONSUMER = "natsctl-bench"
MAX_ATOMIC = 1000
"""Messages that a server takes in one atomic batch."""


class BenchKind(NamedTuple):
    """A kind of benchmark: its name as on the command line, and its title in reports."""

    name: str
    title: str
    work: str
    """The function of one client's work in `workloads`."""
    timed: str = ""
    """Unit of the latencies; "" if none are measured."""
    shared: bool = True
    """True where the clients share the messages; else each has all of them."""
    dealt: bool = True
    """True where the number of each client is known beforehand."""


KINDS = {
    kind.name: kind
    for kind in (
        BenchKind("pub", "Core NATS publisher", "publish"),
        BenchKind("sub", "Core NATS subscriber", "subscribe", shared=False),
        BenchKind("service request", "Service requester", "service", "request"),
        BenchKind("service serve", "Service", "serve", dealt=False),
        BenchKind("js pub sync", "JetStream synchronous publisher", "stored", "message"),
        BenchKind("js pub async", "JetStream asynchronous publisher", "publish_async", "batch"),
        BenchKind("js pub atomic", "JetStream atomic batch publisher", "publish_atomic", "batch"),
        BenchKind("js pub fast", "JetStream fast batch publisher", "publish_fast"),
        BenchKind("js ordered", "JetStream ordered ephemeral consumer", "ordered", shared=False),
        BenchKind("js consume", "JetStream durable consumer (continuous pull)", "consume"),
        BenchKind("js fetch", "JetStream durable consumer (fetch)", "fetch", "fetch"),
        BenchKind("js get sync", "JetStream direct get", "get", "message"),
        BenchKind("js get batch", "JetStream batched direct get", "get_batches", "batch"),
        BenchKind("kv put", "Key-value put", "put", "put"),
        BenchKind("kv get", "Key-value get", "value", "get"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One benchmark; times in seconds unless named otherwise, 0 if something is not limited."""

    kind: str
    subject: str = ""
    clients: int = 1
    msgs: int = 100_000
    size: int = 128
    payload: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    multisubject: bool = False
    multisubjectmax: int = 100_000
    multisubjectrandomize: bool = False
    throughput: int = 0
    duration_ns: int = 0
    sleep_ns: int = 0
    wait_ns: int = 0
    """Wait for the next message; 0 takes the connection's timeout."""
    stream: str = DEFAULT_STREAM
    bucket: str = DEFAULT_BUCKET
    create: bool = False
    storage: str = "file"
    replicas: int = 1
    maxbytes: int = 1024**3
    history: int = 1
    persistasync: bool = False
    dedup: bool = False
    dedupwindow_ns: int = 120_000_000_000
    purge: bool = False
    batch: int = 500
    max_outstanding_acks: int = 1
    acks: str = "explicit"
    doubleack: bool = False
    filter: tuple[str, ...] = ()
    consumer: str = DEFAULT_CONSUMER
    randomize: int = 0

    @property
    def about(self) -> BenchKind:
        return KINDS[self.kind]

    @property
    def total(self) -> int:
        """Return messages of all clients together; with a duration as many as fit into it."""
        msgs = self.msgs if not self.duration_ns else max(1, round(self.throughput * self.duration_ns / 1e9))
        return msgs if self.about.shared else msgs * self.clients

    def share(self, number: int) -> tuple[int, int]:
        """Return the first message (from 0) and the number of messages of the client of that number (from 0)."""
        if not self.about.shared:
            return 0, self.total // self.clients
        each, over = divmod(self.total, self.clients)
        return number * each + min(number, over), each + (number < over)

    @property
    def stream_name(self) -> str:
        """Return the stream it uses: its own, or its bucket's; "" for core NATS."""
        if self.kind.startswith("kv"):
            return f"KV_{self.bucket}"
        return self.stream if self.kind.startswith("js") else ""

    def check(self) -> None:
        """Raise UsageError for numbers that do not go together."""
        for name in ("clients", "msgs", "batch", "max_outstanding_acks"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')}: at least 1 is needed")
        for name in ("size", "throughput", "multisubjectmax", "randomize", "duration_ns", "sleep_ns", "wait_ns"):
            if getattr(self, name) < 0:
                raise UsageError(f"--{name.removesuffix('_ns')}: must not be negative")
        if self.clients > self.total:
            raise UsageError(f"--clients {self.clients} for {self.total} messages: give at most one client per message")
        if self.duration_ns and not self.throughput:
            raise UsageError("--duration needs --throughput: together they say how many messages there are")
        if self.kind == "js pub atomic" and self.batch > MAX_ATOMIC:
            raise UsageError(f"--batch: an atomic batch has at most {MAX_ATOMIC} messages")
