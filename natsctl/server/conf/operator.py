"""Keys of nats.conf for operators, trusted keys and the resolver of account JWTs, and rules between them.

Texts of faults are nats-server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from natsctl.api.jwt_claims import AccountClaims, OperatorClaims, UserClaims, decode
from natsctl.api.jwt_token import MAX_TOKEN_BYTES, JwtError, is_public
from natsctl.api.versions import SERVER_VERSION
from natsctl.server.conf.syntax import ConfBlock, ConfItem
from natsctl.server.conf.tls import tls_block
from natsctl.server.conf.values import (
    OptionSetter,
    block_of,
    duration_text_of,
    flag_of,
    items_of,
    keyed,
    number_of,
    shown,
    text_of,
)
from natsctl.server.files import read_file
from natsctl.server.options import DirectoryOptions, OperatorOptions, ServerOptions
from natsctl.server.tls.contexts import client_context

JWT_PREFIX: Final = "eyJ"
CACHED_ACCOUNTS: Final = 1000
"""Default number of accounts that a cache keeps. Source: nats-server, NewCacheDirAccResolver."""
_DECORATED: Final = re.compile(r"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)(?:\r?\n-{3,}[^\n]*-{3,}|\Z)")
_MEMORY: Final = re.compile(r"(?:MEM|MEMORY)\s*", re.IGNORECASE)
_WRONG_RESOLVER: Final = (
    'error parsing account resolver, should be MEM or  URL("url") or a map containing dir and type state=[FULL|CACHE])'
)
_DIRECTORY_KEYS: Final = {
    "interval": ("FULL",), "allow_delete": ("FULL",), "hard_delete": ("FULL",), "ttl": ("CACHE",),
}  # fmt: skip
"""Keys that one type of directory has and the other has not."""
_URL: Final = re.compile(r'URL(?:\(\s*"?([^\s"]*)"?\s*\))?', re.IGNORECASE)


def _changed(options: ServerOptions, **values: Any) -> ServerOptions:
    return replace(options, operator=replace(options.operator or OperatorOptions(), **values))


def _operator(item: ConfItem) -> OperatorClaims:
    if not isinstance(item.value, str):
        raise item.fault(f"error parsing operators: unsupported type {shown(item)} where a text is expected")
    try:
        return decode(_jwt_text(item.value), OperatorClaims)
    except (JwtError, OSError, UnicodeDecodeError) as fault:
        raise item.fault(f"error parsing operator JWT: {_said(fault, item.value)}") from None


def _jwt_text(text: str) -> str:
    """Return the JWT in `text`, or in the file of that name, with or without lines around it."""
    if not text.startswith(JWT_PREFIX):
        text = read_file(Path(text), 2 * MAX_TOKEN_BYTES).decode()
    match = _DECORATED.search(text)
    return match[1] if match else text.strip()


def _said(fault: Exception, name: str) -> str:
    if isinstance(fault, FileNotFoundError):
        return f"open {name}: no such file or directory"
    return str(fault)


def _trusted_keys(options: ServerOptions, item: ConfItem) -> ServerOptions:
    keys = tuple(text_of(one) for one in items_of(item))
    for one in items_of(item):
        if not is_public(text_of(one), "operator"):
            raise one.fault(f'trust key "{text_of(one)}" required to be a valid public operator nkey')
    return _changed(options, trusted_keys=keys)


def _resolver(options: ServerOptions, item: ConfItem) -> ServerOptions:
    if isinstance(item.value, dict):
        return _resolver_block(options, item, block_of(item))
    if not isinstance(item.value, str):
        raise item.fault(f"error parsing operator resolver, wrong type: {shown(item)}")
    if _MEMORY.search(item.value):
        return _changed(options, memory=True, directory=None)
    match = _URL.search(item.value)
    if match is None:
        raise item.fault(_WRONG_RESOLVER)
    return _changed(options, memory=False, directory=None, url=_resolver_url(item, match[1] or ""))


def _resolver_url(item: ConfItem, text: str) -> str:
    try:
        parts = urlsplit(text)
        fault = parts.scheme not in ("http", "https") or not parts.hostname or (parts.port or 1) < 0
    except ValueError:
        fault = True
    if fault:
        raise item.fault("error parsing account resolver url: expected URL(http://HOST:PORT/PATH) or https")
    return text


def _resolver_block(options: ServerOptions, item: ConfItem, block: ConfBlock) -> ServerOptions:
    kind = text_of(block["type"]).upper() if "type" in block else ""
    if kind in ("MEM", "MEMORY"):
        return _changed(options, memory=True, directory=None)
    if kind not in ("FULL", "CACHE"):
        raise item.fault(_WRONG_RESOLVER)
    for key, allowed in _DIRECTORY_KEYS.items():
        if key in block and kind not in allowed:
            raise block[key].fault(f"{kind} does not accept {'sync' if key == 'interval' else key}")
    return _changed(options, memory=False, directory=_directory(item, block, full=kind == "FULL"))


def _directory(item: ConfItem, block: ConfBlock, *, full: bool) -> DirectoryOptions:
    folder = text_of(block["dir"]) if "dir" in block else ""
    if not folder:
        raise item.fault("dir has no value and needs to point to a directory")
    if Path(folder).exists() and not Path(folder).is_dir():
        raise item.fault("dir needs to point to an accessible directory")
    for key in ("interval", "timeout"):  # between the servers of a cluster; a single server asks nobody
        if key in block:
            duration_text_of(block[key], key)
    delete = "allow_delete" in block and flag_of(block["allow_delete"])
    hard = "hard_delete" in block and flag_of(block["hard_delete"])
    if "hard_delete" in block and not delete:
        raise block["hard_delete"].fault("hard_delete has no effect without delete")
    return DirectoryOptions(
        Path(folder),
        full=full,
        deleting="no" if not delete else "remove" if hard else "rename",
        limit=max(number_of(block["limit"]), 0) if "limit" in block else 0 if full else CACHED_ACCOUNTS,
        ttl_s=duration_text_of(block["ttl"], "ttl") if "ttl" in block else 0.0,
    )


def _preload(options: ServerOptions, item: ConfItem) -> ServerOptions:
    if not isinstance(item.value, dict):
        raise item.fault("preload should be a map of account_public_key:account_jwt")
    found: list[tuple[str, str]] = []
    for key, value in item.value.items():
        if not isinstance(value.value, str):
            raise value.fault("preload map value should be a string JWT")
        try:
            decode(value.value, AccountClaims)
        except JwtError:
            raise value.fault("invalid account JWT") from None
        found.append((key, value.value))
    return _changed(options, preload=tuple(found))


def _pinned(options: ServerOptions, item: ConfItem) -> ServerOptions:
    for one in items_of(item):
        if not isinstance(one.value, str):
            raise one.fault(f"error parsing resolver_pinned_accounts: unsupported type in array {shown(one)}")
    return _changed(options, pinned=tuple(text_of(one) for one in items_of(item)))


def _resolver_tls(options: ServerOptions, item: ConfItem) -> ServerOptions:
    tls = tls_block(item, "remote")
    try:
        client_context(tls)
    except OSError as fault:
        raise item.fault(f"error parsing tls config: {fault}") from None
    return _changed(options, url_tls=tls)


OPERATOR_KEYS: Final[dict[str, OptionSetter]] = keyed(
    (
        "operator operators root roots root_operator root_operators",
        lambda options, item: _changed(options, operators=tuple(map(_operator, items_of(item)))),
    ),
    ("trusted trusted_keys", _trusted_keys),
    ("resolver account_resolver accounts_resolver", _resolver),
    ("resolver_preload", _preload),
    ("resolver_pinned_accounts", _pinned),
    ("resolver_tls", _resolver_tls),
    ("default_sentinel", lambda options, item: _changed(options, sentinel=text_of(item))),
)


def operator_faults(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """Yield faults between operators and other options: the key of each, and nats-server's text."""
    operator = options.operator
    if operator is None:
        return
    if not operator.operators:
        if operator.sentinel:
            yield "default_sentinel", "default sentinel requires operators and accounts"
        return
    if operator.sentinel:
        yield from _about_sentinel(operator.sentinel)
    if operator.account_url and operator.preload:
        yield "resolver_preload", "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR"
    if not operator.memory and operator.directory is None and not operator.account_url:
        yield "operator", "operators require an account resolver to be configured"
    if options.accounts:
        yield "accounts", "operators do not allow Accounts to be configured directly"
    if options.users:
        yield "authorization", "operators do not allow users to be configured directly"
    if options.no_auth_user:
        yield "no_auth_user", "no_auth_user not compatible with Trusted Operator"
    if operator.trusted_keys:
        yield "trusted_keys", "conflicting options for 'TrustedKeys' and 'TrustedOperators'"
    yield from _about_system_account(options, operator)
    yield from _about_keys(operator)
    if options.auth_callout is not None:
        yield "authorization", "operators do not allow authorization callouts to be configured directly"


