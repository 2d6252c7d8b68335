"""`/metrics`: the server's numbers in Prometheus' text format, version 0.0.4.

Names equal those of prometheus-nats-exporter and, for the process, of Prometheus' client libraries. Samples of the
whole server come first, then accounts, streams and consumers, visited one by one while the answer is sent. The number
of each that has samples of its own is limited; the rest is counted in `natsctl_metrics_left_out`.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from natsctl.api.units import SECOND
from natsctl.server.monitor.accountz import account_stat
from natsctl.server.monitor.healthz import HealthzOptions, healthz
from natsctl.server.monitor.http import HttpPage
from natsctl.server.monitor.jsz import JszOptions, jsz
from natsctl.server.monitor.varz import resident_bytes, varz

if TYPE_CHECKING:
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.server.instance import ServerInstance


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge"]


def labels(pairs: Mapping[str, str]) -> str:
    """Return labels in braces; empty ones equal absent ones and are left out."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs.items() if value) + "}"


def family(name: str, kind: Kind, about: str, samples: Iterable[tuple[str, float]]) -> bytes:
    """Return a whole family: its help and type, then a line for each (labels, value); nothing without a sample."""
    lines = [f"{name}{shown} {value if isinstance(value, int) else float(value)!r}\n" for shown, value in samples]
    if not lines:
        return b""
    about = about.replace("\\", "\\\\").replace("\n", "\\n")
    return (f"# HELP {name} {about}\n# TYPE {name} {kind}\n" + "".join(lines)).encode()


def _escaped(value: str) -> str:
    value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


_DESCRIPTORS: Final = Path("/proc/self/fd")


