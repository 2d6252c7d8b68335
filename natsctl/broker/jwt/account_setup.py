"""Conversion of an account's claims into the broker's configuration of an account.

An import is in effect when its export needs no token, or when its token is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.account import AccountLimits
from natsctl.api.jwt_claims import (
    AccountBody,
    AccountClaims,
    ActivationClaims,
    Export,
    Import,
    JetStreamLimits,
    MsgTrace,
    ServiceLatency,
    WeightedMapping,
    decode,
    is_revoked,
)
from natsctl.api.jwt_token import JwtError
from natsctl.api.jwt_validation import Containers, activation_faults, finding_mapping_fault, import_faults, time_faults
from natsctl.api.subject_index import Steps
from natsctl.api.subjects import is_literal, is_valid_subject
from natsctl.broker.imports.account_config import (
    RESPONSE_THRESHOLD_NS,
    AccountConfig,
    ConnectionLimits,
    Destination,
    Latency,
    ResponseType,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectMap,
    limit_of,
)
from natsctl.broker.imports.mappings import MAPPING_COST

if TYPE_CHECKING:
    from natsctl.broker.jwt.account_registry import ActiveAccount


ITEMS_PER_COST: Final = 16
"""Exports or imports that cost as much to convert as one message."""
TOKEN_COST: Final = 64
"""Cost of verifying an activation token: a quarter of a millisecond."""
TIER: Final = "R1"
"""The tier of streams with one replica: all that one node can have."""
_RESPONSES: Final[dict[str, ResponseType]] = {"Stream": "stream", "Chunked": "chunked"}


def account_config(claims: AccountClaims, imports: Sequence[Import]) -> Steps[AccountConfig]:
    """Return the account configuration for these claims, including active imports."""
    body = claims.nats
    mappings: list[SubjectMap] = []
    for source, destinations in body.mappings.items():
        if not (yield from finding_mapping_fault(source, destinations)):
            mappings.append(_mapping(source, destinations))
        yield MAPPING_COST * len(destinations)
    yield (len(body.exports) + len(imports)) // ITEMS_PER_COST
    return AccountConfig(
        name=claims.sub,
        jetstream=jetstream_limits(body),
        exports=tuple(_export(export) for export in body.exports if export.type),
        imports=tuple(_import(item) for item in imports if item.type),
        mappings=tuple(mappings),
        limits=ConnectionLimits(
            max_connections=limit_of(body.limits.conn),
            max_leafnodes=limit_of(body.limits.leaf),
            max_subscriptions=limit_of(body.limits.subs),
            max_payload=limit_of(body.limits.payload),
        ),
        display_name=claims.name,
        **_trace(body.trace),
        jetstream_tiers=tuple((name, _tier(limits)) for name, limits in sorted(body.limits.tiered_limits.items())),
    )


def _trace(trace: MsgTrace | None) -> dict[str, Any]:
    """Return a claim's trace settings; an invalid destination means no traces."""
    if trace is None or not (is_valid_subject(trace.dest) and is_literal(trace.dest)):
        return {}
    return {"trace_dest": trace.dest, "trace_sampling": trace.sampling if 0 < trace.sampling <= 100 else 100}


def jetstream_limits(body: AccountBody) -> AccountLimits | None:
    """Return an account's JetStream limits on this node, or None."""
    limits = body.limits
    if not limits.tiered_limits:
        return _tier(limits) if limits.mem_storage or limits.disk_storage else None
    if not any(tier.mem_storage or tier.disk_storage for tier in limits.tiered_limits.values()):
        return None
    return _tier(limits.tiered_limits.get(TIER, JetStreamLimits()))


def _tier(limits: JetStreamLimits) -> AccountLimits:
    return AccountLimits(
        max_memory=limits.mem_storage,
        max_storage=limits.disk_storage,
        max_streams=limits.streams,
        max_consumers=limits.consumer,
        max_ack_pending=limits.max_ack_pending if limits.max_ack_pending > 0 else -1,
        memory_max_stream_bytes=limits.mem_max_stream_bytes if limits.mem_max_stream_bytes > 0 else -1,
        storage_max_stream_bytes=limits.disk_max_stream_bytes if limits.disk_max_stream_bytes > 0 else -1,
        max_bytes_required=limits.max_bytes_required,
    )