def _about_sentinel(token: str) -> Iterator[tuple[str, str]]:
    try:
        user = decode(token, UserClaims)
    except JwtError:
        yield "default_sentinel", "default sentinel JWT not valid"
        return
    if not user.nats.bearer_token and not user.nats.issuer_account:
        yield "default_sentinel", "default sentinel must be a bearer token"


def _about_system_account(options: ServerOptions, operator: OperatorOptions) -> Iterator[tuple[str, str]]:
    named = [claims.nats.system_account for claims in operator.operators if claims.nats.system_account]
    if options.system_account:
        if named and options.system_account not in named:
            yield "system_account", "system_account in config and operator JWT must be identical"
    elif operator.directory is not None and not operator.operators[0].nats.system_account:
        yield (
            "resolver",
            (
                "using nats based account resolver - the system account needs to be specified in configuration "
                "or the operator jwt"
            ),
        )


def _about_keys(operator: OperatorOptions) -> Iterator[tuple[str, str]]:
    for claims in operator.operators:
        for key in (claims.sub, *claims.nats.signing_keys):
            if not is_public(key, "operator"):
                yield "operator", f'trusted Keys "{key}" are required to be a valid public operator nkey'
        yield from (("operator", text) for text in _version_faults(claims))
    for key in operator.pinned:
        if not is_public(key, "account"):
            yield "resolver_pinned_accounts", f'pinned account key "{key}" is not a valid public account nkey'


def _version_faults(claims: OperatorClaims) -> Iterator[str]:
    wanted = claims.nats.assert_server_version
    if not wanted:
        return
    numbers = wanted.split(".")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        yield (
            f"operator {claims.sub} expects version {wanted} got error instead: "
            "asserted server version must be of the form <major>.<minor>.<update>"
        )
        return
    own = [int(number) for number in SERVER_VERSION.split("-")[0].split(".")]
    for name, number, have in zip(("major", "minor", "update"), map(int, numbers), own, strict=True):
        if number != have:
            if number > have:
                yield f"operator {claims.sub} expected {name} version {number} > server {name} version {have}"
            return
