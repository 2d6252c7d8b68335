"""The block `leafnodes` of nats.conf: the listener and who may connect to it; the remotes are in `leaf_remotes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from natsctl.broker.auth.static_auth import User
from natsctl.broker.leaf.handshake import version_parts
from natsctl.server.conf.leaf_compression import check_compression
from natsctl.server.conf.leaf_remotes import remotes_of
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.tls import tls_block
from natsctl.server.conf.values import address_of, block_of, flag_of, items_of, port_of, seconds_of, text_of
from natsctl.server.leaf.options import LeafNodesOptions
from natsctl.server.options import ServerOptions

OLDEST_VERSION: Final = (2, 8, 0)
"""Below it `min_version` says nothing. Source: nats-server, checkLeafMinVersionConfig."""
LeafSetter: TypeAlias = Callable[[LeafNodesOptions, Item], LeafNodesOptions]


def leafnodes_block(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with what the block sets; raises ConfError."""
    leafnodes = LeafNodesOptions()
    block = block_of(item)
    for key, value in block.items():
        setter = LEAFNODE_KEYS.get(key.lower())
        if setter is not None:
            leafnodes = setter(leafnodes, value)
        elif key not in block.variables:
            raise value.fault(f'unknown field "{key}"')
    return replace(options, leafnodes=leafnodes if leafnodes.port or leafnodes.remotes else None)


def _set(name: str, read: Callable[[Item], Any]) -> LeafSetter:
    return lambda leafnodes, item: replace(leafnodes, **{name: read(item)})


def _listen(leafnodes: LeafNodesOptions, item: Item) -> LeafNodesOptions:
    host, port = address_of(item, leafnodes.host)
    return replace(leafnodes, host=host, port=port)


def _min_version(item: Item) -> str:
    version = text_of(item)
    parts = version_parts(version)
    if parts is None:
        raise item.fault(f"invalid leafnode's minimum version: invalid semver {version!r}")
    if parts < OLDEST_VERSION:
        raise item.fault("the minimum version should be at least 2.8.0")
    return version


def _compression(leafnodes: LeafNodesOptions, item: Item) -> LeafNodesOptions:
    check_compression(item)
    return leafnodes


def _ignored(leafnodes: LeafNodesOptions, item: Item) -> LeafNodesOptions:
    text_of(item)
    return leafnodes


def _authorization(leafnodes: LeafNodesOptions, item: Item) -> LeafNodesOptions:
    name = password = nkey = account = ""
    users: tuple[User, ...] = ()
    for key, value in block_of(item).items():
        match key.lower():
            case "user" | "username":
                name = text_of(value)
            case "pass" | "password":
                password = text_of(value)
            case "nkey":
                nkey = _public_nkey(value)
            case "account":
                account = text_of(value)
            case "timeout":
                leafnodes = replace(leafnodes, auth_timeout_s=seconds_of(value))
            case "users":
                users = tuple(_user(entry) for entry in items_of(value))
            case _:
                raise value.fault(f'unknown field "{key}"')
    if users and (name or nkey):
        what = "user/pass" if name else "nkey"
        raise item.fault(f"can not have a single {what} and a users array")
    names = [user.name for user in users]
    for user in users:
        if names.count(user.name) > 1:
            raise item.fault(f'duplicate user "{user.name}" detected in leafnode authorization')
    if name:
        users = (User(name, password, account or "$G"),)
    elif nkey:
        users = (User("", "", account or "$G", nkey=nkey),)
    return replace(leafnodes, users=users, account=account)


def _public_nkey(item: Item) -> str:
    nkey = text_of(item)
    if len(nkey) != 56 or not nkey.startswith("U"):
        raise item.fault("Not a valid public nkey for leafnode authorization")
    return nkey


def _user(item: Item) -> User:
    fields = {"name": "", "password": "", "account": "$G"}
    for key, value in block_of(item).items():
        name = {"user": "name", "username": "name", "pass": "password", "password": "password"}.get(key.lower())
        if key.lower() == "account":
            name = "account"
        if name is None:
            raise value.fault(f'unknown field "{key}"')
        fields[name] = text_of(value)
    return User(fields["name"], fields["password"], fields["account"])


LEAFNODE_KEYS: Final[dict[str, LeafSetter]] = {
    "listen": _listen,
    "port": _set("port", port_of),
    "host": _set("host", text_of),
    "net": _set("host", text_of),
    "authorization": _authorization,
    "remotes": _set("remotes", remotes_of),
    "reconnect": _set("reconnect_s", seconds_of),
    "reconnect_delay": _set("reconnect_s", seconds_of),
    "reconnect_interval": _set("reconnect_s", seconds_of),
    "dial_timeout": _set("dial_timeout_s", seconds_of),
    "tls": _set("tls", tls_block),
    "advertise": _set("advertise", text_of),
    "leafnode_advertise": _set("advertise", text_of),
    "no_advertise": _set("no_advertise", flag_of),
    "min_version": _set("min_version", _min_version),
    "minimum_version": _set("min_version", _min_version),
    "compression": _compression,
    "isolate_leafnode_interest": _set("isolate", flag_of),
    "isolate": _set("isolate", flag_of),
    "write_deadline": _set("write_deadline_s", seconds_of),
    "write_timeout": _ignored,
}
