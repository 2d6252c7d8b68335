"""What one account gives, takes and maps, as accountz shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from natsctl.broker.exchange.account_config import (
    RESPONSE_THRESHOLD_NS,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)

if TYPE_CHECKING:
    from natsctl.broker.exchange.account_config import AccountConfig, SubjectMap

_RESPONSES: Final = {"single": "Singleton", "stream": "Stream", "chunked": "Chunked"}
_DOMAIN: Final = ("$KV.>", "$OBJ.>", "ACCOUNT.>", "CONSUMER.>", "DIRECT.>", "INFO", "META.>", "SERVER.>", "STREAM.>")
"""What is reached under a domain's name."""
_API: Final = "$JS.API"
_BUILT_IN: Final = (
    ("$SYS.REQ.ACCOUNT.{}.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", False),
    ("$SYS.REQ.ACCOUNT.{}.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", False),
    ("$SYS.REQ.ACCOUNT.{}.STATZ", "$SYS.REQ.ACCOUNT.PING.STATZ", False),
    ("$SYS.REQ.USER.{}.INFO", "$SYS.REQ.USER.INFO", True),
)
"""Services of the system account that every account has: theirs, the name here, whether they learn who asks."""


def mappings(config: AccountConfig, domain: str) -> dict[str, list[dict[str, Any]]]:
    """Return the mappings by source, those of the domain too; weights add up along the destinations of a source."""
    shown = {one.source: _destinations(one) for one in config.mappings}
    if domain:
        for verb in _DOMAIN:
            subject = verb if verb.startswith("$") else f"{_API}.{verb}"
            shown[f"$JS.{domain}.API.{verb}"] = [{"subject": subject, "weight": 100}]
    return dict(sorted(shown.items()))


def _destinations(mapping: SubjectMap) -> list[dict[str, Any]]:
    weighted = sorted(mapping.destinations, key=lambda one: one.weight)
    rest = 100 - sum(one.weight for one in weighted)
    pairs = [(one.subject, one.weight) for one in weighted]
    if rest > 0 and all(subject != mapping.source for subject, _ in pairs):
        pairs = sorted([*pairs, (mapping.source, rest)], key=lambda pair: pair[1])
    shown, total = [], 0
    for subject, weight in pairs:
        total += weight
        shown.append({"subject": subject, "weight": total})
    return shown


def exports(config: AccountConfig) -> list[dict[str, Any]]:
    """Return services, then streams."""
    services = [_export(one) for one in config.exports if isinstance(one, ServiceExport)]
    return services + [_export(one) for one in config.exports if isinstance(one, StreamExport)]


def _export(export: ServiceExport | StreamExport) -> dict[str, Any]:
    service = isinstance(export, ServiceExport)
    shown: dict[str, Any] = {"subject": export.subject, "type": "service" if service else "stream"}
    if export.token_required:
        shown["token_req"] = True
    if isinstance(export, ServiceExport):
        shown["response_type"] = _RESPONSES[export.response]
        if export.response_threshold_ns != RESPONSE_THRESHOLD_NS:
            shown["response_threshold"] = export.response_threshold_ns
        if export.latency is not None:
            sampling = export.latency.sampling or "headers"
            shown["service_latency"] = {"sampling": sampling, "results": export.latency.subject}
    if export.account_token_position:
        shown["account_token_position"] = export.account_token_position
    return {**shown, "approved_accounts": list(export.accounts)} if export.accounts else shown


def imports(config: AccountConfig, system: str, jetstream: bool) -> list[dict[str, Any]]:
    """Return streams, then services; the last are those that every account has."""
    streams = [_stream(one) for one in config.imports if isinstance(one, StreamImport)]
    services = [
        _service(one.subject, one.account, one.to or one.subject, one.share)
        for one in config.imports
        if isinstance(one, ServiceImport)
    ]
    return streams + services + list(_built_in(config.name, system, jetstream))


def _built_in(name: str, system: str, jetstream: bool) -> Iterator[dict[str, Any]]:
    if name == system:
        return
    for subject, here, share in _BUILT_IN:
        yield _service(subject.format(name), system, here, share)
    if jetstream:
        yield _service(f"{_API}.>", system, f"{_API}.>", True)


def _stream(one: StreamImport) -> dict[str, Any]:
    shown = {"subject": one.subject, "account": one.account, "local_subject": one.to or one.subject, "type": "stream"}
    return {**shown, "invalid": False, "share": False, "tracking": False}


def _service(subject: str, account: str, here: str, share: bool) -> dict[str, Any]:
    shown = {"subject": subject, "account": account, "to": here, "local_subject": here, "type": "service"}
    return {**shown, "invalid": False, "share": share, "tracking": False}
