"""Contexts and the environment as options of the data source, with the texts of secrets instead of files.

What natsctl's commands find out about a server is handed to the source this way, so that neither executors nor a driver
elsewhere need any of this machine's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.client.servers import Target, resolve
from natsctl.client.settings import Settings, jwt_in, resolve_either, resolve_file, resolve_text, seed_in
from natsctl.spark.source.errors import OptionError

_CREDENTIALS = """-----BEGIN NATS USER JWT-----
{jwt}
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""


def context_options(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a context, or of the environment and the selected one. Raises OptionError."""
    try:
        return source_options(resolve(Settings(), environment, name or None))
    except NatsctlError as failure:
        hint = f" ({failure.hint})" if failure.hint else ""
        raise OptionError(f"option context: {failure}{hint}" if name else f"{failure}{hint}") from failure


def source_options(target: Target) -> dict[str, str]:
    """Return the options of the data source for the server of a command. Raises UsageError."""
    settings = target.settings
    if settings.socks_proxy:
        raise UsageError("Spark's tasks cannot go through a SOCKS proxy", hint="name a server that they reach")
    said = {
        "servers": ",".join(target.urls),
        **_login(settings),
        "tlsCaContent": _file(settings.ca),
        "tlsCertContent": _file(settings.cert),
        "tlsKeyContent": _file(settings.key),
        "tlsFirst": "true" if settings.tls_first else "",
        "tlsInsecure": "true" if settings.tls_insecure else "",
        "apiPrefix": target.api_prefix,
        "inboxPrefix": settings.inbox_prefix,
        "requestTimeout": f"{target.timeout_s}s",
    }
    return {name: value for name, value in said.items() if value}


def _login(settings: Settings) -> dict[str, str]:
    """Return the login as options, in the order of precedence that commands have."""
    token = {"token": resolve_text(settings.token, "token")} if settings.token else {}
    if settings.user and settings.password:
        return {**token, "user": settings.user, "password": resolve_text(settings.password, "password")}
    if settings.user:
        return {**token, "token": settings.user}
    if settings.creds:
        return {**token, "credentialsContent": resolve_file(settings.creds, "creds")}
    if settings.nkey:
        return {**token, "nkeyContent": seed_in(resolve_file(settings.nkey, "nkey"), "nkey")}
    if settings.user_jwt:
        jwt = jwt_in(resolve_either(settings.user_jwt, "jwt", "ey"), "jwt")
        seed = seed_in(resolve_either(settings.user_seed, "seed", "SU"), "seed") if settings.user_seed else ""
        return {**token, "credentialsContent": _CREDENTIALS.format(jwt=jwt, seed=seed)}
    return token


def _file(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"TLS: {getattr(failure, 'strerror', None) or 'not text'}: {path}") from failure
