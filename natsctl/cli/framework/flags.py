"""Flags of commands: shared ones, and flags that set one field of a configuration.

A table of fields (of a stream, a consumer, a bucket) says for each flag which field it sets. Commands take all flags of
a table with `@flagged(TABLE)`: the decorated function has a parameter `given: Given` that receives the flags that
were on the command line, in wire values, and only those. So "not given" and "given as zero" never mix; prompts and
`--help` come from the same rows.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence

from natsctl.api.errors import UsageError
from natsctl.api.subjects import subject_fault
from natsctl.api.units import SECOND, parse_duration, parse_length, parse_size
from natsctl.cli.framework.command_line import Parameter
from natsctl.cli.framework.parameters import WHOLE_MAX, WHOLE_MIN, Argument, Option
from natsctl.hints import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from natsctl.spark.session import SparkOptions


Given = dict[str, Any]
"""Flag (`--max-age`) → the wire value that was asked for."""

Config = dict[str, Any]

LARGEST_MESSAGE_BYTES = 2**31 - 1
"""The largest `max_msg_size`: a signed number of 32 bits on the server."""


class FlagKind(NamedTuple):
    """Kind of a flag: how its text becomes one wire value."""

    metavar: str
    read: Callable[[str], Any]
    repeated: bool = False
    gather: Callable[[list[Any]], Any] | None = None
    """Combines the values of a repeatable flag into one."""
    switch: bool = False
    negates: bool = True
    """Whether a switch has a `--no-` form too."""

    def named(self, metavar: str) -> FlagKind:
        return self._replace(metavar=metavar)


def _duration(text: str) -> int:
    return -1 if text == "-1" else parse_length(text)


def _whole(text: str) -> int:
    try:
        number = int(text.replace("_", ""))
    except ValueError:
        raise ValueError(f"expected a whole number, not {text!r}") from None
    if not WHOLE_MIN <= number <= WHOLE_MAX:
        raise ValueError(f"{text} is too {'large' if number > 0 else 'small'}: expected {WHOLE_MIN} to {WHOLE_MAX}")
    return number


def _limit(text: str) -> int:
    number = _whole(text)
    if number < -1:
        raise ValueError(f"expected at least -1, which means no limit, not {text}")
    return number


def _count(text: str) -> int:
    number = _whole(text)
    if number < 0:
        raise ValueError(f"expected a number that is not negative, not {text}")
    return number


def _message_size(text: str) -> int:
    size = parse_size(text)
    if size > LARGEST_MESSAGE_BYTES:
        raise ValueError(f"expected at most {LARGEST_MESSAGE_BYTES} bytes, not {text}")
    return size


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _some(parts: list[list[str]]) -> list[str]:
    if not (words := flat(parts)):
        raise ValueError("it is empty")
    return words


def flat(parts: list[list[str]]) -> list[str]:
    return list(dict.fromkeys(word for part in parts for word in part))


def _pair(text: str) -> tuple[str, str]:
    cut = min((at for at in (text.find("="), text.find(":")) if at > 0), default=-1)
    if cut < 0:
        raise ValueError(f"expected KEY=VALUE, not {text!r}")
    return text[:cut].strip(), text[cut + 1 :].strip()


def _source(text: str) -> Config:
    if not text.lstrip().startswith("{"):
        return {"name": text}
    try:
        source = json.loads(text)
    except ValueError as error:
        raise ValueError(f"expected a stream name or a JSON object: {error}") from None
    if not source.get("name"):
        raise ValueError('the JSON object needs a "name"')
    return dict(source)


TEXT = FlagKind("TEXT", str)
SUBJECT = FlagKind("SUBJECT", str)
SUBJECTS = FlagKind("SUBJECT[,SUBJECT]", _words, repeated=True, gather=flat)
WORDS = FlagKind("NAME[,NAME]", _words, repeated=True, gather=flat)
SOME_SUBJECTS = FlagKind("SUBJECT[,SUBJECT]", _words, repeated=True, gather=_some)
WHOLE = FlagKind("N", _whole)
LIMIT = FlagKind("N", _limit)
COUNT = FlagKind("N", _count)
SIZE = FlagKind("SIZE", parse_size)
MESSAGE_SIZE = FlagKind("SIZE", _message_size)
DURATION = FlagKind("DURATION", _duration)
SWITCH = FlagKind("", bool, switch=True)
ON = FlagKind("", bool, switch=True, negates=False)
PAIRS = FlagKind("KEY=VALUE", _pair, repeated=True, gather=dict)
SOURCE = FlagKind("NAME|JSON", _source)
SOURCES = FlagKind("NAME|JSON", _source, repeated=True, gather=list)


def choice(*words: str, **spelled: str) -> FlagKind:
    """Return a kind that accepts one of `words`, or a name in `spelled` for its wire value, in any case."""
    values = {**{word: word for word in words}, **spelled}

    def read(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(f"expected one of {', '.join(values)}, not {text!r}")
        return values[text.lower()]

    return FlagKind("|".join(words), read)


Place = Callable[[Config, Any], None]


class Flag(NamedTuple):
    """One row: the flag, its target (a dotted field, or a function that sets it), and the commands that offer it."""

    name: str
    kind: FlagKind
    to: str | Place
    help: str
    add: bool = True
    edit: bool = True
    aliases: tuple[str, ...] = ()
    default: str = ""
    """Value without the flag, for `--help`."""

    def place(self, config: Config, value: Any) -> None:
        if isinstance(self.to, str):
            put(config, self.to, value)
        else:
            self.to(config, value)

    @property
    def parameter(self) -> str:
        """Return the name of its parameter in a command function, distinct from the function's own."""
        return "flag_" + self.name.lstrip("-").replace("-", "_")

    def read(self, words: Any) -> Any:
        """Return the wire value of the text on the command line. Raises UsageError that names the flag."""
        if self.kind.switch:
            return words
        try:
            if self.kind.gather is None:
                return self.kind.read(words)
            return self.kind.gather([self.kind.read(word) for word in words])
        except ValueError as error:
            raise UsageError(f"{self.name}: {error}") from error

    def declared(self) -> Parameter:
        help = f"{self.help} [{self.default}]" if self.default else self.help
        if self.kind.switch:
            alone = self.name.startswith("--no-") or not self.kind.negates
            names = self.name if alone else f"{self.name}/--no-{self.name.removeprefix('--')}"
            return Parameter(self.parameter, bool | None, Option(names, *self.aliases, help=help), None)
        option = Option(self.name, *self.aliases, help=help, metavar=self.kind.metavar)
        return Parameter(self.parameter, list[str] | None if self.kind.repeated else str | None, option, None)


