"""Benchmarks: the preparation on the server, the run of all clients, and the removal of what was made.

Clients run in processes of their own, as many as there are processors, on uvloop: beside a command's own loop a
request took a third longer, and one Python process is busy before most servers are.

Against nats-server 2.15.2 on two shared processors, one client with messages of 128 bytes, rates relative to the nats
tool of the same day were, as medians of three runs: pub 1.6, js pub async 1.5, js ordered 1.1, js fetch 1.1, js pub
atomic 1.0, js get batch 1.0, js pub sync and kv get 0.8, js consume 0.6 to 0.8, js pub fast 0.5. So where each message
is answered, some 0.05 ms of every latency are Python's; and where a client handles and acks each message, or names each
in its reply subject, the client is the limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from natsctl.api import endpoints
from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, UsageError
from natsctl.api.units import plural
from natsctl.client.bench.client import body_of
from natsctl.client.bench.load import DEFAULT_STREAM, Load
from natsctl.client.bench.report import Report, now_ns, report
from natsctl.client.bench.workers import Workers
from natsctl.client.message import DryRunError, Planned
from natsctl.client.servers import Target

if TYPE_CHECKING:
    from natsctl.client.manager import Manager


POLL_INTERVAL_S = 0.1
"""Seconds between two looks at how far the clients are."""


async def measure(target: Target, load: Load, watch: Callable[[int], None]) -> Report:
    """Run all clients of a load; `watch` is called repeatedly with the number of messages done, once there are any.

    Raises what the first client fails with; then, and when it is cancelled, all of them are ended.
    """
    workers = Workers(target, load, min(load.clients, os.cpu_count() or 1))
    try:
        await workers.prepare()
        started_ns = now_ns()
        looking = asyncio.create_task(_look(workers, load, watch))
        try:
            results = await workers.run()
        finally:
            looking.cancel()
        watch(load.total)
        return report(load, results, workers.processes, started_ns)
    finally:
        await workers.close()


async def _look(workers: Workers, load: Load, watch: Callable[[int], None]) -> None:
    while True:
        await asyncio.sleep(POLL_INTERVAL_S)
        done = workers.msgs
        if done:
            watch(done)
        if not load.about.dealt and done >= load.total:
            workers.stop()


OWN = "natsctl.bench"
"""The metadata key of streams that benchmarks made: only those, and the one that benchmarks of the nats tool make, too,
are ever changed by a later one."""


@dataclass(frozen=True, slots=True)
class Change:
    """One request that a benchmark makes before it begins."""

    endpoint: endpoints.Endpoint
    tokens: tuple[str, ...]
    body: dict[str, Any] | None
    notice: str


def stream_config(load: Load) -> dict[str, Any]:
    """Return the stream, or the bucket, that a benchmark creates."""
    config: dict[str, Any] = {
        "name": load.stream_name,
        "retention": "limits",
        "discard": "new",
        "max_bytes": load.maxbytes,
        "storage": load.storage,
        "num_replicas": load.replicas,
        "allow_direct": True,
        "metadata": {OWN: "true"},
    }
    if load.kind.startswith("kv"):
        return config | {
            "subjects": [f"$KV.{load.bucket}.>"],
            "max_msgs_per_subject": load.history,
            "allow_rollup_hdrs": True,
            "deny_delete": True,
        }
    config["subjects"] = [load.subject, f"{load.subject}.*"] if load.multisubject else [load.subject]
    config["duplicate_window"] = load.dedupwindow_ns
    if load.persistasync:
        config["persist_mode"] = "async"
    else:
        config["allow_atomic"] = config["allow_batched"] = True
    return config


async def changes(manager: Manager, load: Load) -> list[Change]:
    """Return the requests that make the server ready for a load.

    Raises ApiResponseError for a stream that is not there.
    """
    if not load.stream_name:
        return []
    found = await _stream(manager, load.stream_name)
    planned = _for_stream(load, found)
    if load.purge and found is not None and found["state"].get("messages"):
        notice = f"purged {plural(found['state']['messages'], 'message')} of Stream {load.stream_name}"
        planned.append(Change(endpoints.STREAM_PURGE, (load.stream_name,), None, notice))
    if load.kind in ("js consume", "js fetch"):
        planned += await _for_consumer(manager, load)
    return planned


def _for_stream(load: Load, found: dict[str, Any] | None) -> list[Change]:
    """Return the request that makes, or changes, the stream; none where it is as it should be."""
    name, kind = load.stream_name, "Bucket" if load.kind.startswith("kv") else "Stream"
    may_create = load.create or load.kind == "kv put"
    if found is None:
        if may_create:
            return [Change(endpoints.STREAM_CREATE, (name,), stream_config(load), f"created {kind} {name}")]
        hint = "natsctl bench kv put makes it" if kind == "Bucket" else "give --create to a publishing benchmark"
        from natsctl.api.catalogue import ApiError

        error = ApiError(code=404, err_code=ErrCode.STREAM_NOT_FOUND, description=f"{kind} {name} does not exist")
        raise ApiResponseError(error, hint=hint)
    if not load.create:
        return []
    merged = {**found["config"], **stream_config(load)}
    merged["metadata"] = {**(found["config"].get("metadata") or {}), OWN: "true"}
    if merged == found["config"]:
        return []
    if name != DEFAULT_STREAM and OWN not in (found["config"].get("metadata") or {}):
        raise UsageError(
            f"Stream {name} exists, and no benchmark made it: --create would change its configuration",
            hint="leave out --create to use it as it is, or name another with --stream",
        )
    return [Change(endpoints.STREAM_UPDATE, (name,), merged, f"updated Stream {name}")]


async def _for_consumer(manager: Manager, load: Load) -> list[Change]:
    """Return the request that makes the durable consumer, unless it is there."""
    if await manager.find_consumer(load.stream, load.consumer) is not None:
        return []
    config: dict[str, Any] = {
        "durable_name": load.consumer,
        "name": load.consumer,
        "deliver_policy": "all",
        "ack_policy": load.acks,
        "replay_policy": "instant",
        "metadata": {OWN: "true"},
    }
    if load.acks != "none":
        config["max_ack_pending"] = max(1000, 2 * load.batch * load.clients)
    if load.filter:
        config["filter_subjects"] = list(load.filter)
    body = {"stream_name": load.stream, "config": config}
    notice = f"created Consumer {load.consumer}, which is removed at the end"
    return [Change(endpoints.CONSUMER_CREATE, (load.stream, load.consumer), body, notice)]


async def _stream(manager: Manager, name: str) -> dict[str, Any] | None:
    found = await manager.find_stream(name)
    return None if found is None else found.raw


def preview(manager: Manager, load: Load, planned: list[Change]) -> DryRunError:
    """Return the dry run's result: the requests before the benchmark, and the work of its clients."""
    prefix = manager.connection.target.api_prefix
    requests = [Planned(one.endpoint.subject(*one.tokens, prefix=prefix), one.body) for one in planned]
    size = len(body_of(load))
    effect: dict[str, Any] = {"benchmark": load.kind, "clients": load.clients, "messages": load.total}
    if load.kind in ("pub", "service request") or load.kind.startswith("js pub"):
        subject = f"{load.subject}.*" if load.multisubject else load.subject
        effect |= {"subject": subject, "bytes": load.total * size}
    return DryRunError(*requests, effect=effect)


@contextlib.asynccontextmanager
async def prepared(manager: Manager, load: Load) -> AsyncIterator[list[str]]:
    """Prepare the server, yield a description of the changes, and remove the created consumer afterwards.

    In a dry run raises DryRunError. A stream that was created stays: the next benchmark reads what this one wrote.
    """
    planned = await changes(manager, load)
    if manager.connection.dry_run:
        raise preview(manager, load, planned)
    made = any(one.endpoint is endpoints.CONSUMER_CREATE for one in planned)
    try:
        for one in planned:
            await manager.requests.ask(one.endpoint, *one.tokens, body=one.body)
        yield [one.notice for one in planned]
    finally:
        if made:
            with contextlib.suppress(NatsctlError):
                await manager.consumer_delete(load.stream, load.consumer)
