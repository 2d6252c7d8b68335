"""The block `authorization` of nats.conf, and the users that it and accounts list."""

from __future__ import annotations

from dataclasses import replace

from natsctl.broker.static_auth import User
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import block_of, items_of, seconds_of, text_of
from natsctl.server.options import ServerOptions


def users_of(item: Item, account: str) -> tuple[User, ...]:
    """Return the users of an account; raises ConfError."""
    return tuple(_user(entry, account) for entry in items_of(item))


def _user(item: Item, account: str) -> User:
    fields: dict[str, str] = {}
    for key, value in block_of(item).items():
        name = {"user": "name", "username": "name", "pass": "password", "password": "password"}.get(key.lower())
        if name is None:
            raise value.fault(f"{key} of a user: not available in this version of natsctl server")
        fields[name] = text_of(value)
    if "name" not in fields:
        raise item.fault("a user needs a name")
    return User(fields["name"], fields.get("password", ""), account)


def authorization_block(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with what the block sets; raises ConfError."""
    for key, value in block_of(item).items():
        match key.lower():
            case "user" | "username":
                options = replace(options, user=text_of(value))
            case "pass" | "password":
                options = replace(options, password=text_of(value))
            case "token":
                options = replace(options, token=text_of(value))
            case "users":
                options = replace(options, users=options.users + users_of(value, "$G"))
            case "timeout":
                options = replace(options, auth_timeout_s=seconds_of(value))
            case _:
                raise value.fault(f"{key}: not available in this version of natsctl server")
    return options