def without_defaults(table: Sequence[Flag]) -> tuple[Flag, ...]:
    """Return the table without defaults, for commands that only change given fields."""
    return tuple(flag._replace(default="") for flag in table)


def put(config: Config, path: str, value: Any) -> None:
    """Set a dotted field; the objects on its path are created, or copied."""
    head, dot, rest = path.partition(".")
    if not dot:
        config[head] = value
        return
    below = dict(config.get(head) or {})
    put(below, rest, value)
    config[head] = below


def inverted(field: str) -> Place:
    return lambda config, value: put(config, field, not value)


def removed(field: str) -> Place:
    def place(config: Config, value: Any) -> None:
        if value:
            config.pop(field, None)

    return place


def placed(field: str) -> Place:
    """Return a setter for a part of the placement; a placement without any is removed."""

    def place(config: Config, value: Any) -> None:
        put(config, f"placement.{field}", value)
        config["placement"] = {key: part for key, part in config["placement"].items() if part}
        if not config["placement"]:
            del config["placement"]

    return place


def _add_metadata(config: Config, value: Mapping[str, str]) -> None:
    config["metadata"] = {**(config.get("metadata") or {}), **value}


def _edit_metadata(config: Config, value: Mapping[str, str]) -> None:
    _add_metadata(config, value)
    config["metadata"] = {key: text for key, text in config["metadata"].items() if text or key not in value}


METADATA: tuple[Flag, ...] = (
    Flag("--metadata", PAIRS, _add_metadata, "attach a key and value", edit=False),
    Flag("--metadata", PAIRS, _edit_metadata, "attach a key and value; an empty value removes the key", add=False),
)


def apply(config: Config, table: Sequence[Flag], given: Given) -> None:
    """Set the fields of every given flag of the table."""
    for flag in table:
        if flag.name in given:
            flag.place(config, given[flag.name])


def fields_of(table: Sequence[Flag], given: Given, **fixed: Any) -> Config:
    fields: Config = dict(fixed)
    apply(fields, table, given)
    return fields


def check_subjects(subjects: object) -> None:
    for subject in subjects if isinstance(subjects, list | tuple) else ():
        if isinstance(subject, str) and (fault := subject_fault(subject)):
            raise UsageError(fault)


Function = TypeVar("Function", bound=Callable[..., Any])


def flagged(table: Sequence[Flag]) -> Callable[[Function], Function]:
    """Make a command take all flags of `table`; its parameter `given` receives the given ones."""

    def mark(function: Function) -> Function:
        function.flag_table = table  # type: ignore[attr-defined]  # read by Command
        return function

    return mark


def positive_seconds(text: str) -> float:
    seconds = parse_duration(text) / 1e9
    if seconds <= 0:
        raise ValueError("expected a duration above zero")
    return seconds


