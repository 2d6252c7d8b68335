"""What a benchmark needs on the server before it begins, and what is cleared away after it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from natsctl.api import endpoints
from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError, NatsctlError, UsageError
from natsctl.api.units import plural
from natsctl.client.bench.load import DEFAULT_STREAM, Load
from natsctl.client.bench.messages import body_of
from natsctl.client.preview import DryRunError, Planned

if TYPE_CHECKING:
    from natsctl.client.manager import Manager

OWN = "natsctl.bench"
"""The metadata key of streams that benchmarks made: only those, and the one that benchmarks of the nats tool make, too,
are ever changed by a later one."""


@dataclass(frozen=True, slots=True)
class Change:
    """One request that a benchmark makes before it begins."""

    endpoint: endpoints.Endpoint
    tokens: tuple[str, ...]
    body: dict[str, Any] | None
    told: str


def stream_config(load: Load) -> dict[str, Any]:
    """The stream, or the bucket, that a benchmark creates."""
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
    """The requests that make the server ready for a load; raises ApiResponseError for a stream that is not there."""
    if not load.stream_name:
        return []
    found = await _stream(manager, load.stream_name)
    planned = _for_stream(load, found)
    if load.purge and found is not None and found["state"].get("messages"):
        told = f"purged {plural(found['state']['messages'], 'message')} of Stream {load.stream_name}"
        planned.append(Change(endpoints.STREAM_PURGE, (load.stream_name,), None, told))
    if load.kind in ("js consume", "js fetch"):
        planned += await _for_consumer(manager, load)
    return planned


def _for_stream(load: Load, found: dict[str, Any] | None) -> list[Change]:
    """The request that makes, or changes, the stream; none where it is as it should be."""
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
    """The request that makes the durable consumer, unless it is there."""
    try:
        await manager.consumer_info(load.stream, load.consumer)
        return []
    except ApiResponseError as failure:
        if failure.err_code != ErrCode.CONSUMER_NOT_FOUND:
            raise
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
    told = f"created Consumer {load.consumer}, which is removed at the end"
    return [Change(endpoints.CONSUMER_CREATE, (load.stream, load.consumer), body, told)]


async def _stream(manager: Manager, name: str) -> dict[str, Any] | None:
    try:
        return (await manager.stream_info(name)).raw
    except ApiResponseError as failure:
        if failure.err_code != ErrCode.STREAM_NOT_FOUND:
            raise
        return None


def preview(manager: Manager, load: Load, planned: list[Change]) -> DryRunError:
    """What a dry run shows: the requests before the benchmark, and what its clients would do."""
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
    """Make the server ready, give what was done in words, and remove the consumer that was made.

    In a dry run raises DryRunError. A stream that was created stays: the next benchmark reads what this one wrote.
    """
    planned = await changes(manager, load)
    if manager.connection.dry_run:
        raise preview(manager, load, planned)
    made = any(one.endpoint is endpoints.CONSUMER_CREATE for one in planned)
    try:
        for one in planned:
            await manager.requests.ask(one.endpoint, *one.tokens, body=one.body)
        yield [one.told for one in planned]
    finally:
        if made:
            with contextlib.suppress(NatsctlError):
                await manager.consumer_delete(load.stream, load.consumer)
