"""Context files of the `nats` tool: their keys in order, with the secret and the embeddable ones.

A document is the whole JSON object, unknown keys included; keys that natsctl does not know are kept. Imports msgspec.
Source of the keys: docs/compatibility.md#contexts.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from natsctl.api.errors import UsageError
from natsctl.api.model import Model
from natsctl.client.settings import Settings, expand_path, resolve_file, resolve_text
from natsctl.wire.server_url import ServerUrlError, parse_server_url, without_login

Document = dict[str, Any]


class Keys(Model, kw_only=True):
    """Keys of a context file in the order of the `nats` tool, with the values that it writes for unset ones."""

    description: str = ""
    url: str = ""
    socks_proxy: str = ""
    token: str = ""
    user: str = ""
    password: str = ""
    creds: str = ""
    nkey: str = ""
    cert: str = ""
    key: str = ""
    ca: str = ""
    nsc: str = ""
    jetstream_domain: str = ""
    jetstream_api_prefix: str = ""
    jetstream_event_prefix: str = ""
    inbox_prefix: str = ""
    user_jwt: str = ""
    user_seed: str = ""
    color_scheme: str = ""
    tls_first: bool = False
    windows_cert_store: str = ""
    windows_cert_match_by: str = ""
    windows_cert_match: str = ""
    windows_ca_certs_match: list[str] | None = None


EMPTY: Mapping[str, Any] = dict(zip(Keys.__struct_fields__, Keys.__struct_defaults__, strict=True))
"""Every key, not set."""

PATHS = ("creds", "nkey", "cert", "key", "ca")
_SECRETS = ("token", "password", "user_jwt", "user_seed")
_MAY_EMBED = ("creds", "nkey")
_POINTERS = ("file://", "op://", "nsc://", "env://")
_DATA = "data:;base64,"
HIDDEN = "********"
"""Replacement of a secret; its length is no hint."""


def settings_of(document: Mapping[str, Any], origin: str, environment: Mapping[str, str]) -> Settings:
    """Return a document's settings of server and login; raises UsageError that names file and key."""
    document = {**document, "creds": document.get("creds") or document.get("nsc") or ""}
    said: dict[str, Any] = {}
    for name in _known(EMPTY):
        value = document.get(name)
        if value in (None, ""):
            continue
        wanted = type(EMPTY[name])
        if not isinstance(value, wanted):
            raise UsageError(f"{origin}: $.{name}: expected {wanted.__name__}, got {type(value).__name__}")
        said[name] = expand_path(value, environment) if name in PATHS else value
    return Settings(**said)


def document_of(settings: Settings) -> Document:
    """Return the keys that the settings have a value for, as in a document."""
    return {name: value for name in _known(EMPTY) if (value := getattr(settings, name))}


def _known(keys: Mapping[str, Any]) -> list[str]:
    return [name for name in keys if name in Settings._fields]


def complete(document: Mapping[str, Any]) -> Document:
    """Return the document with every key that the `nats` tool writes, in its order, then all others.

    `nsc` became `creds`.
    """
    whole = {**EMPTY, **document}
    whole.pop("name", None)
    if whole["nsc"]:
        whole["creds"], whole["nsc"] = whole["creds"] or whole["nsc"], ""
    return whole


def redacted(document: Mapping[str, Any]) -> Document:
    """Return the document with secrets hidden: passwords, tokens, keys, and logins in URLs.

    References to secrets kept elsewhere stay.
    """
    shown = dict(document)
    for name in (*_SECRETS, *_MAY_EMBED):
        value = shown.get(name)
        if isinstance(value, str) and value and _is_secret(name, value):
            shown[name] = HIDDEN
    if isinstance(url := shown.get("url"), str):
        shown["url"] = ",".join(_hidden_login(part) for part in url.split(","))
    return shown


def _is_secret(name: str, value: str) -> bool:
    return value.startswith(_DATA) or (name in _SECRETS and not value.startswith(_POINTERS))


def _hidden_login(url: str) -> str:
    """Return a URL without its login; one that is malformed is hidden whole, as a secret may be anywhere in it."""
    try:
        has_login = parse_server_url(url.strip()).login if url.strip() else {}
    except ServerUrlError:
        return HIDDEN
    return without_login(url).replace("://", f"://{HIDDEN}@", 1) if has_login else url


def embedded(document: Mapping[str, Any]) -> Document:
    """Return the document with the content of credential files in their place.

    Raises UsageError for an unreadable one.
    """
    whole = dict(document)
    for name in _MAY_EMBED:
        if (value := whole.get(name)) and not value.startswith(_DATA):
            text = resolve_file(expand_path(value), name)
            whole[name] = _DATA + base64.b64encode(text.encode()).decode()
    for name in _SECRETS:
        if (value := whole.get(name)) and value.startswith("file://"):
            whole[name] = resolve_text(value, name)
    return whole
