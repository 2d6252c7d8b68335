"""The command line of `natsctl server run`: nats-server's flags and their spelling, and the help text.

It is parsed by the rules of Go's `flag` package: a flag has one or two dashes; its value stands after `=` or is the
next argument; a boolean flag takes a value after `=` only; the first argument that is no flag, or `--`, ends the flags.
Values are checked by their kind first and given a meaning afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.units import parse_duration
from natsctl.server.conf.checks import option_faults
from natsctl.server.options import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    LOG_FORMATS,
    NO_PROFILER,
    SINGLE_NODE,
    ServerOptions,
    SyncPolicy,
    TlsOptions,
)

if TYPE_CHECKING:
    from pathlib import Path


Kind = Literal["bool", "int", "text", "texts"]
"""The kind of a flag's value; `texts` gathers the values of a flag that is given several times."""
Value = bool | int | str | tuple[str, ...]

_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))


class FlagError(Exception):
    """A malformed command line; the text names the flag and the reason."""


class FlagSpec(msgspec.Struct, frozen=True):
    """One flag: the name of the setting that it fills, and the kind of its value."""

    setting: str
    kind: Kind


class Given(msgspec.Struct, frozen=True):
    """A parsed command line: values by setting (the last one wins), the spelling used, and the other arguments."""

    values: dict[str, Value]
    spelled: dict[str, str]
    rest: list[str]

    def text(self, setting: str, default: str = "") -> str:
        return str(self.values.get(setting, default))

    def number(self, setting: str, default: int) -> int:
        found = self.values.get(setting, default)
        return found if isinstance(found, int) else default

    def texts(self, setting: str) -> tuple[str, ...]:
        found = self.values.get(setting, ())
        return found if isinstance(found, tuple) else ()

    def flag(self, setting: str, default: bool = False) -> bool:
        return bool(self.values.get(setting, default))


def parse_flags(argv: Sequence[str], specs: Mapping[str, FlagSpec]) -> Given:
    given = Given({}, {}, [])
    arguments = list(argv)
    while arguments:
        argument = arguments.pop(0)
        if len(argument) < 2 or argument[0] != "-":
            given.rest.extend([argument, *arguments])
            return given
        if argument == "--":
            given.rest.extend(arguments)
            return given
        name, has_value, value = argument[2 if argument.startswith("--") else 1 :].partition("=")
        if not name or name[0] == "-":
            raise FlagError(f"bad flag syntax: {argument}")
        spec = specs.get(name)
        if spec is None:
            raise FlagError(f"flag provided but not defined: -{name}")
        if spec.kind == "bool":
            value = value if has_value else "true"
        elif not has_value:
            if not arguments:
                raise FlagError(f"flag needs an argument: -{name}")
            value = arguments.pop(0)
        if spec.kind == "texts":
            given.values[spec.setting] = (*given.texts(spec.setting), value)
        else:
            given.values[spec.setting] = _value(name, spec.kind, value)
        given.spelled[spec.setting] = argument.partition("=")[0]
    return given


def _value(name: str, kind: Kind, text: str) -> bool | int | str:
    if kind == "text":
        return text
    if kind == "bool":
        if text not in _TRUE and text not in _FALSE:
            raise FlagError(f'invalid boolean value "{text}" for -{name}: parse error')
        return text in _TRUE
    try:
        return int(text, 0)
    except ValueError:
        raise FlagError(f'invalid value "{text}" for flag -{name}: parse error') from None


