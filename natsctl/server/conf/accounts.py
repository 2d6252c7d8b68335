"""The block `accounts` of nats.conf: users, exports, imports, limits and subject mappings of each account.

Mappings of the global account stand at the top level of the file.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from natsctl.api.account import AccountLimits
from natsctl.api.codec import go_quote
from natsctl.api.subject_transform import TransformError
from natsctl.api.subjects import is_literal, is_valid_subject
from natsctl.broker.auth.permissions import Permissions
from natsctl.broker.imports.account_config import (
    GLOBAL_ACCOUNT,
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
)
from natsctl.broker.imports.import_plan import ImportPlan
from natsctl.broker.imports.mappings import compile_mapping
from natsctl.server.conf.authorization import permissions_of, users_of, with_permissions, with_users
from natsctl.server.conf.jetstream import account_limits
from natsctl.server.conf.syntax import Block, ConfError, Item
from natsctl.server.conf.values import block_of, duration_text_of, flag_of, items_of, number_of, shown, text_of
from natsctl.server.options import ServerOptions

_RESPONSES: Final[dict[str, ResponseType]] = {
    "single": "single", "singleton": "single", "stream": "stream", "chunk": "chunked", "chunked": "chunked",
}  # fmt: skip
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,9}\Z")
_BAD_SAMPLING: Final = "bad sampling percentage, should be 1-100"

Found = list[tuple[Any, Item]]
"""Exports or imports, with where each of them stands."""


def exports_of(item: Item) -> list[tuple[StreamExport | ServiceExport, Item]]:
    if not isinstance(item.value, list):
        raise item.fault(f"Exports should be an array, got {shown(item)}")
    return [(_export(entry), entry) for entry in item.value]


def imports_of(item: Item) -> list[tuple[StreamImport | ServiceImport, Item]]:
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
    allow_trace = flag_of(found["allow_trace"]) if "allow_trace" in found else False
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
            allow_trace=allow_trace,
        )
    if "stream" not in found:
        raise item.fault("an export needs a stream or a service")
    for name, word in (("response", "response"), ("threshold", "response"), *_SERVICE_WORDS):
        if name in found:
            raise found[name].fault(f"Detected {word} directive on non-service")
    return StreamExport(text_of(found["stream"]), accounts, position)


_SERVICE_WORDS: Final = (("latency", "latency"), ("allow_trace", "allow_trace"))


def _accounts(item: Item) -> tuple[str, ...] | None:
    """Return the accounts that may import, None for all of them, which an empty list means too."""
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
    if "allow_trace" in found and "service" in found:
        raise found["allow_trace"].fault("Detected allow_trace directive on a non-stream")
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
    allow_trace = flag_of(found["allow_trace"]) if "allow_trace" in found else False
    return StreamImport(account, subject, "" if to == subject else to, allow_trace=allow_trace)


def _prefixed(item: Item, subject: str) -> str:
    prefix = text_of(item)
    if not is_literal(prefix):
        text = "stream import prefix can not contain wildcard tokens"
        raise item.fault(f"Error adding stream import {go_quote(subject)}: {text}")
    return prefix + ("" if prefix.endswith(".") else ".") + subject


_READ: Final[dict[str, Callable[[Item], str]]] = {"account": text_of, "subject": text_of}


def _of_account(item: Item, what: str) -> tuple[str, str]:
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


def mappings_block(options: ServerOptions, item: Item) -> ServerOptions:
    before = next((one for one in options.accounts if one.name == GLOBAL_ACCOUNT), AccountConfig(GLOBAL_ACCOUNT))
    others = tuple(one for one in options.accounts if one.name != GLOBAL_ACCOUNT)
    return replace(options, accounts=(*others, replace(before, mappings=mappings_of(item))))


def mappings_of(item: Item) -> tuple[SubjectMap, ...]:
    block = block_of(item)
    return tuple(_mapping(source, value) for source, value in block.items() if source not in block.variables)


def _mapping(source: str, item: Item) -> SubjectMap:
    if not is_valid_subject(source):
        raise item.fault(f"Subject {go_quote(source)} is not a valid subject")
    if isinstance(item.value, str):
        mapping, what = SubjectMap(source, (Destination(item.value),)), f"{go_quote(source)} to {go_quote(item.value)}"
    else:
        entries = item.value if isinstance(item.value, list) else [item]
        found = [_destination(entry) for entry in entries]
        # One node is in no cluster, so that mappings for a named one are checked and left out.
        mapping, what = SubjectMap(source, tuple(to for to, cluster in found if not cluster)), go_quote(source)
    try:
        compile_mapping(mapping, random.Random())
    except TransformError as bad:
        raise item.fault(f"Error adding mapping for {what} : {bad}") from None
    return mapping


def _destination(item: Item) -> tuple[Destination, str]:
    if not isinstance(item.value, dict):
        raise item.fault("Expected an entry for the mapping destination")
    subject, cluster, weight = "", "", -1
    for key, value in item.value.items():
        match key.lower():
            case "dest" | "destination":
                subject = text_of(value)
            case "weight":
                weight = _weight(value)
            case "cluster":
                cluster = text_of(value)
            case _:
                raise value.fault(f"Unknown field {go_quote(key)} for mapping destination")
    if weight < 0:
        raise item.fault(f"Missing weight for mapping destination {go_quote(subject)}")
    return Destination(subject, weight), cluster


def _weight(item: Item) -> int:
    value = item.value
    if isinstance(value, str):
        text = value.removesuffix("%")
        if not _WHOLE.match(text):
            raise item.fault(f"Invalid weight {go_quote(text)} for mapping destination")
        value = int(text)
    if isinstance(value, bool) or not isinstance(value, int):
        raise item.fault(f"Unknown entry type for weight of {shown(item)}")
    if not 0 <= value <= 100:
        raise item.fault(f"Invalid weight {value} for mapping destination")
    return value


ACCOUNT_LIMIT_KEYS: Final = {
    "max_connections": "max_connections", "max_conn": "max_connections",
    "max_subscriptions": "max_subscriptions", "max_subs": "max_subscriptions",
    "max_payload": "max_payload", "max_pay": "max_payload",
    "max_leafnodes": "max_leafnodes", "max_leafs": "max_leafnodes",
}  # fmt: skip


class _Account(msgspec.Struct):
    """One account on its way from the file."""

    name: str
    users: Item | None = None
    permissions: Permissions | None = None
    jetstream: AccountLimits | None = None
    limits: ConnectionLimits = msgspec.field(default_factory=ConnectionLimits)
    exports: Found = msgspec.field(default_factory=list)
    imports: Found = msgspec.field(default_factory=list)
    mappings: tuple[Any, ...] = ()
    trace_dest: str = ""
    trace_sampling: int = 100

    def config(self) -> AccountConfig:
        exports, imports = (tuple(one for one, _ in found) for found in (self.exports, self.imports))
        return AccountConfig(
            self.name,
            self.jetstream,
            exports,
            imports,
            self.mappings,
            self.limits,
            trace_dest=self.trace_dest,
            trace_sampling=self.trace_sampling,
        )


def accounts_block(options: ServerOptions, item: Item) -> ServerOptions:
    if isinstance(item.value, list):
        return replace(options, accounts=(*options.accounts, *(AccountConfig(name) for name in _names(item))))
    if not isinstance(item.value, dict):
        raise item.fault(f"expected a block in braces, not {shown(item)}")
    block = item.value
    accounts = [_account(name, body) for name, body in block.items() if name not in block.variables]
    for account in accounts:
        options = _with_users(options, account)
    configs = tuple(account.config() for account in accounts)
    _refuse_problems(ImportPlan((AccountConfig(GLOBAL_ACCOUNT), *configs)), accounts, item)
    return replace(options, accounts=(*options.accounts, *configs))


def _names(item: Item) -> list[str]:
    names: list[str] = []
    for entry in items_of(item):
        name = text_of(entry)
        _refuse_reserved(name, entry)
        if name in names:
            raise entry.fault(f"Duplicate Account Entry: {name}")
        names.append(name)
    return names


def _refuse_reserved(name: str, item: Item) -> None:
    if name == GLOBAL_ACCOUNT:
        raise item.fault(f"{go_quote(name)} is a Reserved Account")


def _refuse_problems(plan: ImportPlan, accounts: list[_Account], item: Item) -> None:
    """Raise the first fault between accounts, with its place in the file."""
    for problem in plan.problems:
        places = (place for account in accounts for one, place in (*account.exports, *account.imports)
                  if one is problem.item)  # fmt: skip
        raise next(places, item).fault(problem.text)


def _account(name: str, item: Item) -> _Account:
    if not isinstance(item.value, dict):
        raise item.fault("Expected map entries for accounts")
    _refuse_reserved(name, item)
    account = _Account(name)
    for key, value in item.value.items():
        setter = ACCOUNT_KEYS.get(key.lower())
        if setter is not None:
            setter(account, value)
        elif key not in item.value.variables:
            raise value.fault(f"unknown field {go_quote(key)}")
    return account


def _with_users(options: ServerOptions, account: _Account) -> ServerOptions:
    if account.users is None:
        return options
    users = users_of(account.users, account.name)
    if users and options.user:
        raise account.users.fault("Can not have a single user/pass and accounts")
    if users and options.token:
        raise account.users.fault("Can not have a token and accounts")
    return with_users(options, with_permissions(users, account.permissions), account.users)


def _limits(account: _Account, item: Item) -> None:
    if not isinstance(item.value, dict):
        raise item.fault(f"Expected account limits to be a map/struct, got {shown(item)}")
    found: dict[str, int] = {}
    for key, value in item.value.items():
        name = ACCOUNT_LIMIT_KEYS.get(key.lower())
        if name is not None:
            found[name] = number_of(value)
        elif key not in item.value.variables:
            raise value.fault(f"Unknown field {go_quote(key)} parsing account limits")
    account.limits = ConnectionLimits(**found)


def _nkey(account: _Account, item: Item) -> None:
    """Check the key of an account; nothing here is signed with it."""
    from natsctl.api.jwt_token import is_public

    if not isinstance(item.value, str) or not is_public(item.value, "account"):
        raise item.fault(f"Not a valid public nkey for an account: {go_quote(str(item.value))}")


def _msg_trace(account: _Account, item: Item) -> None:
    if isinstance(item.value, str):
        account.trace_dest = _trace_dest(item, "msg_trace")
        return
    if not isinstance(item.value, dict):
        text = f'Expected account message trace "msg_trace" to be a string or a map/struct, got {shown(item)}'
        raise item.fault(text)
    for key, value in item.value.items():
        read = TRACE_KEYS.get(key.lower())
        if read is not None:
            read(account, value)
        elif key not in item.value.variables:
            text = f'Unknown field {go_quote(key)} parsing account message trace map/struct "msg_trace"'
            raise value.fault(text)


def _dest(account: _Account, item: Item) -> None:
    account.trace_dest = _trace_dest(item, "dest")


def _trace_dest(item: Item, key: str) -> str:
    if not isinstance(item.value, str):
        raise item.fault(f"Field {go_quote(key)} should be a string, got {shown(item)}")
    if not (is_valid_subject(item.value) and is_literal(item.value)):
        raise item.fault(f"Trace destination {go_quote(item.value)} is not valid")
    return item.value


def _trace_sampling(account: _Account, item: Item) -> None:
    value = item.value
    if isinstance(value, str):
        text = value.removesuffix("%")
        if not _WHOLE.match(text):
            raise item.fault(f"Invalid trace destination sampling value {go_quote(value)}")
        value = int(text)
    if isinstance(value, bool) or not isinstance(value, int):
        text = f'Trace destination sampling field "sampling" should be an integer or a percentage, got {shown(item)}'
        raise item.fault(text)
    if not 1 <= value <= 100:
        raise item.fault(f"Ttrace destination sampling value {value} is invalid, needs to be [1..100]")
    account.trace_sampling = value


TRACE_KEYS: Final[dict[str, Callable[[_Account, Item], None]]] = {"dest": _dest, "sampling": _trace_sampling}


def _users(account: _Account, item: Item) -> None:
    account.users = item


def _permissions(account: _Account, item: Item) -> None:
    account.permissions = permissions_of(item)


def _jetstream(account: _Account, item: Item) -> None:
    account.jetstream = account_limits(item)


def _exports(account: _Account, item: Item) -> None:
    account.exports += exports_of(item)


def _imports(account: _Account, item: Item) -> None:
    account.imports += imports_of(item)


def _mappings(account: _Account, item: Item) -> None:
    account.mappings += mappings_of(item)


ACCOUNT_KEYS: Final[dict[str, Callable[[_Account, Item], None]]] = {
    "nkey": _nkey, "users": _users, "default_permissions": _permissions, "jetstream": _jetstream,
    "exports": _exports, "imports": _imports, "mappings": _mappings, "maps": _mappings, "limits": _limits,
    "msg_trace": _msg_trace, "trace_dest": _msg_trace,
}  # fmt: skip
