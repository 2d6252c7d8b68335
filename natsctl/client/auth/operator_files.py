"""Operators as files: backups in the form of `nats auth operator backup`, and the import of a JWT with its seeds.

A backup has the JWT and, if known, the seed of the operator and of each of its accounts, users and signing
keys. With a curve key it is sealed for the holder of that key, as base 64. Source: jwt-auth-builder.go, types.go.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, NoReturn

import orjson

from natsctl.api.errors import UsageError
from natsctl.client.auth.claims import Document, read_claims
from natsctl.client.auth.keys import KeyPair, parse_key
from natsctl.client.auth.operators import Entity, ManagedAccount, ManagedUser, Operator, check_name

# -- backups


def backup_of(operator: Operator, key: KeyPair | None = None) -> bytes:
    """Return the backup of an operator, sealed if there is a curve key."""
    accounts = [
        {**_saved(account, account.signing_keys), "users": [_saved(user) for user in account.users]}
        for account in operator.accounts
    ]
    document = {**_saved(operator, operator.signing_keys), "accounts": accounts}
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    return text if key is None else base64.b64encode(key.seal(text, key.public))


def _saved(entity: Entity, signing_keys: Iterable[KeyPair] | None = None) -> Document:
    found: Document = {"name": entity.name, "key": _seed(entity.key), "token": entity.token}
    if signing_keys is not None:
        found["signingKeys"] = [_seed(key) for key in signing_keys]
    return found


def _seed(key: KeyPair) -> Document:
    return {"key": key.seed if key.is_private else ""}


def restored(content: bytes, origin: str, key: KeyPair | None = None) -> Operator:
    """Return the operator of a backup (sealed for `key`, if given), with everything in it to be saved.

    Raises UsageError that names `origin`, NatsctlError and NatsctlError.
    """
    document = _document(_opened(content, origin, key), origin)
    operator: Operator = _entity(Operator, document, f"{origin}: $", [])
    operator.signing_keys = _keys(operator, document, f"{origin}: $")
    for at, one in enumerate(_list(document, "accounts", origin)):
        place = f"{origin}: $.accounts[{at}]"
        account = _entity(ManagedAccount, one, place, operator.accounts, operator=operator)
        account.signing_keys = _keys(operator, one, place)
        operator.accounts.append(account)
        for index, user in enumerate(_list(one, "users", place)):
            account.users.append(_entity(ManagedUser, user, f"{place}.users[{index}]", account.users, account=account))
    entities: list[Entity] = [operator, *operator.accounts, *(one for each in operator.accounts for one in each.users)]
    operator.added_keys += [entity.key for entity in entities if entity.key.is_private]
    return operator


def _opened(content: bytes, origin: str, key: KeyPair | None) -> bytes:
    if key is None:
        return content
    try:
        sealed = base64.b64decode(content.strip(), validate=True)
    except binascii.Error:
        raise UsageError(f"{origin}: this is not a sealed backup", hint="without --key it is read as it is") from None
    return key.open(sealed, key.public)


def _document(text: bytes, origin: str) -> Document:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as failure:
        raise UsageError(f"{origin}: {failure}", hint="a sealed backup needs --key") from None
    if not isinstance(found, dict):
        raise UsageError(f"{origin}: expected an object, got {type(found).__name__}")
    return found


def _list(document: Document, name: str, place: str) -> list[Document]:
    found = document.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise UsageError(f"{place}.{name}: expected a list of objects")
    return found


def _entity(kind: type[Any], document: Document, place: str, others: Iterable[Entity], **owner: Any) -> Any:
    """Return the operator, account or user of a part of a backup, as one that is not in the store."""
    name, token = document.get("name"), document.get("token")
    if not isinstance(name, str) or not isinstance(token, str):
        raise UsageError(f"{place}: expected the texts name and token")
    check_name(kind.kind, name)
    if any(one.name == name for one in others):
        raise UsageError(f"{place}: there are two of the name {name}")
    claims = read_claims(token, kind.kind, place)
    found = kind(name, _key(document.get("key"), f"{place}.key", claims.get("sub")), claims, token, **owner)
    found.stored_token = ""
    return found


def _key(document: Any, place: str, public: Any) -> KeyPair:
    bare = parse_key(str(public), place)
    seed = document.get("key") if isinstance(document, dict) else None
    if not seed:
        return bare
    found = parse_key(str(seed), place)
    return found if found.public == bare.public else _fail(f"{place}: the seed does not belong to {bare.public}")


def _keys(operator: Operator, document: Document, place: str) -> list[KeyPair]:
    seeds = [one.get("key") for one in _list(document, "signingKeys", place)]
    keys = [parse_key(str(seed), f"{place}.signingKeys", "operator", "account") for seed in seeds if seed]
    operator.added_keys += keys
    return keys


def _fail(text: str) -> NoReturn:
    raise UsageError(text)


# -- import


def imported(token: str, origin: str, keys: Iterable[KeyPair]) -> Operator:
    """Return the operator of a JWT with all its keys; raises UsageError, NatsctlError."""
    claims = read_claims(token, "operator", origin)
    name = claims.get("name")
    check_name("operator", name if isinstance(name, str) else "")
    wanted = [claims["sub"], *(claims["nats"].get("signing_keys") or [])]
    given = {key.public: key for key in keys if key.is_private}
    if others := [public for public in given if public not in wanted]:
        raise UsageError(f"operator {name} has no key {others[0]}", hint=f"its keys are {', '.join(wanted)}")
    if missing := [public for public in wanted if public not in given]:
        raise UsageError(f"the seed of {missing[0]} is missing", hint="give the files of all keys of the operator")
    operator = Operator(str(name), given[wanted[0]], claims, token.strip())
    operator.stored_token = ""
    operator.signing_keys = [given[public] for public in wanted[1:]]
    operator.added_keys = [given[public] for public in wanted]
    return operator
