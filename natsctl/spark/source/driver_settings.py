"""The server's address and login, found on the driver: from options, a context, or the environment.

Executors are given the result. Who names `servers` without a `context` has said everything: neither the environment nor
the selected context adds a login to it, so that a job does the same wherever its driver runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.handshake import ServerSettings, server_url
from natsctl.spark.source.option_rules import check_combination
from natsctl.spark.source.source_options import BATCH_READ, Options

DEFAULT_URL = "nats://127.0.0.1:4222"
OUTAGE_S = 120.0
"""Maximum outage that streaming queries and writes wait for: a restart of a server, or of its host."""
BATCH_READ_OUTAGE_S = 30.0
"""The same for batch reads, as someone may be waiting for the answer."""

_ENVIRONMENT = {
    "servers": "NATS_URL",
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "credentials": "NATS_CREDS",
    "nkey": "NATS_NKEY",
    "tlsCa": "NATS_CA",
    "tlsCert": "NATS_CERT",
    "tlsKey": "NATS_KEY",
}
_LOGIN = ("user", "token", "credentials", "credentialsContent", "nkey", "nkeyContent")


def server_settings(options: Options, environment: Mapping[str, str] | None = None) -> ServerSettings:
    """Return the settings that tasks connect with; raises OptionError, also for files that cannot be read."""
    check_combination(options)
    environment = os.environ if environment is None else environment
    if options.given("servers") and not options.given("context"):
        return _settings(options)
    found = _looked_up(options, environment)
    said = {name: options.raw[name.lower()] for name in options.said()}
    if any(name in said for name in _LOGIN):
        found = {name: value for name, value in found.items() if name not in (*_LOGIN, "password")}
    if "domain" in said:
        found.pop("apiPrefix", None)
    connection = {**found, **said}
    connection.pop("context", None)
    return _settings(Options(connection, options.place))


def _looked_up(options: Options, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the context and the environment as options; without natsctl there are no contexts."""
    try:
        from natsctl.spark.contexts import context_options
    except ImportError:
        if options.given("context"):
            raise OptionError(
                f"option context: {options['context']!r} cannot be looked up, since natsctl is not installed where the "
                "driver runs: give servers, and a login by credentialsContent, nkeyContent, token, or user and password"
            ) from None
        return {name: environment[variable] for name, variable in _ENVIRONMENT.items() if environment.get(variable)}
    return context_options(options["context"] or "", environment)


def _settings(options: Options) -> ServerSettings:
    urls, login = _without_logins(options["servers"] or (DEFAULT_URL,))
    user, password = options["user"] or login.get("user", ""), options["password"] or login.get("password", "")
    token = options["token"] or login.get("token", "")
    jwt, seed = _signed(options)
    prefix = f"$JS.{options['domain']}.API" if options["domain"] else options["apiPrefix"].rstrip(".")
    return ServerSettings(
        urls=urls,
        user=user,
        password=password,
        token=token,
        jwt=jwt,
        seed=seed,
        tls_ca=_content(options, "tlsCa"),
        tls_cert=_content(options, "tlsCert"),
        tls_key=_content(options, "tlsKey"),
        tls_first=options["tlsFirst"],
        tls_insecure=options["tlsInsecure"],
        api_prefix=prefix,
        inbox_prefix=options["inboxPrefix"].rstrip("."),
        timeout_s=options["requestTimeout"],
        retry_timeout_s=_retry_timeout_s(options),
        retries=options["numRetries"],
        retry_interval_s=options["retryInterval"],
    )


def _retry_timeout_s(options: Options) -> float:
    limit_s: float | None = options["retryTimeout"]
    if limit_s is None:
        return BATCH_READ_OUTAGE_S if options.place == BATCH_READ else OUTAGE_S
    return limit_s


def _signed(options: Options) -> tuple[str, str]:
    """Return the JWT and the seed, "" if missing."""
    credentials = _content(options, "credentials")
    if credentials:
        jwt = _line(credentials, r"ey[\w.-]+")
        if not jwt:
            raise OptionError("option credentials: there is no user JWT in it")
        return jwt, _line(credentials, r"SU[A-Z2-7]{56}")
    nkey = _content(options, "nkey")
    seed = _line(nkey, r"S[A-Z2-7]{57}") if nkey else ""
    if nkey and not seed:
        raise OptionError("option nkey: there is no NKey seed in it")
    return "", seed


def _line(text: str, pattern: str) -> str:
    """Return the first line that is like the pattern as a whole, or ""."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if re.fullmatch(pattern, line)), "")


def _content(options: Options, name: str) -> str:
    said: str = options[f"{name}Content"] or ""
    if said or not options[name]:
        return said
    path = Path(options[name]).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        why = getattr(failure, "strerror", None) or "it is not text"
        raise OptionError(f"option {name}: {why}: {path}") from None


def _without_logins(urls: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the URLs without logins, and the first login among them."""
    servers = [server_url(url) for url in urls]
    return tuple(server.bare for server in servers), next((server.login for server in servers if server.login), {})