def interval_seconds(text: str) -> float:
    """Return the seconds between two refreshes; a bare number is seconds, as for the nats tool."""
    return positive_seconds(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)


def length_option(*names: str, help: str) -> Option:
    return Option(*names, metavar="DURATION", help=help, read=positive_seconds)


Json = Annotated[bool, Option("--json", "-j", help="show the answer as JSON")]
Force = Annotated[bool, Option("--force", "-f", "--yes", help="do not ask")]
ConfigFile = Annotated[
    str | None, Option("--config", metavar="FILE", help="configuration file, JSON or YAML; - for stdin")
]
Validate = Annotated[bool, Option("--validate", help="validate and print the configuration, create nothing")]
Output = Annotated[
    str | None, Option("--output", metavar="FILE", help="write the configuration to a file, create nothing")
]
Defaults = Annotated[bool, Option("--defaults", help="use defaults instead of asking")]
Unset = Annotated[
    list[str] | None,
    Option("--unset", metavar="FIELD", help="remove a field, so that the server's default applies"),
]
Names = Annotated[bool, Option("--names", "-n", help="names only, one on a line")]
Details = Annotated[bool, Option("--details", help="with -j, whole objects instead of names")]
Raw = Annotated[bool, Option("--raw", "-r", help="bodies only, unchanged")]
IfNotExists = Annotated[bool, Option("--if-not-exists", help="accept an existing one, whatever its configuration")]
MissingOk = Annotated[bool, Option("--missing-ok", help="succeed if it does not exist")]
NoSelect = Annotated[bool, Option("--no-select", help="do not ask which one")]
Watch = Annotated[
    float | None, Option("--watch", metavar="DURATION", help="refresh at this interval", read=interval_seconds)
]
Rounds = Annotated[int, Option("--count", metavar="N", help="end after N refreshes", min=0)]
Progress = Annotated[bool, Option("--progress/--no-progress", help="show a progress bar on a terminal")]
All = Annotated[bool, Option("--all", "-a", help="also streams of KV, object store and MQTT")]
StreamName = Annotated[str | None, Argument(metavar="STREAM", help="name of the stream")]
ConsumerName = Annotated[str | None, Argument(metavar="CONSUMER", help="name of the consumer")]
Header = Annotated[list[str] | None, Option("--header", "-H", metavar="KEY:VALUE", help="a header")]


def check_details(details: bool, json: bool) -> None:
    if details and not json:
        raise UsageError("--details is for -j")


def check_rounds(watch: float | None, rounds: int) -> None:
    if watch is None and rounds:
        raise UsageError("--count is for --watch")


_LOCAL = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)?"
FORMS = "a time (2026-01-31T12:00:00Z, or 2026-01-31 12:00 in local time) or a duration such as 1h"


def read_moment(text: str, *, back: bool = False) -> int:
    """Return nanoseconds since the epoch; a duration counts from now, `back` into the past. Raises ValueError.

    A time without an offset is in the zone of this machine.
    """
    from natsctl.api.times import parse_time

    text = text.strip()
    if re.fullmatch(_LOCAL, text):
        return _local(text)
    if text[:4].isdigit() and text[4:5] == "-":
        return parse_time(text)
    try:
        length = abs(parse_duration(text))
    except ValueError:
        raise ValueError(f"expected {FORMS}, not {text!r}") from None
    return time.time_ns() + (-length if back else length)


def read_past_moment(text: str) -> int:
    return read_moment(text, back=True)


def _local(text: str) -> int:
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        raise ValueError(f"time {text!r}: {error}") from error
    return int(moment.timestamp()) * SECOND + moment.microsecond * 1000


Master = Annotated[
    str,
    Option(
        "--master",
        metavar="URL",
        help="where Spark runs: local[N], spark://host:7077, yarn [the one of natsctl spark start, else local]",
    ),
]
Remote = Annotated[str, Option("--remote", metavar="URL", help="Spark Connect server, sc://host:port")]
JavaPath = Annotated[
    str,
    Option("--java", metavar="PATH", help="Java to run Spark on, 17 or newer (NATSCTL_JAVA)"),
]
Conf = Annotated[
    list[str] | None,
    Option("--conf", metavar="KEY=VALUE", help="a Spark setting; may be repeated"),
]


class SparkFlags(NamedTuple):
    """Options of Spark for a command: a bundle of flags for commands."""

    master: Master = ""
    remote: Remote = ""
    java: JavaPath = ""
    conf: Conf = None

    @property
    def options(self) -> SparkOptions:
        from natsctl.spark.session.spark_options import SparkOptions, parse_conf

        options = SparkOptions(self.master, self.remote, self.java, parse_conf(self.conf))
        options.check()
        return options
