"""The options that every command takes, before or after its name.

Typer does not parse them: root help must not import it, and it accepts the options of a group only before the command.
An option that a command declares itself under the same spelling is the command's.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from natsctl.client.settings import Settings


class GlobalFlag:
    """One global option; a switch has no `metavar`, and its value is True."""

    __slots__ = ("field", "heading", "help", "metavar", "read", "spellings")

    def __init__(
        self,
        names: str,
        metavar: str,
        help: str,
        read: Callable[[str], Any] = str,
        heading: str = "",
        field: str = "",
    ) -> None:
        self.spellings = names.split(", ")
        self.metavar = metavar
        self.help = help
        self.read = read
        self.heading = heading
        """Its heading in help; if empty, that of the preceding option."""
        self.field = field


CONTEXT_KEYS = {
    "server": "url",
    "js_domain": "jetstream_domain",
    "js_api_prefix": "jetstream_api_prefix",
    "js_event_prefix": "jetstream_event_prefix",
    "tlscert": "cert",
    "tlskey": "key",
    "tlsca": "ca",
    "tlsfirst": "tls_first",
    "jwt": "user_jwt",
    "seed": "user_seed",
    "colors": "color_scheme",
}
"""Keys of contexts by option, if their names differ."""
COLOURS = ("rounded", "double", "yellow", "blue", "cyan", "green", "magenta", "red")


def _colour(text: str) -> str:
    if text not in COLOURS:
        raise ValueError(f"expected one of {', '.join(COLOURS)}, not {text!r}")
    return text


def _seconds(text: str) -> float:
    """Return a duration in seconds; a bare number counts seconds."""
    from natsctl.api.units import parse_duration

    try:
        seconds = float(text)
    except ValueError:
        seconds = parse_duration(text) / 1e9
    if not 0 < seconds < 1e9:
        raise ValueError(f"expected a duration above zero such as 5s, not {text!r}")
    return seconds


def flag(names: str, metavar: str, help: str, read: Callable[[str], Any] = str, heading: str = "") -> Any:
    return GlobalFlag(names, metavar, help, read, heading)


class GlobalOptions:
    """Options of every command, before or after its name; None is "not given"."""

    server: str | None = flag(
        "-s, --server", "URL", "server URL or host:port, several with commas (NATS_URL)", heading="Server"
    )
    context: str | None = flag("--context", "CONTEXT", "configuration context of the nats tool (NATS_CONTEXT)")
    no_context: bool = flag("--no-context", "", "ignore the selected context")
    timeout: float | None = flag("--timeout", "DURATION", "time to wait for an answer [5s] (NATS_TIMEOUT)", _seconds)
    no_reconnect: bool = flag("--no-reconnect", "", "fail on a lost connection")
    js_domain: str | None = flag("--js-domain, --domain", "NAME", "JetStream domain")
    js_api_prefix: str | None = flag("--js-api-prefix", "PREFIX", "subject prefix of the JetStream API")
    js_event_prefix: str | None = flag("--js-event-prefix", "PREFIX", "subject prefix of JetStream's advisories")
    inbox_prefix: str | None = flag("--inbox-prefix", "PREFIX", "subject prefix for replies")
    connection_name: str | None = flag("--connection-name", "NAME", "name of this connection, which the server shows")
    socks_proxy: str | None = flag(
        "--socks-proxy", "URL", "connect through a SOCKS proxy, socks5://host:port (NATS_SOCKS_PROXY)"
    )
    user: str | None = flag("--user", "USER", "user name, or without --password a token (NATS_USER)", heading="Login")
    password: str | None = flag("--password", "PASSWORD", "password (NATS_PASSWORD)")
    password_stdin: bool = flag("--password-stdin", "", "read the password from the first line of stdin")
    token: str | None = flag("--token", "TOKEN", "token (NATS_TOKEN)")
    token_stdin: bool = flag("--token-stdin", "", "read the token from the first line of stdin")
    creds: str | None = flag("--creds", "FILE", "user credentials (NATS_CREDS)")
    nkey: str | None = flag("--nkey", "FILE", "user NKey seed (NATS_NKEY)")
    jwt: str | None = flag("--jwt", "JWT", "user JWT, or its file (NATS_JWT)")
    seed: str | None = flag("--seed", "SEED", "user seed that goes with the JWT, or its file (NATS_SEED)")
    tlscert: str | None = flag("--tlscert", "FILE", "TLS public certificate (NATS_CERT)", heading="Encryption")
    tlskey: str | None = flag("--tlskey", "FILE", "TLS private key (NATS_KEY)")
    tlsca: str | None = flag("--tlsca", "FILE", "TLS certificate authority chain (NATS_CA)")
    tlsfirst: bool = flag("--tlsfirst, --tls-first", "", "TLS handshake before the server's INFO")
    tls_insecure: bool = flag("--tls-insecure", "", "do not verify the server's certificate: for tests only")
    no_input: bool = flag(
        "--no-input",
        "",
        "never ask: flags that are not given take their defaults (NATSCTL_NO_INPUT)",
        heading="Behaviour",
    )
    dry_run: bool = flag("--dry-run", "", "change nothing; show what would be sent")
    trace: bool = flag("--trace", "", "show each JetStream API request and answer on stderr")
    utc: bool = flag("--utc", "", "show times in UTC instead of the local zone")
    colors: str | None = flag(
        "--colors", "SCHEME", "style of tables: rounded, double or the name of a colour (NATS_COLOR)", _colour
    )
    help: bool = flag("-h, --help", "", "show help")
    version: bool = flag("--version", "", "show the version")
    all_streams: bool = False

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def settings(self) -> Settings:
        from natsctl.client.settings import Settings

        keys = {**CONTEXT_KEYS, "timeout": "timeout_s"}
        values = {keys.get(name, name): value for name, value in vars(self).items() if value is not None}
        return Settings(**{name: value for name, value in values.items() if name in Settings._fields})


def _declared_flags() -> tuple[GlobalFlag, ...]:
    """Return the declared options, each with its field, and leave their defaults in GlobalOptions."""
    declared = {name: value for name, value in vars(GlobalOptions).items() if isinstance(value, GlobalFlag)}
    for name, each in declared.items():
        each.field = name
        setattr(GlobalOptions, name, None if each.metavar else False)
    return tuple(declared.values())


GLOBAL_FLAGS = _declared_flags()
MAY_BE_EMPTY = ("password", "connection_name")
"""Options with a possibly empty value; for others an empty one would silently choose another server or login."""
_ALL_STREAMS = GlobalFlag("-a, --all", "", "include the streams of KV, object store and MQTT", field="all_streams")
OF_NOUNS = {"stream": _ALL_STREAMS, "consumer": _ALL_STREAMS}
"""Options of every verb of a noun, as in the nats tool, except of a verb that declares the same spelling itself."""
BY_SPELLING = {spelling: flag for flag in GLOBAL_FLAGS for spelling in flag.spellings}
