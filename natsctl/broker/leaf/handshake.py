"""The bodies of INFO and CONNECT between servers, keys in nats-server's order."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from natsctl.api.codec import InvalidJSONError, fold, read_folded
from natsctl.broker.auth.permissions import SubjectRules

_Body = TypeVar("_Body", bound=msgspec.Struct)


class SubjectLists(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One direction of a user's permissions."""

    allow: list[str] | None = None
    deny: list[str] | None = None


class LeafInfo(msgspec.Struct, omit_defaults=True, kw_only=True):
    """INFO on a leaf node connection."""

    server_id: str
    server_name: str
    version: str
    proto: int
    go: str
    host: str
    port: int
    headers: bool
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    max_payload: int
    jetstream: bool = False
    ip: str = ""
    client_id: int = 0
    nonce: str = ""
    cluster: str = ""
    domain: str = ""
    ws_connect_urls: list[str] | None = None
    compression: str = ""
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = 0
    import_: SubjectLists | None = msgspec.field(default=None, name="import")
    export: SubjectLists | None = None
    info_on_connect: bool = False
    leafnode_urls: list[str] | None = None


class PeerInfo(msgspec.Struct, kw_only=True):
    """Fields of the other side's INFO that are read."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    headers: bool = False
    tls_required: bool = False
    client_id: int = 0
    nonce: str = ""
    cluster: str = ""
    domain: str = ""
    ws_connect_urls: list[str] | None = None
    compression: str = ""
    connect_info: bool = False
    remote_account: str = ""
    import_: SubjectLists | None = msgspec.field(default=None, name="import")
    export: SubjectLists | None = None
    info_on_connect: bool = False
    leafnode_urls: list[str] | None = None


class LeafConnect(msgspec.Struct, omit_defaults=True, kw_only=True):
    """CONNECT of a server; who it is as which user is in the same fields as a client's."""

    version: str = ""
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""
    server_id: str = ""
    domain: str = ""
    name: str = ""
    is_hub: bool = False
    cluster: str = ""
    headers: bool = False
    jetstream: bool = False
    deny_pub: list[str] | None = None
    isolate: bool = False
    compress_mode: str = ""
    gateway: str = ""
    remote_account: str = ""
    protocol: int = 0
    lang: str = ""
    """Clients say this, servers do not."""


def parse_body(body: bytes, kind: type[_Body]) -> _Body | None:
    """Return the fields of INFO or CONNECT; None where it is not what the protocol asks for."""
    try:
        given = msgspec.json.decode(body, type=dict[str, object])
        names = kind.__struct_encode_fields__
        if any(key not in names and fold(key) in names for key in given):
            given = read_folded(body, kind)
        return msgspec.convert({key: value for key, value in given.items() if value is not None}, kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError, InvalidJSONError):
        return None


def told(rules: SubjectRules) -> SubjectLists | None:
    """Return the rules of one direction as INFO has them, None without rules."""
    if rules.allow is None and not rules.deny:
        return None
    allow = None if rules.allow is None else list(rules.allow)
    return SubjectLists(allow=allow, deny=list(rules.deny) or None)


def version_at_least(version: str, least: str) -> bool:
    """Return whether one dotted version is not older than another; text that is no version is older than all."""
    have, want = version_parts(version), version_parts(least)
    return have is not None and want is not None and have >= want


def version_parts(version: str) -> tuple[int, int, int] | None:
    """Return the three numbers of a version; what follows them is left out."""
    numbers = version.removeprefix("v").partition("-")[0].split(".")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1]), int(numbers[2])
