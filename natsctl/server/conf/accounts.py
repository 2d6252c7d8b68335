"""The block `accounts` of nats.conf: who there is, what each gives and takes, and what it may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from natsctl.api.account import AccountLimits
from natsctl.api.subjects import is_literal, is_valid_subject
from natsctl.api.syntax import go_quote
from natsctl.broker.account import GLOBAL_ACCOUNT
from natsctl.broker.auth.permissions import Permissions
from natsctl.broker.exchange.account_config import AccountConfig, ConnectionLimits
from natsctl.broker.exchange.import_plan import ImportPlan
from natsctl.server.conf.authorization import users_of, with_permissions, with_users
from natsctl.server.conf.exports import Found, exports_of, imports_of
from natsctl.server.conf.jetstream import account_limits
from natsctl.server.conf.mappings import mappings_of
from natsctl.server.conf.permissions import permissions_of
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import items_of, number_of, shown, text_of
from natsctl.server.options import ServerOptions

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

    def config(self) -> AccountConfig:
        """Return what the broker is told."""
        exports, imports = (tuple(one for one, _ in found) for found in (self.exports, self.imports))
        return AccountConfig(self.name, self.jetstream, exports, imports, self.mappings, self.limits)


def accounts_block(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with what the block sets; raises ConfError."""
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
    """Raise the first thing that is wrong between accounts, where it is said."""
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
    """Return `options` with the users of an account."""
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
    from natsctl.broker.jwt.nkey import is_public

    if not isinstance(item.value, str) or not is_public(item.value, "account"):
        raise item.fault(f"Not a valid public nkey for an account: {go_quote(str(item.value))}")


def _trace_dest(account: _Account, item: Item) -> None:
    """Check where traces would go, and say that messages with a traceparent have none."""
    destination = item.value
    if isinstance(destination, str) and not (is_valid_subject(destination) and is_literal(destination)):
        raise item.fault(f"Trace destination {go_quote(destination)} is not valid")
    raise item.fault("msg_trace: natsctl server traces messages by Nats-Trace-Dest alone; use nats-server")


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
    "msg_trace": _trace_dest, "trace_dest": _trace_dest,
}  # fmt: skip