_SUPPORTED: Final[tuple[tuple[str, Kind, tuple[str, ...]], ...]] = (
    ("host", "text", ("a", "addr", "net")),
    ("port", "int", ("p", "port")),
    ("server_name", "text", ("n", "name", "server_name")),
    ("jetstream", "bool", ("js", "jetstream")),
    ("store_dir", "text", ("sd", "store_dir")),
    ("sync", "text", ("sync",)),
    ("archive_version", "int", ("archive_version",)),
    ("apply", "texts", ("apply",)),
    ("apply_account", "text", ("apply_account",)),
    ("apply_prune", "bool", ("apply_prune",)),
    ("user", "text", ("user",)),
    ("password", "text", ("pass",)),
    ("token", "text", ("auth",)),
    ("tls", "bool", ("tls",)),
    ("tls_verify", "bool", ("tlsverify",)),
    ("tls_cert", "text", ("tlscert",)),
    ("tls_key", "text", ("tlskey",)),
    ("tls_ca", "text", ("tlscacert",)),
    ("pid_file", "text", ("P", "pid")),
    ("ports_file_dir", "text", ("ports_file_dir",)),
    ("http_port", "int", ("m", "http_port")),
    ("https_port", "int", ("ms", "https_port")),
    ("client_advertise", "text", ("client_advertise",)),
    ("signal", "text", ("sl", "signal")),
    ("config", "text", ("c", "config")),
    ("check", "bool", ("t",)),
    ("domain", "text", ("js_domain",)),
    ("log_file", "text", ("l", "log")),
    ("log_time", "bool", ("T", "logtime")),
    ("log_utc", "bool", ("logtime_utc",)),
    ("log_format", "text", ("log_format",)),
    ("syslog", "bool", ("s", "syslog")),
    ("remote_syslog", "text", ("r", "remote_syslog")),
    ("log_size_limit", "int", ("log_size_limit",)),
    ("max_traced_bytes", "int", ("max_traced_msg_len",)),
    ("unheeded", "text", ("cluster_name", "cluster_advertise")),
    ("unheeded", "int", ("connect_retries",)),
    ("unheeded", "bool", ("no_advertise",)),
    ("debug", "bool", ("D", "debug")),
    ("trace", "bool", ("V", "trace")),
    ("trace_verbose", "bool", ("VV",)),
    ("debug_trace", "bool", ("DV",)),
    ("debug_trace_verbose", "bool", ("DVV",)),
    ("version", "bool", ("v", "version")),
    ("help", "bool", ("h", "help")),
)

_REFUSED: Final[dict[str, tuple[Kind, str]]] = {
    **dict.fromkeys(("cluster", "cluster_listen", "routes"), ("text", SINGLE_NODE)),
    "profile": ("int", NO_PROFILER),
}
"""Flags of nats-server that are refused, each with the kind of its value and the reason."""

_SPECS: Final = {
    **{name: FlagSpec(setting, kind) for setting, kind, names in _SUPPORTED for name in names},
    **{name: FlagSpec(f"refused {name}", kind) for name, (kind, _) in _REFUSED.items()},
}


STARTED: Final = 0
NOT_STARTED: Final = 1
USAGE_ERROR: Final = 2


class StartDocuments(NamedTuple):
    paths: tuple[str, ...]
    account: str = ""
    """The account of the documents; empty: the only one that has JetStream."""
    prune: bool = False
    """True to remove assets of the same owner that the documents no longer name."""


class NotProvisionedError(NatsctlError):
    """The documents of a server that starts could not be applied; `code` is the exit status."""

    def __init__(self, failure: NatsctlError) -> None:
        super().__init__("\n  ".join(filter(None, (str(failure), failure.hint))))
        self.code = int(failure.exit_code)


def file_fault(error: Exception, path: Path | None = None) -> str:
    """Return the text of an error as Go writes it; `path` replaces the name of a temporary file."""
    if isinstance(error, OSError) and error.filename:
        return f"open {path or error.filename}: {(error.strerror or str(error)).lower()}"
    return str(error)


class CommandLine(msgspec.Struct, frozen=True):
    """The action of a command line: a server with `options`, a check of `config`, version or help, or a signal."""

    action: Literal["run", "check", "version", "help", "signal"]
    options: ServerOptions
    config: Path | None = None
    signal: str = ""
    """The signal and the process that it is for."""
    documents: StartDocuments | None = None
    """The documents that are applied before the server listens."""


