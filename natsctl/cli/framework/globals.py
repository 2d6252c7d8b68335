"""The options that every command takes, before or after its name.

Typer does not parse them: root help must not import it, and it accepts the options of a group only before the command.
An option that a command declares itself under the same spelling is the command's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from natsctl.client.settings import Settings


class GlobalFlag(NamedTuple):
    """One global option; a switch has no `metavar`, and its value is True."""

    names: str
    metavar: str
    help: str
    read: Callable[[str], Any] = str
    heading: str = ""
    """Its heading in help; if empty, that of the preceding option."""
    field: str = ""
    """Name of its field in GlobalOptions."""

    @property
    def spellings(self) -> list[str]:
        return self.names.split(", ")


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

    def settings(self) -> "Settings":
        """Return the server and the login that the flags name."""
        from natsctl.client.settings import Settings

        return Settings(
            url=self.server or "",
            user=self.user or "",
            password=self.password or "",
            token=self.token or "",
            creds=self.creds or "",
            nkey=self.nkey or "",
            user_jwt=self.jwt or "",
            user_seed=self.seed or "",
            cert=self.tlscert or "",
            key=self.tlskey or "",
            ca=self.tlsca or "",
            tls_first=self.tlsfirst,
            tls_insecure=self.tls_insecure,
            socks_proxy=self.socks_proxy or "",
            jetstream_domain=self.js_domain or "",
            jetstream_api_prefix=self.js_api_prefix or "",
            jetstream_event_prefix=self.js_event_prefix or "",
            inbox_prefix=self.inbox_prefix or "",
            color_scheme=self.colors or "",
            timeout_s=self.timeout,
        )


GLOBAL_FLAGS = tuple(
    declared._replace(field=name) for name, declared in vars(GlobalOptions).items() if isinstance(declared, GlobalFlag)
)
for _declared in GLOBAL_FLAGS:
    setattr(GlobalOptions, _declared.field, None if _declared.metavar else False)
_MAY_BE_EMPTY = ("password", "connection_name")
"""Options with a possibly empty value; for others an empty one would silently choose another server or login."""
_ALL_STREAMS = GlobalFlag("-a, --all", "", "include the streams of KV, object store and MQTT", field="all_streams")
OF_NOUNS = {"stream": _ALL_STREAMS, "consumer": _ALL_STREAMS}
"""Options of every verb of a noun, as in the nats tool, except of a verb that declares the same spelling itself."""
_BY_SPELLING = {spelling: flag for flag in GLOBAL_FLAGS for spelling in flag.spellings}


def all_spellings() -> list[str]:
    return list(_BY_SPELLING)


def wants_json(words: Sequence[str]) -> bool:
    """Return whether the arguments request JSON, so that a failure to parse them is shown as JSON too."""
    for word in words:
        if word == "--":
            return False
        if word in ("-j", "--json"):
            return True
    return False


def leading(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the global options before the command, and the remaining arguments; raises UsageError."""
    given: dict[str, Any] = {}
    left = list(words)
    while left and left[0].startswith("-"):
        flag = _BY_SPELLING.get(left[0].partition("=")[0])
        if flag is None:
            from natsctl.cli.framework.resolve import did_you_mean

            raise _usage_error(f"unknown flag {left[0]}", did_you_mean(left[0], _BY_SPELLING))
        _take(flag, left, given)
    return given, left


class Dash(str):
    """A lone `-` argument, which the nats tool reads as an empty text; after `--` it is a plain `-`."""

    __slots__ = ()


class Words(NamedTuple):
    """The arguments of a command line without its global options: all of them, and sorted."""

    all: list[str]
    flags: list[tuple[str, str | None]]
    """The flags of the command, each with its value; None for a switch."""
    arguments: list[str]
    unusual: bool = False
    """Whether some are not sorted: flags that the command does not have or that lack a value, several in one word."""


def take_out(
    words: Sequence[str], own: Mapping[str, bool], of_noun: GlobalFlag | None = None
) -> tuple[dict[str, Any], Words]:
    """Return the global options among a command's arguments, and the rest; raises UsageError.

    `own` are the command's flags, and whether each takes a value, which is then never read as a flag. Words after
    `--` are arguments. `of_noun` is treated like a global option. A lone `-` becomes a Dash.
    """
    known = {**_BY_SPELLING, **dict.fromkeys(of_noun.spellings if of_noun else (), of_noun)}
    given: dict[str, Any] = {}
    kept = Words([], [], [])
    unusual = False
    left = list(words)
    while left:
        name = left[0].partition("=")[0]
        if left[0] == "--":
            kept.all.extend(left)
            kept.arguments.extend(left[1:])
            break
        if name in own:
            unusual |= _keep(left, own[name], kept)
        elif flag := known.get(name):
            _take(flag, left, given)
        else:
            word = left.pop(0)
            word = Dash(word) if word == "-" else word
            kept.all.append(word)
            kept.arguments.append(word)
            unusual |= word.startswith("-") and word != "-"
    return given, kept._replace(unusual=unusual)


def _keep(left: list[str], takes_value: bool, kept: Words) -> bool:
    """Move one flag of the command, with its value, from `left` to `kept`; return whether that is unusual."""
    word = left.pop(0)
    kept.all.append(word)
    name, equals, value = word.partition("=")
    if not takes_value:
        kept.flags.append((name, None))
        return bool(equals)
    if equals:
        kept.flags.append((name, value))
        return not name.startswith("--")
    if not left:
        return True
    kept.all.append(left[0])
    kept.flags.append((name, left.pop(0)))
    return False


def _take(flag: GlobalFlag, left: list[str], given: dict[str, Any]) -> None:
    """Move one option, with its value, from `left` to `given`; raises UsageError."""
    name, equals, value = left.pop(0).partition("=")
    if not flag.metavar:
        if equals:
            raise _usage_error(f"{name} takes no value")
        given[flag.field] = True
        return
    if not equals:
        if not left:
            raise _usage_error(f"{name} needs a value ({flag.metavar})")
        value = left.pop(0)
    if not value and flag.field not in _MAY_BE_EMPTY:
        raise _usage_error(f"{name} is empty", "leave the flag out to mean none; is a variable unset?")
    try:
        given[flag.field] = flag.read(value)
    except ValueError as failure:
        raise _usage_error(f"{name}: {failure}") from failure


def _usage_error(text: str, hint: str = "") -> Exception:
    """Return a UsageError; imported here, as root help must not import the models that errors use."""
    from natsctl.api.errors import UsageError

    return UsageError(text, hint=hint)
