"""Settings of a server and of the login there, from flags, environment or a context.

A secret may be given indirectly: `file:///path`, `env://NAME`, `data:;base64,…`, a path, or the text itself;
`op://vault/item/field` asks 1Password's `op`, and `nsc://operator/account/user` is a user in the store of nsc.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from natsctl.api.errors import UsageError
from natsctl.hints import TYPE_CHECKING, Any, NamedTuple
from natsctl.wire.client import ClientCredentials
from natsctl.wire.server_url import ServerUrl

if TYPE_CHECKING:
    import ssl


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


class Settings(NamedTuple):
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
    """Return the variables of the environment that take precedence over a context."""
    return [name for name in (*_ENVIRONMENT.values(), "NATS_TIMEOUT") if environment.get(name)]


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Return the settings of the NATS_… variables.

    Raises UsageError for a NATS_TIMEOUT that is not a duration above zero.
    """
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
    """Return one Settings from several; the first one with a value wins.

    A login is taken as a whole: a later layer counts only if it completes the first one that names
    an identity (a password for a user), so a flag is never mixed with the login of a context.
    """
    ordered = list(layers)
    values: dict[str, Any] = {
        name: next((said for layer in ordered if (said := getattr(layer, name))), default)
        for name, default in Settings._field_defaults.items()
        if name not in _LOGIN
    }
    return _login(ordered)._replace(**values)


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
    """Return the path with `~` and `$VAR` replaced."""
    environment = os.environ if environment is None else environment
    if text == "~" or text.startswith("~/"):
        text = environment.get("HOME", "~") + text[1:]
    if "$" not in text:
        return text
    from string import Template

    class _Variables(Template):
        idpattern = r"(?a:[A-Za-z_][A-Za-z0-9_]*)"

    return _Variables(text).safe_substitute(environment)


MAX_TOOL_S = 60.0
"""Seconds that another program may take for a secret: it may ask the person to unlock it."""


def resolve_text(value: str, name: str) -> str:
    """Return the secret itself, where `value` may be a URI that points to it; raises UsageError."""
    pointed = _pointed(value, name)
    return value if pointed is None else pointed


def resolve_file(value: str, name: str) -> str:
    """Return the content of the secret's file, where `value` is its path or a URI; raises UsageError."""
    pointed = _pointed(value, name)
    return _read(value, name) if pointed is None else pointed


def resolve_either(value: str, name: str, begins: str) -> str:
    """Return the secret from a URI, from the text itself (beginning with `begins`), or from a file."""
    pointed = _pointed(value, name)
    if pointed is not None:
        return pointed
    return value if value.startswith(begins) else _read(expand_path(value), name)


