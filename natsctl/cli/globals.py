"""The options that every command takes, before or after its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from natsctl.cli.app import Option, Parameter
from natsctl.cli.context import GlobalOptions

_MARK = "@"


def _seconds(text: str) -> float:
    """A duration in seconds; a bare number counts seconds."""
    from natsctl.api.units import parse_duration

    try:
        seconds = float(text)
    except ValueError:
        seconds = parse_duration(text) / 1e9
    if not 0 < seconds < 1e9:
        raise ValueError(f"expected a duration above zero such as 5s, not {text!r}")
    return seconds


def _flag(
    name: str, *flags: str, help: str, metavar: str = "", read: Callable[[str], Any] = str, hidden: bool = False
) -> Parameter:
    spec = Option(*flags, help=help, metavar=metavar, hidden=hidden)
    return Parameter(_MARK + name, spec, read, default=None, switch=not metavar)


GLOBAL_FLAGS = (
    _flag("server", "-s", "--server", metavar="URL", help="server URL or host:port, several with commas (NATS_URL)"),
    _flag("user", "--user", metavar="USER", help="user name, or without --password a token (NATS_USER)"),
    _flag("password", "--password", metavar="PASSWORD", help="password (NATS_PASSWORD)"),
    _flag("token", "--token", metavar="TOKEN", help="token (NATS_TOKEN)"),
    _flag("creds", "--creds", metavar="FILE", help="user credentials (NATS_CREDS)"),
    _flag("nkey", "--nkey", metavar="FILE", help="user NKey seed (NATS_NKEY)"),
    _flag("tlscert", "--tlscert", metavar="FILE", help="TLS public certificate (NATS_CERT)"),
    _flag("tlskey", "--tlskey", metavar="FILE", help="TLS private key (NATS_KEY)"),
    _flag("tlsca", "--tlsca", metavar="FILE", help="TLS certificate authority chain (NATS_CA)"),
    _flag("tlsfirst", "--tlsfirst", "--tls-first", help="TLS handshake before the server's INFO"),
    _flag("timeout", "--timeout", metavar="DURATION", read=_seconds, help="time to wait for an answer [5s]"),
    _flag("context", "--context", metavar="NAME", help="configuration context of the nats tool (NATS_CONTEXT)"),
    _flag("no_context", "--no-context", help="ignore the selected context"),
    _flag("js_domain", "--js-domain", "--domain", metavar="NAME", help="JetStream domain"),
    _flag("js_api_prefix", "--js-api-prefix", metavar="PREFIX", help="subject prefix of the JetStream API"),
    _flag("inbox_prefix", "--inbox-prefix", metavar="PREFIX", help="subject prefix of answers"),
    _flag("trace", "--trace", help="show each JetStream API request and answer on stderr"),
    _flag("no_input", "--no-input", help="never ask; what is not given takes its default (NATSCTL_NO_INPUT)"),
    _flag("help", "-h", "--help", help="show help"),
    _flag("version", "--version", help="show the version"),
)


def given_globals(given: dict[str, Any]) -> dict[str, Any]:
    """Of the values that were given, the global ones by their plain name."""
    return {name[len(_MARK) :]: value for name, value in given.items() if name.startswith(_MARK)}


def global_options(given: dict[str, Any]) -> GlobalOptions:
    """The session's options from the plain values that were given."""
    known = GlobalOptions.__dataclass_fields__
    return GlobalOptions(**{name: value for name, value in given.items() if name in known})
