"""The block `accounts` of nats.conf: users, exports, imports, limits and subject mappings of each account.

Mappings of the global account are at the top level of the file.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from natsctl.api.codec import go_quote
from natsctl.api.subject_index import finish
from natsctl.api.subject_transform import TransformError
from natsctl.api.subjects import is_literal, is_valid_subject
from natsctl.broker.auth.permissions import SubjectPermissions
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
from natsctl.broker.imports.mappings import compiling_shares
from natsctl.server.conf.authorization import permissions_of, users_of, with_permissions, with_users
from natsctl.server.conf.jetstream import account_limits
from natsctl.server.conf.syntax import ConfError, ConfItem
from natsctl.server.conf.values import (
    Reader,
    block_of,
    duration_text_of,
    entries,
    fields_of,
    flag_of,
    items_of,
    keyed,
    list_of,
    number_of,
    percentage_of,
    shown,
    text_of,
)
from natsctl.server.options import ServerOptions

_RESPONSES: Final[dict[str, ResponseType]] = {
    "single": "single", "singleton": "single", "stream": "stream", "chunk": "chunked", "chunked": "chunked",
}  # fmt: skip
_BAD_SAMPLING: Final = "bad sampling percentage, should be 1-100"

Placed = list[tuple[Any, ConfItem]]
"""Exports or imports, each with its place in the file."""


def exports_of(item: ConfItem) -> Placed:
    return [(_export(entry), entry) for entry in list_of(item, "Exports should be an array, got {}")]


def imports_of(item: ConfItem) -> Placed:
    imports = [(_import(entry), entry) for entry in list_of(item, "Imports should be an array, got {}")]
    seen: dict[tuple[str, str], ServiceImport] = {}
    for imported, entry in imports:
        if isinstance(imported, ServiceImport):
            local = imported.to or imported.subject
            before = seen.setdefault((imported.account, local), imported)
            if before is not imported:
                raise entry.fault(
                    f"Duplicate service import subject {go_quote(local)}, previously used in import for account "
                    f"{go_quote(before.account)}, subject {go_quote(before.subject)}"
                )
    return imports


# Exports


def _export(item: ConfItem) -> StreamExport | ServiceExport:
    fields = fields_of(item, EXPORT_KEYS, "Export Items should be a map with type entry, got {}")
    places = {field: value for (field, _), value in entries(item, EXPORT_KEYS)}
    service, stream = fields.pop("service", None), fields.pop("stream", None)
    if service is not None:
        if stream is not None:
            raise places["service"].fault(f"Detected service {go_quote(service)} but already saw a stream")
        return ServiceExport(service, **fields)
    if stream is None:
        raise item.fault("an export needs a stream or a service")
    for field, word in _SERVICE_WORDS:
        if field in fields:
            raise places[field].fault(f"Detected {word} directive on non-service")
    return StreamExport(stream, **fields)


_SERVICE_WORDS: Final = (
    ("response", "response"), ("response_threshold_ns", "response"), ("latency", "latency"),
    ("allow_trace", "allow_trace"),
)  # fmt: skip


def _accounts(item: ConfItem) -> tuple[str, ...] | None:
    """Return the accounts that may import, None for all of them (also for an empty list)."""
    return tuple(text_of(entry) for entry in list_of(item, "expected a list of accounts, not {}")) or None


def _response(item: ConfItem) -> ResponseType:
    kind = _RESPONSES.get(text_of(item).lower())
    if kind is None:
        raise item.fault(f"Unknown response type: {go_quote(text_of(item))}")
    return kind


def _threshold(item: ConfItem) -> int:
    if not isinstance(item.value, str):
        raise item.fault(f"Expected response threshold to be a parseable time duration, got {shown(item)}")
    try:
        return round(duration_text_of(item, "threshold") * 1e9) or RESPONSE_THRESHOLD_NS
    except ConfError:
        text = go_quote(item.value)
        raise item.fault(f"Expected response threshold to be a parseable time duration, got {text}") from None


def _latency(item: ConfItem) -> Latency:
    if isinstance(item.value, str):
        return Latency(item.value)
    if not isinstance(item.value, dict):
        raise item.fault(f"Expected latency entry to be a map/struct or string, got {shown(item)}")
    sampling = _sampling(item.value["sampling"]) if "sampling" in item.value else 100
    if "subject" not in item.value:
        raise item.fault("Latency subject required, but missing")
    return Latency(text_of(item.value["subject"]), sampling)


def _sampling(item: ConfItem) -> int:
    """Return a percentage, 0 where headers of requests ask for a measurement."""
    if isinstance(item.value, str) and item.value.strip().lower() == "headers":
        return 0
    malformed = "Failed to parse latency sample: strconv.Atoi: parsing {}: invalid syntax"
    value = percentage_of(item, malformed, "Expected latency sample to be a string or map/struct, got {}")
    if not 1 <= value <= 100:
        raise item.fault(_BAD_SAMPLING)
    return value


EXPORT_KEYS: Final[dict[str, Reader]] = keyed(
    ("stream", ("stream", text_of)),
    ("service", ("service", text_of)),
    ("response response_type", ("response", _response)),
    ("threshold response_threshold response_max_time response_time", ("response_threshold_ns", _threshold)),
    ("accounts", ("accounts", _accounts)),
    ("latency", ("latency", _latency)),
    ("account_token_position", ("account_token_position", number_of)),
    ("allow_trace", ("allow_trace", flag_of)),
)

# Imports


def _import(item: ConfItem) -> StreamImport | ServiceImport:
    fields = fields_of(item, IMPORT_KEYS, "Import Items should be a map with type entry, got {}")
    places = {field: value for (field, _), value in entries(item, IMPORT_KEYS)}
    service, stream, to = fields.get("service"), fields.get("stream"), fields.get("to", "")
    if service is not None:
        if "allow_trace" in fields:
            raise places["allow_trace"].fault("Detected allow_trace directive on a non-stream")
        if stream is not None:
            raise places["service"].fault("Detected service but already saw a stream")
        account, subject = service
        return ServiceImport(account, subject, "" if to == subject else to, fields.get("share", False))
    if stream is None:
        raise item.fault("an import needs a stream or a service")
    account, subject = stream
    if fields.get("prefix"):
        if to:
            raise places["to"].fault("Stream import can not have a 'prefix' and a 'to' property")
        to = _prefixed(places["prefix"], subject)
    return StreamImport(account, subject, "" if to == subject else to, allow_trace=fields.get("allow_trace", False))


def _prefixed(item: ConfItem, subject: str) -> str:
    prefix = text_of(item)
    if not is_literal(prefix):
        text = "stream import prefix can not contain wildcard tokens"
        raise item.fault(f"Error adding stream import {go_quote(subject)}: {text}")
    return prefix + ("" if prefix.endswith(".") else ".") + subject


def _of_account(what: str, item: ConfItem) -> tuple[str, str]:
    fields = fields_of(item, ORIGIN_KEYS, f"{what} entry should be an account map, got {{}}")
    if not (fields.get("account") and fields.get("subject")):
        raise item.fault("Expect an account name and a subject")
    return fields["account"], fields["subject"]


ORIGIN_KEYS: Final[dict[str, Reader]] = {"account": ("account", text_of), "subject": ("subject", text_of)}
IMPORT_KEYS: Final[dict[str, Reader]] = {
    "stream": ("stream", partial(_of_account, "Stream")),
    "service": ("service", partial(_of_account, "Service")),
    "prefix": ("prefix", text_of),
    "to": ("to", text_of),
    "share": ("share", flag_of),
    "allow_trace": ("allow_trace", flag_of),
}


def mappings_block(options: ServerOptions, item: ConfItem) -> ServerOptions:
    before = next(
        (account for account in options.accounts if account.name == GLOBAL_ACCOUNT), AccountConfig(GLOBAL_ACCOUNT)
    )
    others = tuple(account for account in options.accounts if account.name != GLOBAL_ACCOUNT)
    return replace(options, accounts=(*others, replace(before, mappings=mappings_of(item))))


def mappings_of(item: ConfItem) -> tuple[SubjectMap, ...]:
    block = block_of(item)
    return tuple(_mapping(source, value) for source, value in block.items() if source not in block.variables)


def _mapping(source: str, item: ConfItem) -> SubjectMap:
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
        finish(compiling_shares(mapping))
    except TransformError as bad:
        raise item.fault(f"Error adding mapping for {what} : {bad}") from None
    return mapping


def _destination(item: ConfItem) -> tuple[Destination, str]:
    fields = fields_of(
        item, DESTINATION_KEYS, "Expected an entry for the mapping destination",
        "Unknown field {} for mapping destination",
    )  # fmt: skip
    subject = fields.get("subject", "")
    if fields.get("weight", -1) < 0:
        raise item.fault(f"Missing weight for mapping destination {go_quote(subject)}")
    return Destination(subject, fields["weight"]), fields.get("cluster", "")


def _weight(item: ConfItem) -> int:
    value = percentage_of(item, "Invalid weight {} for mapping destination", "Unknown entry type for weight of {}")
    if not 0 <= value <= 100:
        raise item.fault(f"Invalid weight {value} for mapping destination")
    return value


DESTINATION_KEYS: Final[dict[str, Reader]] = keyed(
    ("dest destination", ("subject", text_of)),
    ("weight", ("weight", _weight)),
    ("cluster", ("cluster", text_of)),
)
ACCOUNT_LIMIT_KEYS: Final[dict[str, Reader]] = keyed(
    ("max_connections max_conn", ("max_connections", number_of)),
    ("max_subscriptions max_subs", ("max_subscriptions", number_of)),
    ("max_payload max_pay", ("max_payload", number_of)),
    ("max_leafnodes max_leafs", ("max_leafnodes", number_of)),
)


class _Account(NamedTuple):
    """One account of the file, its users, and the places of its exports and imports."""

    config: AccountConfig
    users: ConfItem | None
    permissions: SubjectPermissions | None
    placed: Placed


def accounts_block(options: ServerOptions, item: ConfItem) -> ServerOptions:
    if isinstance(item.value, list):
        return replace(options, accounts=(*options.accounts, *(AccountConfig(name) for name in _names(item))))
    block = block_of(item)
    accounts = [_account(name, body) for name, body in block.items() if name not in block.variables]
    for account in accounts:
        options = _with_users(options, account)
    configs = tuple(account.config for account in accounts)
    _refuse_problems(ImportPlan((AccountConfig(GLOBAL_ACCOUNT), *configs)), accounts, item)
    return replace(options, accounts=(*options.accounts, *configs))


def _names(item: ConfItem) -> list[str]:
    names: list[str] = []
    for entry in items_of(item):
        name = text_of(entry)
        _refuse_reserved(name, entry)
        if name in names:
            raise entry.fault(f"Duplicate Account Entry: {name}")
        names.append(name)
    return names


def _refuse_reserved(name: str, item: ConfItem) -> None:
    if name == GLOBAL_ACCOUNT:
        raise item.fault(f"{go_quote(name)} is a Reserved Account")


def _refuse_problems(plan: ImportPlan, accounts: list[_Account], item: ConfItem) -> None:
    """Raise the first fault between accounts, with its place in the file."""
    for problem in plan.problems:
        places = (place for account in accounts for shared, place in account.placed if shared is problem.item)
        raise next(places, item).fault(problem.text)


def _account(name: str, item: ConfItem) -> _Account:
    _refuse_reserved(name, item)
    fields = fields_of(item, ACCOUNT_KEYS, "Expected map entries for accounts")
    exports, imports = fields.pop("exports", []), fields.pop("imports", [])
    users, permissions = fields.pop("users", None), fields.pop("permissions", None)
    fields["mappings"] = fields.pop("mappings", ()) + fields.pop("maps", ())
    config = AccountConfig(
        name, exports=tuple(export for export, _ in exports), imports=tuple(each for each, _ in imports), **fields
    )
    return _Account(config, users, permissions, [*exports, *imports])


def _with_users(options: ServerOptions, account: _Account) -> ServerOptions:
    if account.users is None:
        return options
    users = users_of(account.users, account.config.name)
    if users and options.user:
        raise account.users.fault("Can not have a single user/pass and accounts")
    if users and options.token:
        raise account.users.fault("Can not have a token and accounts")
    return with_users(options, with_permissions(users, account.permissions), account.users)


def _limits(item: ConfItem) -> ConnectionLimits:
    expected, unknown = "Expected account limits to be a map/struct, got {}", "Unknown field {} parsing account limits"
    return ConnectionLimits(**fields_of(item, ACCOUNT_LIMIT_KEYS, expected, unknown))


def _check_nkey(item: ConfItem) -> dict[str, Any]:
    """Check the key of an account; nothing here is signed with it."""
    from natsctl.api.jwt_token import is_public

    if not isinstance(item.value, str) or not is_public(item.value, "account"):
        raise item.fault(f"Not a valid public nkey for an account: {go_quote(str(item.value))}")
    return {}


def _msg_trace(item: ConfItem) -> dict[str, Any]:
    if isinstance(item.value, str):
        return {"trace_dest": _trace_dest(item, "msg_trace")}
    expected = 'Expected account message trace "msg_trace" to be a string or a map/struct, got {}'
    return fields_of(
        item, TRACE_KEYS, expected, 'Unknown field {} parsing account message trace map/struct "msg_trace"'
    )


def _trace_dest(item: ConfItem, key: str = "dest") -> str:
    if not isinstance(item.value, str):
        raise item.fault(f"Field {go_quote(key)} should be a string, got {shown(item)}")
    if not (is_valid_subject(item.value) and is_literal(item.value)):
        raise item.fault(f"Trace destination {go_quote(item.value)} is not valid")
    return item.value


def _trace_sampling(item: ConfItem) -> int:
    mistyped = 'Trace destination sampling field "sampling" should be an integer or a percentage, got {}'
    value = percentage_of(item, "Invalid trace destination sampling value {1}", mistyped)
    if not 1 <= value <= 100:
        raise item.fault(f"Ttrace destination sampling value {value} is invalid, needs to be [1..100]")
    return value


TRACE_KEYS: Final[dict[str, Reader]] = {
    "dest": ("trace_dest", _trace_dest),
    "sampling": ("trace_sampling", _trace_sampling),
}
ACCOUNT_KEYS: Final[dict[str, Reader]] = keyed(
    ("nkey", ("", _check_nkey)),
    ("users", ("users", lambda item: item)),
    ("default_permissions", ("permissions", permissions_of)),
    ("jetstream", ("jetstream", account_limits)),
    ("exports", ("exports", exports_of)),
    ("imports", ("imports", imports_of)),
    ("mappings", ("mappings", mappings_of)),
    ("maps", ("maps", mappings_of)),
    ("limits", ("limits", _limits)),
    ("msg_trace trace_dest", ("", _msg_trace)),
)
