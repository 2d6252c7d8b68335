"""The lists `exports` and `imports` of an account in nats.conf."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from natsctl.api.subjects import is_literal
from natsctl.api.syntax import go_quote
from natsctl.broker.exchange.account_config import (
    RESPONSE_THRESHOLD_NS,
    Latency,
    ResponseType,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from natsctl.server.conf.syntax import Block, ConfError, Item
from natsctl.server.conf.values import block_of, duration_text_of, flag_of, number_of, shown, text_of

_RESPONSES: Final[dict[str, ResponseType]] = {
    "single": "single", "singleton": "single", "stream": "stream", "chunk": "chunked", "chunked": "chunked",
}  # fmt: skip
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,9}\Z")
_BAD_SAMPLING: Final = "bad sampling percentage, should be 1-100"

Found = list[tuple[Any, Item]]
"""Exports or imports, with where each of them stands."""


def exports_of(item: Item) -> list[tuple[StreamExport | ServiceExport, Item]]:
    """Return what a list exports and where each is said; raises ConfError."""
    if not isinstance(item.value, list):
        raise item.fault(f"Exports should be an array, got {shown(item)}")
    return [(_export(entry), entry) for entry in item.value]


def imports_of(item: Item) -> list[tuple[StreamImport | ServiceImport, Item]]:
    """Return what a list imports and where each is said; raises ConfError."""
    if not isinstance(item.value, list):
        raise item.fault(f"Imports should be an array, got {shown(item)}")
    found = [(_import(entry), entry) for entry in item.value]
    seen: dict[tuple[str, str], ServiceImport] = {}
    for one, entry in found:
        if isinstance(one, ServiceImport):
            local = one.to or one.subject
            before = seen.setdefault((one.account, local), one)
            if before is not one:
                raise entry.fault(
                    f"Duplicate service import subject {go_quote(local)}, previously used in import for account "
                    f"{go_quote(before.account)}, subject {go_quote(before.subject)}"
                )
    return found


def _fields(item: Item, what: str, known: dict[str, str]) -> dict[str, Item]:
    """Return the values of a block by their field; raises ConfError for keys that are none."""
    if not isinstance(item.value, dict):
        raise item.fault(f"{what} Items should be a map with type entry, got {shown(item)}")
    found: dict[str, Item] = {}
    for key, value in item.value.items():
        field = known.get(key.lower())
        if field is None:
            if key in item.value.variables:
                continue
            raise value.fault(f"unknown field {go_quote(key)}")
        found[field] = value
    return found


# Exports

EXPORT_KEYS: Final = {
    "stream": "stream", "service": "service", "response": "response", "response_type": "response",
    "threshold": "threshold", "response_threshold": "threshold", "response_max_time": "threshold",
    "response_time": "threshold", "accounts": "accounts", "latency": "latency",
    "account_token_position": "position", "allow_trace": "allow_trace",
}  # fmt: skip


def _export(item: Item) -> StreamExport | ServiceExport:
    found = _fields(item, "Export", EXPORT_KEYS)
    accounts = _accounts(found["accounts"]) if "accounts" in found else None
    position = number_of(found["position"]) if "position" in found else 0
    if "allow_trace" in found and flag_of(found["allow_trace"]):
        raise _no_tracing(found["allow_trace"])
    if "service" in found:
        if "stream" in found:
            raise found["service"].fault(
                f"Detected service {go_quote(text_of(found['service']))} but already saw a stream"
            )
        return ServiceExport(
            text_of(found["service"]),
            accounts,
            _response(found["response"]) if "response" in found else "single",
            _threshold(found["threshold"]) if "threshold" in found else RESPONSE_THRESHOLD_NS,
            _latency(found["latency"]) if "latency" in found else None,
            position,
        )
    if "stream" not in found:
        raise item.fault("an export needs a stream or a service")
    for name, word in (("response", "response"), ("threshold", "response"), ("latency", "latency")):
        if name in found:
            raise found[name].fault(f"Detected {word} directive on non-service")
    return StreamExport(text_of(found["stream"]), accounts, position)


def _no_tracing(item: Item) -> ConfError:
    return item.fault("allow_trace: natsctl server traces messages within one account; use nats-server")


def _accounts(item: Item) -> tuple[str, ...] | None:
    """Return who may import, None for everybody, which an empty list means too."""
    if not isinstance(item.value, list):
        raise item.fault(f"expected a list of accounts, not {shown(item)}")
    return tuple(text_of(entry) for entry in item.value) or None


def _response(item: Item) -> ResponseType:
    kind = _RESPONSES.get(text_of(item).lower())
    if kind is None:
        raise item.fault(f"Unknown response type: {go_quote(text_of(item))}")
    return kind


def _threshold(item: Item) -> int:
    if not isinstance(item.value, str):
        raise item.fault(f"Expected response threshold to be a parseable time duration, got {shown(item)}")
    try:
        return round(duration_text_of(item, "threshold") * 1e9) or RESPONSE_THRESHOLD_NS
    except ConfError:
        text = go_quote(item.value)
        raise item.fault(f"Expected response threshold to be a parseable time duration, got {text}") from None


def _latency(item: Item) -> Latency:
    if isinstance(item.value, str):
        return Latency(item.value)
    if not isinstance(item.value, dict):
        raise item.fault(f"Expected latency entry to be a map/struct or string, got {shown(item)}")
    sampling = _sampling(item.value["sampling"]) if "sampling" in item.value else 100
    if "subject" not in item.value:
        raise item.fault("Latency subject required, but missing")
    return Latency(text_of(item.value["subject"]), sampling)


def _sampling(item: Item) -> int:
    """Return a percentage, 0 where headers of requests ask for a measurement."""
    value = item.value
    if isinstance(value, str):
        if value.strip().lower() == "headers":
            return 0
        text = value.removesuffix("%")
        if not _WHOLE.match(text):
            raise item.fault(f"Failed to parse latency sample: strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
        value = int(text)
    if isinstance(value, bool) or not isinstance(value, int):
        raise item.fault(f"Expected latency sample to be a string or map/struct, got {shown(item)}")
    if not 1 <= value <= 100:
        raise item.fault(_BAD_SAMPLING)
    return value


# Imports

IMPORT_KEYS: Final = {
    "stream": "stream", "service": "service", "prefix": "prefix", "to": "to", "share": "share",
    "allow_trace": "allow_trace",
}  # fmt: skip


def _import(item: Item) -> StreamImport | ServiceImport:
    found = _fields(item, "Import", IMPORT_KEYS)
    if "allow_trace" in found and ("service" in found or flag_of(found["allow_trace"])):
        if "service" in found:
            raise found["allow_trace"].fault("Detected allow_trace directive on a non-stream")
        raise _no_tracing(found["allow_trace"])
    to = text_of(found["to"]) if "to" in found else ""
    if "service" in found:
        if "stream" in found:
            raise found["service"].fault("Detected service but already saw a stream")
        account, subject = _of_account(found["service"], "Service")
        share = flag_of(found["share"]) if "share" in found else False
        return ServiceImport(account, subject, "" if to == subject else to, share)
    if "stream" not in found:
        raise item.fault("an import needs a stream or a service")
    account, subject = _of_account(found["stream"], "Stream")
    if "prefix" in found and text_of(found["prefix"]):
        if to:
            raise found["to"].fault("Stream import can not have a 'prefix' and a 'to' property")
        to = _prefixed(found["prefix"], subject)
    return StreamImport(account, subject, "" if to == subject else to)


def _prefixed(item: Item, subject: str) -> str:
    prefix = text_of(item)
    if not is_literal(prefix):
        text = "stream import prefix can not contain wildcard tokens"
        raise item.fault(f"Error adding stream import {go_quote(subject)}: {text}")
    return prefix + ("" if prefix.endswith(".") else ".") + subject


_READ: Final[dict[str, Callable[[Item], str]]] = {"account": text_of, "subject": text_of}


def _of_account(item: Item, what: str) -> tuple[str, str]:
    """Return which account is imported from, and which of its subjects."""
    if not isinstance(item.value, dict):
        raise item.fault(f"{what} entry should be an account map, got {shown(item)}")
    block: Block = block_of(item)
    found = {"account": "", "subject": ""}
    for key, value in block.items():
        read = _READ.get(key.lower())
        if read is None:
            if key in block.variables:
                continue
            raise value.fault(f"unknown field {go_quote(key)}")
        found[key.lower()] = read(value)
    if not (found["account"] and found["subject"]):
        raise item.fault("Expect an account name and a subject")
    return found["account"], found["subject"]