def parse_command_line(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> CommandLine:
    """Return the command line in `argv`, without the command's own name; flags win over a configuration file.

    Raises FlagError, ConfError for faults in the file, OSError if it is unreadable.
    """
    given = parse_flags(argv, _SPECS)
    if given.flag("help") or given.rest[:1] == ["help"]:
        return CommandLine("help", ServerOptions())
    if given.flag("version") or given.rest[:1] == ["version"]:
        return CommandLine("version", ServerOptions())
    if given.rest:
        raise FlagError(f"unrecognized command: {given.rest[0]!r}")
    _refuse(given)
    if given.text("signal"):
        return CommandLine("signal", ServerOptions(), signal=given.text("signal"))
    config, base = _path(given, "config"), ServerOptions(store_dir=_path(given, "store_dir"))
    if config is None and given.flag("check"):
        raise UsageError("must specify [-c, --config] option to check configuration file syntax")
    if config is not None:
        from natsctl.server.conf.config import read_config

        base = read_config(config, base, environment or {})
    options = _options(given, base)
    for _, text in option_faults(options):
        raise FlagError(text)
    action: Literal["check", "run"] = "check" if given.flag("check") else "run"
    return CommandLine(action, options, config, documents=_documents(given, options))


def _documents(given: Given, options: ServerOptions) -> StartDocuments | None:
    paths = given.texts("apply")
    for setting in ("apply_account", "apply_prune"):
        if not paths and setting in given.spelled:
            raise FlagError(f"{given.spelled[setting]} needs --apply")
    if not paths:
        return None
    if not options.jetstream:
        raise FlagError("--apply needs JetStream: give -js, or a jetstream block in the configuration file")
    return StartDocuments(paths, given.text("apply_account"), given.flag("apply_prune"))


def _refuse(given: Given) -> None:
    for setting, spelled in given.spelled.items():
        kind, _, name = setting.partition(" ")
        if kind == "refused":
            raise FlagError(f"{spelled}: {_REFUSED[name][1]}")


def _options(given: Given, base: ServerOptions) -> ServerOptions:
    """Return `base` with the values of flags; a flag that was not given changes nothing."""
    _check_credentials(given)
    changes: dict[str, Any] = {
        setting: _READERS[setting](given, setting) if setting in _READERS else value
        for setting, value in given.values.items()
        if setting in ServerOptions.__struct_fields__ and setting not in _TLS_SETTINGS
    }
    for setting in ("debug_trace", "debug_trace_verbose"):
        if given.flag(setting):
            changes.update(debug=True, trace=True)
    if given.flag("trace_verbose"):
        changes["trace"] = True
    if any(given.values.get(setting) for setting in _TLS_SETTINGS):
        changes["tls"] = _tls(given)
    if {"user", "token"} & given.values.keys():
        changes = {"user": "", "password": "", "token": "", "users": (), "no_auth_user": "", **changes}
    return replace(base, **changes)


def _path(given: Given, setting: str) -> Path | None:
    text = given.text(setting)
    if not text:
        return None
    from pathlib import Path

    return Path(text)


def _port(given: Given, setting: str) -> int:
    port = given.number(setting, DEFAULT_PORT)
    if not -1 <= port <= 65535:
        raise FlagError(f"{given.spelled[setting]}: invalid port {port}")
    return DEFAULT_PORT if port == 0 and setting == "port" else port


def _server_name(given: Given, setting: str) -> str:
    name = given.text(setting)
    if any(character.isspace() for character in name):
        raise FlagError(f"{given.spelled[setting]}: server name cannot contain spaces")
    return name


def _check_credentials(given: Given) -> None:
    if given.text("token") and given.text("user"):
        raise FlagError("cannot have both a token (--auth) and a user (--user)")
    if given.text("user") and "password" not in given.values:
        raise FlagError("--user needs --pass")
    if given.text("password") and not given.text("user"):
        raise FlagError("--pass needs --user")


def _sync(given: Given, setting: str) -> SyncPolicy:
    text = given.text(setting)
    if text == "always":
        return "always"
    if text == "never":
        return "never"
    try:
        interval_ns = parse_duration(text)
    except ValueError:
        interval_ns = 0
    if interval_ns <= 0:
        raise FlagError(f"--sync: expected always, never or a duration such as 1s, got {text!r}")
    return interval_ns


def _archive_version(given: Given, setting: str) -> int:
    version = given.number(setting, 1)
    if version not in (1, 2):
        raise FlagError(f"{given.spelled[setting]}: expected 1 or 2, got {version}")
    return version


def _log_format(given: Given, setting: str) -> str:
    found = given.text(setting)
    if found not in LOG_FORMATS:
        raise FlagError(f"{given.spelled[setting]}: expected {' or '.join(LOG_FORMATS)}, got {found!r}")
    return found


def _syslog_url(given: Given, setting: str) -> str:
    from natsctl.server.log.syslog import parse_syslog_url

    url = given.text(setting)
    try:
        return url and parse_syslog_url(url) and url
    except ValueError as error:
        raise FlagError(f"{given.spelled[setting]}: {error}") from None


def _tls(given: Given) -> TlsOptions | None:
    named = [s for s in ("tls_cert", "tls_key", "tls_ca", "tls_verify") if given.values.get(s)]
    if not given.flag("tls") and not given.flag("tls_verify"):
        if named:
            raise FlagError(f"{given.spelled[named[0]]} needs --tls or --tlsverify")
        return None
    cert, key, ca = _path(given, "tls_cert"), _path(given, "tls_key"), _path(given, "tls_ca")
    if cert is None or key is None:
        raise FlagError("TLS needs --tlscert and --tlskey")
    verify = given.flag("tls_verify")
    if verify and ca is None:
        raise FlagError("--tlsverify needs --tlscacert")
    return TlsOptions(cert, key, ca, verify)


_TLS_SETTINGS: Final = ("tls", "tls_verify", "tls_cert", "tls_key", "tls_ca")

_READERS: Final[dict[str, Callable[[Given, str], Any]]] = {
    "host": lambda given, setting: given.text(setting) or DEFAULT_HOST,
    **dict.fromkeys(("port", "http_port", "https_port"), _port),
    **dict.fromkeys(("store_dir", "log_file", "pid_file", "ports_file_dir"), _path),
    "server_name": _server_name,
    "sync": _sync,
    "archive_version": _archive_version,
    "log_format": _log_format,
    "remote_syslog": _syslog_url,
}
"""Conversions of flag values to the options of the same name; other values are the options'."""


USAGE: Final = """\
Usage: natsctl server run [options]

Server Options:
    -a, --addr, --net <host>         Bind to host address (default: 0.0.0.0)
    -p, --port <port>                Use port for clients (default: 4222; -1: any free port)
    -n, --name, --server_name <name> Server name (default: the server id)
    -m, --http_port <port>           Use port for http monitoring
    -ms, --https_port <port>         Use port for https monitoring
        --client_advertise <address> Address that INFO gives to clients
    -c, --config <file>              Configuration file; flags win over it
    -t                               Test the configuration and exit
    -P, --pid <file>                 File to store the process id
    -sl, --signal <signal>[=<pid>]   Send a signal to a server that runs: ldm, stop, quit, term, reopen, reload;
                                     <pid> is a number or the path of a pid file
        --ports_file_dir <dir>       Create nats-server_<pid>.ports with the listen addresses in this folder
    -h, --help                       Show this message
    -v, --version                    Show version

JetStream Options:
    -js, --jetstream                 Enable JetStream
    -sd, --store_dir <dir>           Set the storage folder of JetStream (the store lives in <dir>/jetstream)
        --js_domain <domain>         Serve the API under $JS.<domain>.API too
        --sync <policy>              When messages are synced to disk: always (before every ack; default),
                                     a duration such as 1s, or never
        --archive_version <1|2>      Format of stream snapshots: 2, as nats-server 2.15 writes them (default),
                                     or 1, for every nats-server; both can be restored
        --apply <path>               Carry out these documents (files, folders; again for more) before clients can
                                     connect; `natsctl apply` does the same to a server that runs
        --apply_account <account>    The account that they are for, where more than one has JetStream
        --apply_prune                Remove assets of their owner that they no longer describe

Logging Options:
    -l, --log <file>                 File to redirect log output
    -T, --logtime                    Timestamp log entries (default: true)
        --logtime_utc                Timestamps in UTC instead of the local time zone
        --log_format <text|json>     Lines of text (default), or a JSON document for each
    -s, --syslog                     Log to the syslog of this machine
    -r, --remote_syslog <url>        Log to a syslog: udp://HOST:PORT, tcp://HOST:PORT or unix:PATH
        --log_size_limit <bytes>     Max size of a log file; then it is renamed
        --max_traced_msg_len <len>   Bytes of a message that a trace shows
    -D, --debug                      Enable debugging output
    -V, --trace                      Trace the protocol of connections
    -DV, -VV, -DVV                   Debug and trace, trace, debug and trace

Authorization Options:
        --user <user>                User required for connections
        --pass <password>            Password required for connections
        --auth <token>               Authorization token required for connections

TLS Options:
        --tls                        Enable TLS, do not verify clients
        --tlscert <file>             Server certificate file
        --tlskey <file>              Private key for the server certificate
        --tlsverify                  Enable TLS, verify client certificates
        --tlscacert <file>           Client certificate CA for verification

Flags have one or two dashes; values follow a blank or `=`. This server is one node: clusters, gateways and MQTT need
nats-server: `natsctl cluster run` starts one. docs/not-served.md lists the rest.
"""
