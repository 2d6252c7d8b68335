"""The flags of `natsctl server run`: the reference server's own spellings, and what each one sets."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from natsctl.api.units import parse_duration
from natsctl.server.goflags import FlagError, FlagSpec, Given, Kind, parse_flags
from natsctl.server.options import DEFAULT_HOST, DEFAULT_PORT, ServerOptions, SyncPolicy, TlsOptions

_SUPPORTED: Final[tuple[tuple[str, Kind, tuple[str, ...]], ...]] = (
    ("host", "text", ("a", "addr", "net")),
    ("port", "int", ("p", "port")),
    ("server_name", "text", ("n", "name", "server_name")),
    ("jetstream", "bool", ("js", "jetstream")),
    ("store_dir", "text", ("sd", "store_dir")),
    ("sync", "text", ("sync",)),
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
    ("log_file", "text", ("l", "log")),
    ("log_time", "bool", ("T", "logtime")),
    ("debug", "bool", ("D", "debug")),
    ("trace", "bool", ("V", "trace")),
    ("trace_verbose", "bool", ("VV",)),
    ("debug_trace", "bool", ("DV",)),
    ("debug_trace_verbose", "bool", ("DVV",)),
    ("version", "bool", ("v", "version")),
    ("help", "bool", ("h", "help")),
)

_NOT_HERE: Final[tuple[tuple[str, Kind, tuple[str, ...]], ...]] = (
    ("the monitoring port", "int", ("m", "http_port")),
    ("the monitoring port", "int", ("ms", "https_port")),
    ("a configuration file", "text", ("c", "config")),
    ("the check of a configuration file", "bool", ("t",)),
    ("profiling", "int", ("profile",)),
    ("logging to syslog", "bool", ("s", "syslog")),
    ("logging to a remote syslog", "text", ("r", "remote_syslog")),
    ("a log size limit", "int", ("log_size_limit",)),
    ("signalling another server (use `kill`)", "text", ("sl", "signal")),
)

_CLUSTER: Final[tuple[tuple[Kind, tuple[str, ...]], ...]] = (
    ("text", ("cluster", "cluster_listen", "cluster_name", "cluster_advertise", "routes", "client_advertise")),
    ("bool", ("no_advertise",)),
    ("int", ("connect_retries",)),
)

_REFUSED: Final = {
    **{name: text for text, _, names in _NOT_HERE for name in names},
    **{name: "" for _, names in _CLUSTER for name in names},
}

_SPECS: Final = {
    **{name: FlagSpec(setting, kind) for setting, kind, names in _SUPPORTED for name in names},
    **{name: FlagSpec(f"refused {name}", kind) for _, kind, names in _NOT_HERE for name in names},
    **{name: FlagSpec(f"refused {name}", kind) for kind, names in _CLUSTER for name in names},
}

USAGE: Final = """\
Usage: natsctl server run [options]

Server Options:
    -a, --addr, --net <host>         Bind to host address (default: 0.0.0.0)
    -p, --port <port>                Use port for clients (default: 4222; -1: any free port)
    -n, --name, --server_name <name> Server name (default: the server id)
    -P, --pid <file>                 File to store the process id
        --ports_file_dir <dir>       Create nats-server_<pid>.ports with the listen addresses in this folder
    -h, --help                       Show this message
    -v, --version                    Show version

JetStream Options:
    -js, --jetstream                 Enable JetStream
    -sd, --store_dir <dir>           Set the storage folder (the store lives in <dir>/jetstream)
        --sync <policy>              When messages are synced to disk: always (before every ack; default),
                                     a duration such as 1s, or never

Logging Options:
    -l, --log <file>                 File to redirect log output
    -T, --logtime                    Timestamp log entries (default: true)
    -D, --debug                      Enable debugging output
    -V, --trace                      Trace what connections send and receive
    -DV                              Debug and trace

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

Flags have one or two dashes; values follow a blank or `=`. Monitoring (-m), configuration files (-c) and clusters
are not available in this version: run the reference nats-server for a cluster, natsctl's commands work with it.
"""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a command line asks for: to run with `options`, or to print the version or the help."""

    action: Literal["run", "version", "help"]
    options: ServerOptions


def parse_command_line(argv: Sequence[str]) -> CommandLine:
    """Return what `argv` (without the command's own name) asks for; raises FlagError."""
    given = parse_flags(argv, _SPECS)
    if given.flag("help") or given.rest[:1] == ["help"]:
        return CommandLine("help", ServerOptions())
    if given.flag("version") or given.rest[:1] == ["version"]:
        return CommandLine("version", ServerOptions())
    if given.rest:
        raise FlagError(f"unrecognized command: {given.rest[0]!r}")
    _refuse(given)
    return CommandLine("run", _options(given))


def _refuse(given: Given) -> None:
    for setting, spelled in given.spelled.items():
        kind, _, name = setting.partition(" ")
        if kind != "refused":
            continue
        text = _REFUSED[name]
        if text:
            raise FlagError(f"{spelled}: {text} is not available in this version of natsctl server")
        raise FlagError(f"{spelled}: natsctl server is a single node; run a cluster with nats-server")


def _options(given: Given) -> ServerOptions:
    verbose = given.flag("debug_trace") or given.flag("debug_trace_verbose")
    _check_credentials(given)
    return ServerOptions(
        host=given.text("host", DEFAULT_HOST) or DEFAULT_HOST,
        port=_port(given),
        server_name=_server_name(given),
        jetstream=given.flag("jetstream") or (bool(given.text("store_dir")) and "jetstream" not in given.values),
        store_dir=_path(given, "store_dir"),
        sync=_sync(given.text("sync", "always")),
        user=given.text("user"),
        password=given.text("password"),
        token=given.text("token"),
        tls=_tls(given),
        log_file=_path(given, "log_file"),
        log_time=given.flag("log_time", True),
        debug=given.flag("debug") or verbose,
        trace=given.flag("trace") or given.flag("trace_verbose") or verbose,
        pid_file=_path(given, "pid_file"),
        ports_file_dir=_path(given, "ports_file_dir"),
    )


def _path(given: Given, setting: str) -> Path | None:
    text = given.text(setting)
    return Path(text) if text else None


def _port(given: Given) -> int:
    port = given.number("port", DEFAULT_PORT)
    if not -1 <= port <= 65535:
        raise FlagError(f"{given.spelled['port']}: invalid port {port}")
    return DEFAULT_PORT if port == 0 else port


def _server_name(given: Given) -> str:
    name = given.text("server_name")
    if any(character.isspace() for character in name):
        raise FlagError(f"{given.spelled['server_name']}: server name cannot contain spaces")
    return name


def _check_credentials(given: Given) -> None:
    if given.text("token") and given.text("user"):
        raise FlagError("cannot have both a token (--auth) and a user (--user)")
    if given.text("user") and "password" not in given.values:
        raise FlagError("--user needs --pass")
    if given.text("password") and not given.text("user"):
        raise FlagError("--pass needs --user")


def _sync(text: str) -> SyncPolicy:
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
