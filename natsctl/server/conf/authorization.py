"""The block `authorization` of nats.conf: users, their permissions and those of accounts, authentication callouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from natsctl.api.codec import go_quote
from natsctl.api.subjects import is_valid_subject
from natsctl.broker.auth.permissions import Permissions, ResponseRule, SubjectRules
from natsctl.broker.auth.static_auth import CONNECTION_TYPES, User
from natsctl.broker.imports.account_config import GLOBAL_ACCOUNT
from natsctl.server.conf.syntax import Block, Item
from natsctl.server.conf.values import (
    block_of,
    duration_text_of,
    flag_of,
    items_of,
    number_of,
    seconds_of,
    shown,
    text_of,
)
from natsctl.server.options import ServerOptions

if TYPE_CHECKING:
    from natsctl.broker.jwt.callout import CalloutSettings


def permissions_of(item: Item) -> Permissions:
    if not isinstance(item.value, dict):
        raise item.fault("Expected permissions to be a map/struct")
    publish, subscribe = SubjectRules(), SubjectRules()
    responses: ResponseRule | None = None
    for key, value in item.value.items():
        match key.lower():
            case "pub" | "publish" | "import":
                publish = _rules(value, queues=False)
            case "sub" | "subscribe" | "export":
                subscribe = _rules(value, queues=True)
            case "allow_responses" | "publish_allow_responses":
                responses = _responses(value)
            case _:
                _refuse_unknown(item.value, key, value, "parsing permissions")
    return Permissions(publish, subscribe, responses)


def _rules(item: Item, *, queues: bool) -> SubjectRules:
    """Return the rules of one direction: a subject, a list of them, or allowed and denied subjects."""
    if not isinstance(item.value, dict):
        return SubjectRules(_subjects(item, queues=queues) or None)
    found: dict[str, tuple[str, ...]] = {}
    for key, value in item.value.items():
        if key.lower() in ("allow", "deny"):
            found[key.lower()] = _subjects(value, queues=queues)
        elif key not in item.value.variables:
            raise value.fault(
                f"Unknown field name {go_quote(key)} parsing subject permissions, only 'allow' or 'deny' are permitted"
            )
    return SubjectRules(found.get("allow") or None, found.get("deny", ()))


def _subjects(item: Item, *, queues: bool) -> tuple[str, ...]:
    if not isinstance(item.value, (str, list)):
        raise item.fault("Expected subject permissions to be a subject, or array of subjects")
    entries = item.value if isinstance(item.value, list) else [item]
    return tuple(_subject(entry, queues=queues) for entry in entries)


def _subject(item: Item, *, queues: bool) -> str:
    """Return a subject, or `subject queue` where that is meant; raises ConfError."""
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


def _responses(item: Item) -> ResponseRule | None:
    if isinstance(item.value, bool):
        return ResponseRule() if item.value else None
    if not isinstance(item.value, dict):
        raise item.fault("error parsing response permissions, expected a boolean or a map")
    usual = ResponseRule()
    most, expires_ns = usual.max_msgs, usual.expires_ns
    for key, value in block_of(item).items():
        match key.lower():
            case "max" | "max_msgs" | "max_messages" | "max_responses":
                most = number_of(value) or most
            case "expires" | "expiration" | "ttl":
                expires_ns = _expiry(value) or expires_ns
            case _:
                _refuse_unknown(item.value, key, value, "parsing permissions")
    return ResponseRule(most, expires_ns)


def _expiry(item: Item) -> int:
    """Return nanoseconds; below zero: never."""
    if not isinstance(item.value, str):
        raise item.fault("error parsing expires, not a duration string")
    return round(duration_text_of(item, "expires") * 1e9)


def _refuse_unknown(block: Block, key: str, value: Item, where: str) -> None:
    if key not in block.variables:
        raise value.fault(f"Unknown field {go_quote(key)} {where}")


def proxies_block(options: ServerOptions, item: Item) -> ServerOptions:
    if not isinstance(item.value, dict):
        raise item.fault(f"expected proxies to be a map/struct, got {shown(item)}")
    for key, value in item.value.items():
        if key.lower() == "trusted":
            options = replace(options, trusted_proxies=_trusted(value))
        elif key not in item.value.variables:
            raise value.fault(f"unknown field {go_quote(key)}")
    return options


def _trusted(item: Item) -> tuple[str, ...]:
    if not isinstance(item.value, list):
        raise item.fault(f"expected proxies' trusted field to be an array, got {shown(item)}")
    found = []
    for entry in item.value:
        if not isinstance(entry.value, dict):
            raise entry.fault(f"expected proxies' trusted entry to be a map/struct, got {shown(entry)}")
        found.append(_proxy_key(entry, block_of(entry)))
    return tuple(found)


def _proxy_key(entry: Item, block: Block) -> str:
    from natsctl.api.jwt_token import is_public

    found = ""
    for key, value in block.items():
        if key.lower() in ("key", "public_key"):
            found = text_of(value)
            if not is_public(found):
                raise value.fault(f"invalid proxy key {go_quote(found)}")
        elif key not in block.variables:
            raise value.fault(f"unknown field {go_quote(key)}")
    if not found:
        raise entry.fault('proxy trusted key "" is invalid')
    return found


def users_of(item: Item, account: str) -> tuple[User, ...]:
    if not isinstance(item.value, list):
        raise item.fault("Expected users field to be an array")
    return tuple(_user(entry, account) for entry in item.value)


def with_permissions(users: Sequence[User], permissions: Permissions | None) -> tuple[User, ...]:
    """Return the users, with the default permissions for those without their own."""
    if permissions is None:
        return tuple(users)
    return tuple(replace(user, permissions=user.permissions or permissions) for user in users)


def with_users(options: ServerOptions, users: Sequence[User], item: Item) -> ServerOptions:
    """Return `options` with more users; raises ConfError at `item` where one is there already."""
    known = {user.identity for user in options.users}
    for user in users:
        if user.identity in known:
            raise item.fault(f"Duplicate {'nkey' if user.nkey else 'user'} {go_quote(user.identity)} detected")
        known.add(user.identity)
    return replace(options, users=(*options.users, *users))


def _user(item: Item, account: str) -> User:
    if not isinstance(item.value, dict):
        raise item.fault("Expected user entry to be a map/struct")
    user, password = User("", "", account), False
    for key, value in item.value.items():
        match key.lower():
            case "user" | "username":
                user = replace(user, name=text_of(value))
            case "pass" | "password":
                user, password = replace(user, password=text_of(value)), True
            case "nkey":
                user = replace(user, nkey=text_of(value))
            case "permissions" | "permission" | "authorization":
                user = replace(user, permissions=permissions_of(value))
            case "allowed_connection_types" | "connection_types" | "clients":
                user = replace(user, connection_types=_connection_types(value))
            case "proxy_required":
                user = replace(user, proxy_required=flag_of(value))
            case _:
                if key not in item.value.variables:
                    raise value.fault(f"unknown field {go_quote(key)}")
    return _checked(item, user, password)


def _checked(item: Item, user: User, has_password: bool) -> User:
    from natsctl.api.jwt_token import is_public

    if not user.nkey:
        if not user.name:
            raise item.fault("User entry requires a user")
        return user
    if not is_public(user.nkey, "user"):
        raise item.fault("Not a valid public nkey for a user")
    if user.name or (has_password and user.password):
        raise item.fault("Nkey users do not take usernames or passwords")
    return user


def _connection_types(item: Item) -> frozenset[str]:
    names = [text_of(entry).upper() for entry in items_of(item)]
    unknown = [name for name in names if name not in CONNECTION_TYPES]
    if unknown:
        raise item.fault(f"invalid connection types [{' '.join(go_quote(name) for name in unknown)}]")
    return frozenset(names)


def callout_of(item: Item) -> CalloutSettings:
    from natsctl.api.jwt_token import is_public
    from natsctl.broker.jwt.callout import CalloutSettings

    if not isinstance(item.value, dict):
        raise item.fault("Expected authorization callout to be a map/struct")
    found = CalloutSettings(issuer="", auth_users=())
    for key, value in item.value.items():
        match key.lower():
            case "issuer":
                found = replace(found, issuer=text_of(value))
                if not is_public(found.issuer, "account"):
                    text = f"Expected callout user to be a valid public account nkey, got {go_quote(found.issuer)}"
                    raise value.fault(text)
            case "account" | "acc":
                found = replace(found, account=text_of(value) or GLOBAL_ACCOUNT)
            case "auth_users" | "users":
                found = replace(found, auth_users=_callout_names(value, "auth_users"))
            case "xkey" | "key":
                found = replace(found, xkey=text_of(value))
                if not is_public(found.xkey, "curve"):
                    raise value.fault(f"Expected callout xkey to be a valid public xkey, got {go_quote(found.xkey)}")
            case "allowed_accounts":
                found = replace(found, allowed_accounts=_callout_names(value, "allowed accounts"))
            case _:
                _refuse_unknown(item.value, key, value, "parsing authorization callout")
    if not found.issuer:
        raise item.fault("Authorization callouts require an issuer to be specified")
    if not found.auth_users:
        raise item.fault("Authorization callouts require authorized users to be specified")
    return found


def _callout_names(item: Item, name: str) -> tuple[str, ...]:
    if not isinstance(item.value, list):
        raise item.fault(f"Expected {name} field to be an array")
    return tuple(text_of(entry) for entry in item.value)


def authorization_block(options: ServerOptions, item: Item) -> ServerOptions:
    if not isinstance(item.value, dict):
        raise item.fault("expected a block in braces")
    users: tuple[User, ...] | None = None
    permissions: Permissions | None = None
    for key, value in item.value.items():
        match key.lower():
            case "user" | "username":
                options = replace(options, user=text_of(value))
            case "pass" | "password":
                options = replace(options, password=text_of(value))
            case "token":
                options = replace(options, token=text_of(value))
            case "timeout":
                options = replace(options, auth_timeout_s=seconds_of(value))
            case "users":
                users = users_of(value, "$G")
            case "default_permissions" | "default_permission" | "permissions":
                permissions = permissions_of(value)
            case "auth_callout" | "auth_hook":
                options = replace(options, auth_callout=callout_of(value))
            case "proxy_required":
                options = replace(options, proxy_required=flag_of(value))
            case _:
                if key not in item.value.variables:
                    raise value.fault(f"unknown field {go_quote(key)}")
    _refuse_mixtures(options, users, item)
    return with_users(options, with_permissions(users or (), permissions), item)


def _refuse_mixtures(options: ServerOptions, users: tuple[User, ...] | None, item: Item) -> None:
    if (options.user or options.password) and options.token:
        raise item.fault("Cannot have a user/pass and token")
    if users is None and not options.users:
        return
    if options.user:
        raise item.fault("Can not have a single user/pass and a users array")
    if options.token:
        raise item.fault("Can not have a token and a users array")
