"""The block `authorization` of nats.conf: users, permissions of users and accounts, authentication callouts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from natsctl.api.codec import go_quote
from natsctl.api.subjects import is_valid_subject
from natsctl.broker.auth.permissions import ResponseRule, SubjectPermissions, SubjectRules
from natsctl.broker.auth.static_auth import CONNECTION_TYPES, User
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.server.conf.syntax import ConfItem
from natsctl.server.conf.values import (
    Reader,
    duration_text_of,
    entries,
    fields_of,
    flag_of,
    items_of,
    keyed,
    list_of,
    number_of,
    seconds_of,
    text_of,
)
from natsctl.server.options import ServerOptions

if TYPE_CHECKING:
    from natsctl.api.jwt_token import Kind
    from natsctl.broker.jwt.callout import CalloutSettings


def permissions_of(item: ConfItem) -> SubjectPermissions:
    expected, unknown = "Expected permissions to be a map/struct", "Unknown field {} parsing permissions"
    return SubjectPermissions(**fields_of(item, PERMISSION_KEYS, expected, unknown))


def _rules(item: ConfItem, *, queues: bool) -> SubjectRules:
    """Return the rules of one direction: a subject, a list of them, or allowed and denied subjects."""
    if not isinstance(item.value, dict):
        return SubjectRules(_subjects(item, queues=queues) or None)
    unknown = "Unknown field name {} parsing subject permissions, only 'allow' or 'deny' are permitted"
    rules = entries(item, RULE_KEYS, unknown=unknown)
    found = {name: _subjects(value, queues=queues) for name, value in rules}
    return SubjectRules(found.get("allow") or None, found.get("deny", ()))


def _subjects(item: ConfItem, *, queues: bool) -> tuple[str, ...]:
    if not isinstance(item.value, (str, list)):
        raise item.fault("Expected subject permissions to be a subject, or array of subjects")
    entries = item.value if isinstance(item.value, list) else [item]
    return tuple(_subject(entry, queues=queues) for entry in entries)


def _subject(item: ConfItem, *, queues: bool) -> str:
    """Return a subject, or `subject queue`; raises ConfError."""
    if not isinstance(item.value, str):
        raise item.fault("Subject in permissions array cannot be cast to string")
    text = item.value
    if is_valid_subject(text):
        return text
    fields = text.split()
    if not queues or len(fields) != 2:
        raise item.fault(f"subject {go_quote(text)} is not a valid subject")
    for field, name in zip(fields, ("subject", "queue"), strict=True):
        if not is_valid_subject(field):
            raise item.fault(f"{name} {go_quote(field)} is not a valid {name}")
    return text


def _responses(item: ConfItem) -> ResponseRule | None:
    if isinstance(item.value, bool):
        return ResponseRule() if item.value else None
    expected = "error parsing response permissions, expected a boolean or a map"
    fields = fields_of(item, RESPONSE_KEYS, expected, "Unknown field {} parsing permissions")
    return ResponseRule(**{name: value for name, value in fields.items() if value})


def _expiry(item: ConfItem) -> int:
    """Return nanoseconds; below zero: never."""
    if not isinstance(item.value, str):
        raise item.fault("error parsing expires, not a duration string")
    return round(duration_text_of(item, "expires") * 1e9)


PERMISSION_KEYS: Final[dict[str, Reader]] = keyed(
    ("pub publish import", ("publish", partial(_rules, queues=False))),
    ("sub subscribe export", ("subscribe", partial(_rules, queues=True))),
    ("allow_responses publish_allow_responses", ("responses", _responses)),
)
RULE_KEYS: Final = {"allow": "allow", "deny": "deny"}
RESPONSE_KEYS: Final[dict[str, Reader]] = keyed(
    ("max max_msgs max_messages max_responses", ("max_msgs", number_of)),
    ("expires expiration ttl", ("expires_ns", _expiry)),
)


def proxies_block(options: ServerOptions, item: ConfItem) -> ServerOptions:
    return replace(options, **fields_of(item, PROXIES_KEYS, "expected proxies to be a map/struct, got {}"))


def _trusted(item: ConfItem) -> tuple[str, ...]:
    fault = "expected proxies' trusted field to be an array, got {}"
    return tuple(_proxy_key(entry) for entry in list_of(item, fault))


def _proxy_key(item: ConfItem) -> str:
    from natsctl.api.jwt_token import is_public

    found = ""
    for _, value in entries(item, PROXY_KEYS, "expected proxies' trusted entry to be a map/struct, got {}"):
        found = text_of(value)
        if not is_public(found):
            raise value.fault(f"invalid proxy key {go_quote(found)}")
    if not found:
        raise item.fault('proxy trusted key "" is invalid')
    return found


PROXIES_KEYS: Final[dict[str, Reader]] = {"trusted": ("trusted_proxies", _trusted)}
PROXY_KEYS: Final = {"key": True, "public_key": True}


def users_of(item: ConfItem, account: str) -> tuple[User, ...]:
    return tuple(_user(entry, account) for entry in list_of(item, "Expected users field to be an array"))


def with_permissions(users: Sequence[User], permissions: SubjectPermissions | None) -> tuple[User, ...]:
    if permissions is None:
        return tuple(users)
    return tuple(replace(user, permissions=user.permissions or permissions) for user in users)


def with_users(options: ServerOptions, users: Sequence[User], item: ConfItem) -> ServerOptions:
    known = {user.identity for user in options.users}
    for user in users:
        if user.identity in known:
            raise item.fault(f"Duplicate {'nkey' if user.nkey else 'user'} {go_quote(user.identity)} detected")
        known.add(user.identity)
    return replace(options, users=(*options.users, *users))


def _user(item: ConfItem, account: str) -> User:
    from natsctl.api.jwt_token import is_public

    fields = fields_of(item, USER_KEYS, "Expected user entry to be a map/struct")
    user = User(**{"name": "", "password": "", "account": account, **fields})
    if not user.nkey:
        if not user.name:
            raise item.fault("User entry requires a user")
        return user
    if not is_public(user.nkey, "user"):
        raise item.fault("Not a valid public nkey for a user")
    if user.name or user.password:
        raise item.fault("Nkey users do not take usernames or passwords")
    return user


def _connection_types(item: ConfItem) -> frozenset[str]:
    names = [text_of(entry).upper() for entry in items_of(item)]
    unknown = [name for name in names if name not in CONNECTION_TYPES]
    if unknown:
        raise item.fault(f"invalid connection types [{' '.join(go_quote(name) for name in unknown)}]")
    return frozenset(names)


USER_KEYS: Final[dict[str, Reader]] = keyed(
    ("user username", ("name", text_of)),
    ("pass password", ("password", text_of)),
    ("nkey", ("nkey", text_of)),
    ("permissions permission authorization", ("permissions", permissions_of)),
    ("allowed_connection_types connection_types clients", ("connection_types", _connection_types)),
    ("proxy_required", ("proxy_required", flag_of)),
)


def callout_of(item: ConfItem) -> CalloutSettings:
    from natsctl.broker.jwt.callout import CalloutSettings

    expected = "Expected authorization callout to be a map/struct"
    unknown = "Unknown field {} parsing authorization callout"
    callout = CalloutSettings(**{"issuer": "", "auth_users": (), **fields_of(item, CALLOUT_KEYS, expected, unknown)})
    if not callout.issuer:
        raise item.fault("Authorization callouts require an issuer to be specified")
    if not callout.auth_users:
        raise item.fault("Authorization callouts require authorized users to be specified")
    return callout


def _callout_key(kind: Kind, fault: str, item: ConfItem) -> str:
    from natsctl.api.jwt_token import is_public

    key = text_of(item)
    if not is_public(key, kind):
        raise item.fault(f"{fault}, got {go_quote(key)}")
    return key


def _callout_names(name: str, item: ConfItem) -> tuple[str, ...]:
    return tuple(text_of(entry) for entry in list_of(item, f"Expected {name} field to be an array"))


CALLOUT_KEYS: Final[dict[str, Reader]] = keyed(
    ("issuer", ("issuer", partial(_callout_key, "account", "Expected callout user to be a valid public account nkey"))),
    ("account acc", ("account", lambda item: text_of(item) or GLOBAL_ACCOUNT)),
    ("auth_users users", ("auth_users", partial(_callout_names, "auth_users"))),
    ("xkey key", ("xkey", partial(_callout_key, "curve", "Expected callout xkey to be a valid public xkey"))),
    ("allowed_accounts", ("allowed_accounts", partial(_callout_names, "allowed accounts"))),
)


def authorization_block(options: ServerOptions, item: ConfItem) -> ServerOptions:
    fields = fields_of(item, AUTHORIZATION_KEYS)
    users, permissions = fields.pop("users", None), fields.pop("permissions", None)
    options = replace(options, **fields)
    if (options.user or options.password) and options.token:
        raise item.fault("Cannot have a user/pass and token")
    if users is not None or options.users:
        if options.user:
            raise item.fault("Can not have a single user/pass and a users array")
        if options.token:
            raise item.fault("Can not have a token and a users array")
    return with_users(options, with_permissions(users or (), permissions), item)


AUTHORIZATION_KEYS: Final[dict[str, Reader]] = keyed(
    ("user username", ("user", text_of)),
    ("pass password", ("password", text_of)),
    ("token", ("token", text_of)),
    ("timeout", ("auth_timeout_s", seconds_of)),
    ("users", ("users", lambda item: users_of(item, GLOBAL_ACCOUNT))),
    ("default_permissions default_permission permissions", ("permissions", permissions_of)),
    ("auth_callout auth_hook", ("auth_callout", callout_of)),
    ("proxy_required", ("proxy_required", flag_of)),
)