def _pointed(value: str, name: str) -> str | None:
    if value.startswith("file://"):
        return _read(value.removeprefix("file://"), name).strip()
    if value.startswith("env://"):
        variable = value.removeprefix("env://").strip("/")
        if variable not in os.environ:
            raise UsageError(f"{name}: environment variable {variable} is not set")
        return os.environ[variable]
    if value.startswith("data:;base64,"):
        import base64
        import binascii

        try:
            return base64.b64decode(value.partition(",")[2], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as failure:
            raise UsageError(f"{name}: not base64 text") from failure
    if value.startswith("op://"):
        return _output_of(name, "op", "read", value).strip()
    if value.startswith("nsc://"):
        from natsctl.client.auth.nsc_profile import credentials_of

        return credentials_of(value, name, os.environ)
    return None


def _output_of(name: str, tool: str, *words: str) -> str:
    """Return another program's output; raises UsageError if it is absent, fails or takes too long."""
    import subprocess

    try:
        done = subprocess.run(
            [tool, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAX_TOOL_S, check=False
        )
    except FileNotFoundError:
        hint = "install it, or keep the secret in a file"
        raise UsageError(f"{name}: {words[-1]} needs {tool}: not found on PATH", hint=hint) from None
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise UsageError(f"{name}: {tool}: {failure}") from failure
    if done.returncode:
        raise UsageError(f"{name}: {tool} {words[0]} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _read(file: str, name: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:  # noqa: PTH123  # the import of pathlib is a part of short commands
            return opened.read()
    except OSError as failure:
        raise UsageError(f"{name}: {failure.strerror or failure}: {file}") from failure
    except UnicodeDecodeError as failure:
        raise UsageError(f"{name}: {file} is not a text file") from failure


def seed_in(text: str, name: str) -> str:
    """Return the NKey seed in a seed file or credentials file; raises UsageError."""
    for line in text.splitlines():
        if line.strip().startswith("S") and " " not in line.strip() and len(line.strip()) > 40:
            return line.strip()
    raise UsageError(f"{name}: no NKey seed in it")


def jwt_in(text: str, name: str) -> str:
    """Return the user JWT in a credentials file, or the text itself when it is one; raises UsageError."""
    for line in text.splitlines():
        if line.strip().startswith("ey"):
            return line.strip()
    raise UsageError(f"{name}: no user JWT in it")


def credentials(settings: Settings) -> ClientCredentials:
    """Return the login of the settings; raises UsageError for an unreadable secret.

    Order: user, creds, nkey, JWT with seed, JWT only; a token is sent in addition to any of them. A user without a
    password is a token.
    """
    token = resolve_text(settings.token, "token") if settings.token else ""
    if settings.user and settings.password:
        return ClientCredentials(settings.user, resolve_text(settings.password, "password"), token)
    if settings.user:
        return ClientCredentials(token=settings.user)
    if settings.creds:
        text = resolve_file(settings.creds, "creds")
        return ClientCredentials(token=token, jwt=jwt_in(text, "creds"), seed=_valid_seed(text, "creds"))
    if settings.nkey:
        return ClientCredentials(token=token, seed=_valid_seed(resolve_file(settings.nkey, "nkey"), "nkey"))
    if settings.user_jwt:
        jwt = jwt_in(resolve_either(settings.user_jwt, "jwt", "ey"), "jwt")
        seed = _valid_seed(resolve_either(settings.user_seed, "seed", "SU"), "seed") if settings.user_seed else ""
        return ClientCredentials(token=token, jwt=jwt, seed=seed)
    return ClientCredentials(token=token)


def credentials_at(url: ServerUrl, configured: ClientCredentials) -> ClientCredentials:
    """Return the login for a server: that of the settings, or else that of the URL."""
    return configured if any(configured) else ClientCredentials(**url.login)


def _valid_seed(text: str, name: str) -> str:
    """Return the seed in a text; raises UsageError."""
    from natsctl.wire.ed25519 import SeedError, check_seed

    seed = seed_in(text, name)
    try:
        check_seed(seed)
    except SeedError:
        raise UsageError(f"{name}: the NKey seed in it is not valid") from None
    return seed


def wants_tls(settings: Settings, urls: tuple[str, ...]) -> bool:
    """Return whether the settings or a tls:// or wss:// URL ask for TLS."""
    wanted = settings.ca or settings.cert or settings.key or settings.tls_first or settings.tls_insecure
    return bool(wanted) or any(url.startswith(("tls://", "wss://")) for url in urls)


def tls_context(settings: Settings, urls: tuple[str, ...]) -> ssl.SSLContext | None:
    """Return the TLS context that the settings or a tls:// or wss:// URL ask for, or None.

    Raises UsageError for an unreadable file.
    """
    if not wants_tls(settings, urls):
        return None
    import ssl

    if bool(settings.cert) != bool(settings.key):
        raise UsageError("a TLS certificate and its key go together", hint="give both --tlscert and --tlskey")
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.cert:
            context.load_cert_chain(settings.cert, settings.key)
        if settings.tls_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    except OSError as failure:
        raise UsageError(f"TLS: {failure.strerror or failure}: {failure.filename or settings.ca}") from failure
    return context
