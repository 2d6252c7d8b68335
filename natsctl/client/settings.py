"""What may be said about a server and how to log in there, by flags, environment or a context.

One type, and how they combine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from natsctl.api.errors import UsageError

DEFAULT_TIMEOUT_S = 5.0

_ENVIRONMENT = {
    "url": "NATS_URL",
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "creds": "NATS_CREDS",
    "nkey": "NATS_NKEY",
    "user_jwt": "NATS_JWT",
    "user_seed": "NATS_SEED",
    "cert": "NATS_CERT",
    "key": "NATS_KEY",
    "ca": "NATS_CA",
    "socks_proxy": "NATS_SOCKS_PROXY",
    "color_scheme": "NATS_COLOR",
}
_LOGIN = ("user", "password", "token", "creds", "nkey", "user_jwt", "user_seed")
_IDENTITY = ("user", "token", "creds", "nkey", "user_jwt")
_COMPLETES = {"user": ("password",), "user_jwt": ("user_seed",)}


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of one source, "" or None for those it does not set.

    Names are the keys of the context files of the `nats` tool; those below `color_scheme` come from flags only.
    """

    url: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    creds: str = ""
    nkey: str = ""
    user_jwt: str = ""
    user_seed: str = ""
    cert: str = ""
    key: str = ""
    ca: str = ""
    tls_first: bool = False
    socks_proxy: str = ""
    jetstream_domain: str = ""
    jetstream_api_prefix: str = ""
    jetstream_event_prefix: str = ""
    inbox_prefix: str = ""
    color_scheme: str = ""
    tls_insecure: bool = False
    timeout_s: float | None = None


def overriding(environment: Mapping[str, str]) -> list[str]:
    """The variables of the environment that win over what a context says."""
    return [name for name in (*_ENVIRONMENT.values(), "NATS_TIMEOUT") if environment.get(name)]


def from_environment(environment: Mapping[str, str]) -> Settings:
    """What the NATS_… variables say; raises UsageError for a NATS_TIMEOUT that is not a duration above zero."""
    said: dict[str, Any] = {name: environment.get(variable, "") for name, variable in _ENVIRONMENT.items()}
    return Settings(**said, timeout_s=_timeout(environment.get("NATS_TIMEOUT", "")))


def _timeout(text: str) -> float | None:
    if not text:
        return None
    from natsctl.api.units import parse_duration

    try:
        ns = parse_duration(text)
    except ValueError as failure:
        raise UsageError(f"NATS_TIMEOUT: {failure}") from failure
    if ns <= 0:
        raise UsageError(f"NATS_TIMEOUT: expected a duration above zero such as 5s, not {text!r}")
    return ns / 1e9


def combine(layers: Iterable[Settings]) -> Settings:
    """One Settings from several, the first that says a value wins.

    A login is taken as a whole: what a later layer says of it counts only where it completes the first one that names
    an identity (a password for a user), so a flag is never mixed with the login of a context.
    """
    ordered = list(layers)
    values: dict[str, Any] = {
        field.name: next((said for layer in ordered if (said := getattr(layer, field.name))), field.default)
        for field in fields(Settings)
        if field.name not in _LOGIN
    }
    return replace(_login(ordered), **values)


def _login(layers: list[Settings]) -> Settings:
    taken: dict[str, Any] = {}
    for layer in layers:
        said = {name: getattr(layer, name) for name in _LOGIN if getattr(layer, name)}
        named = [name for name in _IDENTITY if name in taken]
        if not named:
            taken = {**said, **taken}
            continue
        if any(name in said for name in _IDENTITY):
            break
        wanted = {field for name in named for field in _COMPLETES.get(name, ())}
        taken.update({name: value for name, value in said.items() if name in wanted and name not in taken})
    return Settings(**taken)


def expand_path(text: str, environment: Mapping[str, str] | None = None) -> str:
    """The path with `~` and `$VAR` replaced."""
    environment = os.environ if environment is None else environment
    if text == "~" or text.startswith("~/"):
        text = environment.get("HOME", "~") + text[1:]
    if "$" not in text:
        return text
    from string import Template

    class _Variables(Template):
        idpattern = r"(?a:[A-Za-z_][A-Za-z0-9_]*)"

    return _Variables(text).safe_substitute(environment)


def without_login(url: str) -> str:
    """The URL without user, password or token."""
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