def process_families(server: ServerInstance) -> Iterator[bytes]:
    yield _one("process_cpu_seconds_total", "counter", "CPU time used, seconds", time.process_time())
    yield _one("process_resident_memory_bytes", "gauge", "Resident memory, bytes", resident_bytes())
    started = server.broker.start_ns / SECOND
    yield _one("process_start_time_seconds", "gauge", "When the server started, seconds since the epoch", started)
    yield _one("process_max_fds", "gauge", "Most open files", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if _DESCRIPTORS.is_dir():
        yield _one("process_open_fds", "gauge", "Open files", sum(1 for _ in _DESCRIPTORS.iterdir()))
    committer = server.committer
    if committer is not None:
        yield _one("natsctl_commits_total", "counter", "Commits that went to the disk", committer.syncs)
        yield _one("natsctl_commits_in_flight", "gauge", "Commits that wait for the disk", len(committer.in_flight))


def _one(name: str, kind: Kind, about: str, value: float) -> bytes:
    return family(name, kind, about, [("", value)])


MAX_ACCOUNTS: Final = 1000
MAX_STREAMS: Final = 2000
MAX_CONSUMERS: Final = 2000
"""Accounts, streams and consumers that have samples of their own, of each at most."""

_VARZ_COUNTERS: Final = (
    "total_connections", "in_msgs", "in_bytes", "in_client_msgs", "in_client_bytes", "out_msgs", "out_bytes",
    "out_client_msgs", "out_client_bytes", "slow_consumers", "stale_connections", "stalled_clients",
)  # fmt: skip
_VARZ_GAUGES: Final = (
    "connections", "routes", "remotes", "leafnodes", "subscriptions", "mem", "cpu", "cores", "gomaxprocs", "port",
    "proto", "max_connections", "max_payload", "max_pending", "max_control_line", "ping_interval", "ping_max",
    "auth_timeout", "tls_timeout", "write_deadline", "http_port", "https_port",
)  # fmt: skip
_VARZ_NAMES: Final = ("server_id", "server_name", "version")
_ACCOUNT: Final = (
    ("current_connections", "gauge", "conns"),
    ("total_connections", "gauge", "total_conns"),
    ("subscriptions", "gauge", "num_subscriptions"),
    ("leaf_nodes", "gauge", "leafnodes"),
    ("slow_consumers", "counter", "slow_consumers"),
)
_ACCOUNT_TRAFFIC: Final = (
    ("sent_messages", "sent", "msgs"),
    ("sent_bytes", "sent", "bytes"),
    ("received_messages", "received", "msgs"),
    ("received_bytes", "received", "bytes"),
)
_JETSTREAM: Final = (
    ("total_streams", "streams", "Streams of all accounts"),
    ("total_consumers", "consumers", "Consumers of all accounts"),
    ("total_messages", "messages", "Messages in all streams"),
    ("total_message_bytes", "bytes", "Bytes of messages in all streams"),
)
_STREAM: Final = (
    ("total_messages", "Messages in the stream"),
    ("total_bytes", "Bytes of messages in the stream"),
    ("first_seq", "First sequence in the stream"),
    ("last_seq", "Last sequence in the stream"),
    ("consumer_count", "Consumers of the stream"),
    ("subject_count", "Subjects with messages in the stream"),
)
_CONSUMER: Final = (
    ("delivered.consumer_seq", "Deliveries so far"),
    ("delivered.stream_seq", "Sequence in the stream of the last delivery"),
    ("num_ack_pending", "Messages that await their ack"),
    ("num_redelivered", "Messages that were delivered more than once and await their ack"),
    ("num_waiting", "Pull requests that wait for messages"),
    ("num_pending", "Messages that were not delivered yet"),
    ("ack_floor.stream_seq", "Ack floor as a sequence in the stream"),
    ("ack_floor.consumer_seq", "Ack floor as a delivery's number"),
)
"""Fields of a consumer's info; a family has the name of its field."""
_consumer_values: Final = attrgetter(*(field for field, _ in _CONSUMER))


class MetricsRow(NamedTuple):
    labels: str
    values: tuple[int, ...]


def metrics_page(server: ServerInstance) -> HttpPage:
    return HttpPage(200, _metrics(server), CONTENT_TYPE)


def _metrics(server: ServerInstance) -> Iterator[bytes]:
    mine = {"server_id": server.broker.server_id}
    yield from _server(varz(server), mine)
    illness = int(healthz(server, HealthzOptions())["status_code"] != 200)
    yield _gauge("gnatsd_healthz_status", "0 where the server is well", mine, illness)
    yield from _accounts(server)
    yield from _jetstream(server)
    yield from process_families(server)


def _gauge(name: str, about: str, mine: dict[str, str], value: float) -> bytes:
    return family(name, "gauge", about, [(labels(mine), value)])


def _server(shown: dict[str, Any], mine: dict[str, str]) -> Iterator[bytes]:
    kinds: list[tuple[Kind, tuple[str, ...]]] = [("counter", _VARZ_COUNTERS), ("gauge", _VARZ_GAUGES)]
    for kind, names in kinds:
        for name in names:
            yield family(f"gnatsd_varz_{name}", kind, f"{name} of /varz", [(labels(mine), shown[name])])
    for name in _VARZ_NAMES:
        yield _gauge(f"gnatsd_varz_{name}", f"{name} of /varz as a label", {**mine, "value": shown[name]}, 1)


def _accounts(server: ServerInstance) -> Iterator[bytes]:
    accounts = list(server.broker.accounts.values())
    stats = []
    for account in accounts[:MAX_ACCOUNTS]:
        stat = account_stat(server, account)
        names = {"account": stat["acc"], "account_id": stat["acc"], "account_name": stat["name"]}
        stats.append((labels({"server_id": server.broker.server_id, **names}), stat))
        yield b""
    for name, kind, key in _ACCOUNT:
        samples = [(labelled, stat[key]) for labelled, stat in stats]
        yield family(
            f"gnatsd_accstatz_{name}", "counter" if kind == "counter" else "gauge", f"{key} of /accstatz", samples
        )
    for name, way, key in _ACCOUNT_TRAFFIC:
        samples = [(labelled, stat[way][key]) for labelled, stat in stats]
        yield family(f"gnatsd_accstatz_{name}", "counter", f"{way} {key} of /accstatz", samples)
    yield _left_out("account", len(accounts) - MAX_ACCOUNTS, first=True)


def _left_out(what: str, count: int, *, first: bool = False) -> bytes:
    """Return the number of those without samples of their own, as a line of a family that spans calls."""
    text = family(
        "natsctl_metrics_left_out",
        "gauge",
        "Objects without own samples",
        [(labels({"kind": what}), max(count, 0))],
    )
    return text if first else text.splitlines(keepends=True)[-1]


def _jetstream(server: ServerInstance) -> Iterator[bytes]:
    engine, broker = server.engine, server.broker
    streams = [stream for js in engine.accounts.values() for stream in js.streams.values()] if engine else []
    consumers = sum(stream.consumer_count for stream in streams)
    yield _left_out("stream", len(streams) - MAX_STREAMS)
    yield _left_out("consumer", consumers - MAX_CONSUMERS)
    mine = {"server_id": broker.server_id, "server_name": broker.server_name}
    if engine is not None:
        mine |= {"domain": engine.options.domain}
    mine |= {"is_meta_leader": "true"}
    shown = jsz(server, JszOptions())
    yield _gauge("jetstream_server_jetstream_disabled", "1 where JetStream is off", mine, int(engine is None))
    for name in ("max_memory", "max_storage"):
        yield _gauge(f"jetstream_server_{name}", f"{name} of JetStream", mine, shown["config"][name])
    for name in ("memory", "storage", "reserved_memory", "reserved_storage"):
        yield _gauge(f"jetstream_server_{name}", f"{name} of JetStream, bytes", mine, shown[name])
    for name, key, about in _JETSTREAM:
        yield _gauge(f"jetstream_server_{name}", about, mine, shown[key])
    for name in ("total", "errors"):
        samples = [(labels(mine), shown["api"][name])]
        yield family(f"jetstream_server_api_{name}", "counter", f"{name} of the API's requests", samples)
    yield from _assets(streams, mine)


def _assets(streams: list[Stream], mine: dict[str, str]) -> Iterator[bytes]:
    of_streams: list[MetricsRow] = []
    of_consumers: list[MetricsRow] = []
    for stream in streams[:MAX_STREAMS]:
        named = _stream_labels(stream, mine)
        of_streams.append(MetricsRow(labels(named), _stream_values(stream)))
        yield b""
        for consumer in islice(stream.consumer_set.visible(), MAX_CONSUMERS - len(of_consumers)):
            own = {"consumer_name": consumer.name, "is_consumer_leader": "true"}
            of_consumers.append(MetricsRow(labels({**named, **own}), _consumer_values(consumer.info())))
            yield b""
    yield from _families("jetstream_stream", _STREAM, of_streams)
    yield from _families("jetstream_consumer", _CONSUMER, of_consumers)


def _families(prefix: str, names: Iterable[tuple[str, str]], rows: list[MetricsRow]) -> Iterator[bytes]:
    for number, (name, about) in enumerate(names):
        head: bytes = b""
        for start in range(0, len(rows), _BATCH):
            samples = [(row.labels, row.values[number]) for row in rows[start : start + _BATCH]]
            text = family(f"{prefix}_{name.replace('.', '_')}", "gauge", about, samples)
            yield text.removeprefix(head)
            head = head or b"".join(text.splitlines(keepends=True)[:2])


_BATCH: Final = 200
"""Samples that are written at once."""


def _stream_labels(stream: Stream, mine: dict[str, str]) -> dict[str, str]:
    account = stream.account
    return {
        **mine,
        "account": account.config.display_name or account.name,
        "account_id": account.name,
        "stream_name": stream.name,
        "is_stream_leader": "true",
    }


def _stream_values(stream: Stream) -> tuple[int, ...]:
    store = stream.store
    return store.messages, store.bytes, store.first_seq, store.last_seq, stream.consumer_count, store.num_subjects