def _export(export: Export) -> StreamExport | ServiceExport:
    position, token = export.account_token_position, export.token_req
    if export.type == "stream":
        return StreamExport(export.subject, account_token_position=position, token_required=token)
    return ServiceExport(
        export.subject,
        response=_RESPONSES.get(export.response_type, "single"),
        response_threshold_ns=export.response_threshold or RESPONSE_THRESHOLD_NS,
        latency=_latency(export.service_latency),
        account_token_position=position,
        token_required=token,
        allow_trace=export.allow_trace,
    )


def _latency(latency: ServiceLatency | None) -> Latency | None:
    if latency is None:
        return None
    return Latency(latency.results, latency.sampling if isinstance(latency.sampling, int) else 0)


def _import(item: Import) -> StreamImport | ServiceImport:
    """Return an import with the exporter's subject first; `to` of old JWTs is a prefix for streams."""
    if item.type == "stream":
        to = item.local_subject or (f"{item.to}.{item.subject}" if item.to else "")
        return StreamImport(item.account, item.subject, to, item.token, item.allow_trace)
    theirs, ours = (item.subject, item.local_subject) if item.local_subject else (item.to or item.subject, item.subject)
    return ServiceImport(item.account, theirs, ours if ours != theirs else "", item.share, item.token)


def _mapping(source: str, destinations: Sequence[WeightedMapping]) -> SubjectMap:
    """Return a mapping without destinations for named clusters: one node is in none of them."""
    return SubjectMap(source, tuple(Destination(to.subject, to.weight or 100) for to in destinations if not to.cluster))


def imports_in_effect(
    account: AccountClaims,
    active: Callable[[str], ActiveAccount | None],
    now_s: int,
    exports: dict[str, ExportIndex],
) -> Steps[tuple[list[Import], int]]:
    """Return the imports that may be used, and when the first of their tokens expires, in seconds; 0: never.

    `active` returns an account by its name; `exports` keeps the index of its exports for further calls.
    """
    found: list[Import] = []
    ends: list[int] = []
    for item in account.nats.imports:
        index = exports.get(item.account)
        if index is None:
            index = exports[item.account] = ExportIndex()
            exporter = active(item.account)
            for exported in exporter.claims.nats.exports if exporter is not None else ():
                index.add(exported)
                yield 1
        export = index.of(item)
        yield 1
        if export is None:
            continue
        if not export.token_req or export.account_token_position:
            found.append(item)
            continue
        token = _activation(item, account.sub, active, now_s)
        yield TOKEN_COST
        if token is not None and not is_revoked(export.revocations, token):
            found.append(item)
            ends += [token.exp] if token.exp else []
    return found, min(ends, default=0)


class ExportIndex:
    def __init__(self) -> None:
        self._exports: dict[str, list[Export]] = {}
        self._subjects: dict[str, Containers] = {}

    def add(self, export: Export) -> None:
        self._exports.setdefault(export.type, []).append(export)
        self._subjects.setdefault(export.type, Containers()).add(export.subject)

    def of(self, item: Import) -> Export | None:
        """Return the export that an import is of: the one of the same subject, or the first that contains it."""
        subject = item.subject
        if item.type == "service" and not item.local_subject and item.to:
            subject = item.to
        if item.type not in self._exports:
            return None
        same = [self._exports[item.type][at] for at in self._subjects[item.type].of(subject)]
        return next((export for export in same if export.subject == subject), same[0] if same else None)


def _activation(
    item: Import, account: str, active: Callable[[str], ActiveAccount | None], now_s: int
) -> ActivationClaims | None:
    """Return the token of an import if it is valid now."""
    if not item.token or any(import_faults(item, account)):
        return None
    try:
        token = decode(item.token, ActivationClaims)
    except JwtError:
        return None
    of = token.nats.issuer_account
    if of:
        exporter = active(of)
        if of != item.account or exporter is None or token.iss not in exporter.signers:
            return None
    if any(activation_faults(token)) or any(time_faults(token, now_s)) or 0 < token.exp <= now_s:
        return None
    return token
