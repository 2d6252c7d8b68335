"""Keys of nats.conf that say what is logged, how, and where."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from natsctl.server.conf.setter import Setter, set_option
from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import flag_of, number_of, path_of, text_of
from natsctl.server.options import ServerOptions


def _syslog(options: ServerOptions, item: Item) -> ServerOptions:
    if flag_of(item):
        raise item.fault("syslog: not available in natsctl server; log to stderr or to a file, which syslog can read")
    return options


def _remote_syslog(options: ServerOptions, item: Item) -> ServerOptions:
    if text_of(item):
        raise item.fault("remote_syslog: not available in natsctl server; log to stderr or to a file")
    return options


def _also_traces(options: ServerOptions, item: Item) -> ServerOptions:
    return replace(options, trace=flag_of(item))


LOGGING: Final[dict[str, Setter]] = {
    "debug": set_option("debug", flag_of),
    "trace": set_option("trace", flag_of),
    "trace_verbose": _also_traces,
    "trace_headers": _also_traces,
    "logtime": set_option("log_time", flag_of),
    "logtime_utc": set_option("log_utc", flag_of),
    "logfile": set_option("log_file", path_of),
    "log_file": set_option("log_file", path_of),
    "logfile_size_limit": set_option("log_size_limit", number_of),
    "log_size_limit": set_option("log_size_limit", number_of),
    "logfile_max_num": set_option("log_max_files", number_of),
    "log_max_num": set_option("log_max_files", number_of),
    "syslog": _syslog,
    "remote_syslog": _remote_syslog,
}
