"""The files of a pipeline: its specification, natsctl's settings, faults in both, and new projects.

A new project fills a table from a stream, and a stream from the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Final

from natsctl.api.errors import ExitCode, NatsctlError, NotFoundError
from natsctl.api.units import parse_duration
from natsctl.spark.files.file_formats import local_path, spark_path
from natsctl.spark.source.driver_settings import server_settings
from natsctl.spark.source.errors import OptionError, StreamNotFoundError
from natsctl.spark.source.jetstream_api import Asking
from natsctl.spark.source.option_rules import check_acked, check_combination, check_order
from natsctl.spark.source.source_options import BATCH_READ, STREAM_READ, STREAM_WRITE, Options
from natsctl.spark.sql_tables import literal, quote
from natsctl.spark.stream_frames import split_json_options


@dataclass(frozen=True, order=True)
class ProjectFault:
    """One fault; `file` is relative to the project's folder, `line` counts from 1 and is 0 if unknown."""

    file: str
    line: int
    text: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}: {self.text}{hint}" if place else f"{self.text}{hint}"


class PipelineError(NatsctlError):
    """A pipeline's files cannot be used; `faults` are in the order of files and lines."""

    exit_code: ClassVar[int] = ExitCode.USAGE

    def __init__(self, faults: Sequence[ProjectFault]) -> None:
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class PipelineNotFoundError(NatsctlError):
    """There is no pipeline of that name, or in that folder."""

    exit_code: ClassVar[int] = ExitCode.NOT_FOUND


def check_tables(wanted: Iterable[str], known: Iterable[str]) -> None:
    """Raise NotFoundError for a name that is no table of the pipeline: Spark would ignore it silently."""
    names = sorted(known)
    folded = {name.lower() for name in names}
    for name in wanted:
        if name.lower() not in folded:
            raise NotFoundError(f"the pipeline has no table {name}", hint=f"it has {', '.join(names) or 'none'}")


Keys = tuple[str, ...]


def load_with_lines(path: Path) -> tuple[Any, dict[Keys, int]]:
    """Return the content of a file, and the line of each key of its mappings. Raises PipelineError, OSError."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except UnicodeDecodeError as failure:
        raise PipelineError([ProjectFault(path.name, 0, "it is not UTF-8 text")]) from failure
    except yaml.YAMLError as failure:
        mark = getattr(failure, "problem_mark", None)
        what = getattr(failure, "problem", None) or str(failure)
        raise PipelineError([ProjectFault(path.name, mark.line + 1 if mark else 0, f"not YAML: {what}")]) from failure
    lines: dict[Keys, int] = {}
    if root is not None:
        _collect(root, (), lines)
    return value, lines


def line_of(lines: dict[Keys, int], keys: Keys) -> int:
    """Return the line of a key, or of the nearest one above it that has a line; 0 without any."""
    while keys and keys not in lines:
        keys = keys[:-1]
    return lines.get(keys, 0)


def _collect(node: Any, above: Keys, lines: dict[Keys, int]) -> None:
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        keys = (*above, str(key.value))
        lines[keys] = key.start_mark.line + 1
        _collect(value, keys, lines)


FILE: Final = "natsctl.yml"
WILDCARDS: Final = "*?["


@dataclass(frozen=True)
class StreamView:
    """A stream as a view; `options` are of the data source, and a `batch` view is read as a whole by each update.

    With a `value_schema`, Spark's `from_json` parses the payloads by that and by `json_options`.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    batch: bool = False
    line: int = 0
    value_schema: str = ""
    json_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamSink:
    """A sink by that name; with `source`, what that view or table gets is written to it."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    line: int = 0


@dataclass(frozen=True)
class OwnSettings:
    """The file as a whole; `patterns` are names of streams with wildcards, each stream a view by its own name."""

    context: str = ""
    interval_s: float = 0.0
    java: str = ""
    master: str = ""
    remote: str = ""
    tables: str = "tables"
    conf: Mapping[str, str] = field(default_factory=dict)
    streams: tuple[StreamView, ...] = ()
    patterns: tuple[str, ...] = ()
    sinks: tuple[StreamSink, ...] = ()


_TEXTS: Final = ("context", "java", "master", "remote", "tables")
_KEYS: Final = (*_TEXTS, "interval", "conf", "streams", "sinks")


def load_own_settings(folder: Path) -> OwnSettings:
    """Return the settings of a project, empty without the file. Raises PipelineError with every fault."""
    path = folder / FILE
    if not path.is_file():
        return OwnSettings()
    said, lines = load_with_lines(path)
    return _Reader(lines).settings({} if said is None else said)


class _Reader:
    def __init__(self, lines: dict[Keys, int]) -> None:
        self._lines = lines
        self._faults: list[ProjectFault] = []

    def settings(self, said: Any) -> OwnSettings:
        if not isinstance(said, dict):
            raise PipelineError([ProjectFault(FILE, 1, f"expected keys such as streams, not {type(said).__name__}")])
        for key in said:
            if key not in _KEYS:
                self._fault((str(key),), f"unknown key {key!r}", f"known are {', '.join(_KEYS)}")
        streams, patterns = self._streams(said.get("streams"))
        found = OwnSettings(
            **{key: self._text((key,), said[key]) for key in _TEXTS if said.get(key) is not None},
            interval_s=self._interval(said.get("interval")),
            conf=self._options(("conf",), said.get("conf")),
            streams=streams,
            patterns=patterns,
            sinks=self._sinks(said.get("sinks")),
        )
        self._check_names([*found.streams, *found.sinks])
        if self._faults:
            raise PipelineError(self._faults)
        return found

    def _streams(self, said: Any) -> tuple[tuple[StreamView, ...], tuple[str, ...]]:
        """Return the views, and the patterns, of a list of names or of names with options."""
        if isinstance(said, list):
            named = {str(name): None for name in said}
        elif isinstance(said, dict):
            named = said
        else:
            if said is not None:
                self._fault(("streams",), "expected names of streams, as a list or with options")
            return (), ()
        patterns = tuple(name for name in named if any(char in name for char in WILDCARDS))
        views = []
        for name, given in named.items():
            keys = ("streams", str(name))
            if name in patterns:
                if given:
                    self._fault(keys, "a pattern has no options", "option streamPattern makes one view of many streams")
                continue
            options = self._options(keys, given)
            batch = options.pop("batch", "false")
            if batch not in ("true", "false"):
                self._fault((*keys, "batch"), f"expected true or false, not {batch!r}")
            line = line_of(self._lines, keys)
            views.append(StreamView(str(name), options, batch == "true", line, *_take_json(options)))
        return tuple(views), patterns

    def _sinks(self, said: Any) -> tuple[StreamSink, ...]:
        if said is not None and not isinstance(said, dict):
            self._fault(("sinks",), "expected names with options")
        sinks = []
        for name, given in (said if isinstance(said, dict) else {}).items():
            keys = ("sinks", str(name))
            options = self._options(keys, given)
            sinks.append(StreamSink(str(name), options, options.pop("from", ""), line_of(self._lines, keys)))
        return tuple(sinks)

    def _options(self, keys: Keys, said: Any) -> dict[str, str]:
        if said is None:
            return {}
        if not isinstance(said, dict):
            self._fault(keys, f"expected options, not {said!r}")
            return {}
        return {str(key): self._text((*keys, str(key)), value) for key, value in said.items() if value is not None}

    def _text(self, keys: Keys, value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return ",".join(value)
        if isinstance(value, dict | list):
            self._fault(keys, "expected a text or a number")
            return ""
        return str(value)

    def _interval(self, value: Any) -> float:
        """Return an interval in seconds; a bare number counts seconds."""
        if value is None:
            return 0.0
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return float(value)
        try:
            interval_s = parse_duration(str(value)) / 1e9
        except ValueError as failure:
            self._fault(("interval",), str(failure))
            return 0.0
        if interval_s <= 0:
            self._fault(("interval",), "expected a duration above zero, such as 30s")
        return interval_s

    def _check_names(self, named: list[StreamView | StreamSink]) -> None:
        """Check that names differ by more than case, because Spark ignores case."""
        seen: dict[str, str] = {}
        for one in named:
            other = seen.setdefault(one.name.lower(), one.name)
            if other is not one.name:
                text = f"{one.name!r} and {other!r} are one name for Spark"
                self._faults.append(ProjectFault(FILE, one.line, text, "give one another name, with the option stream"))

    def _fault(self, keys: Keys, text: str, hint: str = "") -> None:
        self._faults.append(ProjectFault(FILE, line_of(self._lines, keys), f"{'.'.join(keys)}: {text}", hint))


def _take_json(options: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Remove the options about JSON; return the schema of the payloads, "" without one, and options of `from_json`."""
    spelled = {name.lower(): name for name in options}
    if "valueschema" not in spelled:
        return "", {}
    schema = options.pop(spelled["valueschema"])
    if options.get(spelled.get("valueformat", ""), "").lower() == "json":
        del options[spelled["valueformat"]]
    source_options, json_options = split_json_options(options)
    if "valuemode" in spelled:
        json_options["mode"] = options[spelled["valuemode"]]
    options.clear()
    options.update(source_options)
    return schema, json_options


SPECIFICATIONS: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
_TEXTS_PROJECT: Final = ("name", "storage", "catalog", "database", "schema")
_KEYS_PROJECT: Final = (*_TEXTS_PROJECT, "configuration", "libraries")


@dataclass(frozen=True)
class Project:
    """A pipeline as described by its folder; `storage` is a URL, local if written as a path."""

    folder: Path
    specification: Path
    name: str
    storage: str
    catalog: str | None
    database: str | None
    configuration: Mapping[str, str]
    libraries: tuple[str, ...]
    own: OwnSettings

    @property
    def state_folder(self) -> Path:
        return self.folder / ".natsctl"

    @property
    def tables(self) -> Path:
        """The folder of tables, unless Spark's settings name another."""
        return (self.folder / self.own.tables).absolute()

    @property
    def checkpoints(self) -> Path | None:
        """The folder of the checkpoints; None if it is not on this machine."""
        found = local_path(self.storage)
        return found / "_checkpoints" if found else None

    def definitions(self) -> list[Path]:
        """Return the files that define the pipeline, in the order of their names, each once."""
        found: dict[Path, None] = {}
        for include in self.libraries:
            pattern = f"{include}/*" if include.endswith("/**") else include
            for path in sorted(self.folder.glob(pattern)):
                if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                    found[path] = None
        return list(found)


def find_project(where: Path | None = None) -> Project:
    """Return the project of that folder or specification, or without one of this folder or one above it.

    Raises PipelineNotFoundError, PipelineError.
    """
    if where is not None and where.is_file():
        return load_project(where)
    for folder in [where] if where is not None else [Path.cwd(), *Path.cwd().parents]:
        for name in SPECIFICATIONS:
            if (folder / name).is_file():
                return load_project(folder / name)
    place = f"in {where}" if where is not None else "in this folder or above it"
    raise PipelineNotFoundError(f"no {SPECIFICATIONS[0]} {place}", hint="natsctl pipeline init NAME makes a project")


def load_project(specification: Path) -> Project:
    """Return the project of a specification. Raises PipelineError with every fault of both files, OSError."""
    folder = specification.absolute().parent
    said, lines = load_with_lines(specification)
    faults = list(_faults(said, lines, specification.name))
    own = OwnSettings()
    try:
        own = load_own_settings(folder)
    except PipelineError as failure:
        faults += failure.faults
    if faults:
        raise PipelineError(faults)
    storage = str(said["storage"])
    if "://" not in storage:
        storage = spark_path((folder / storage.removeprefix("file:")).resolve())
    return Project(
        folder=folder,
        specification=specification.absolute(),
        name=str(said["name"]),
        storage=storage,
        catalog=said.get("catalog"),
        database=said.get("database") or said.get("schema"),
        configuration={str(key): str(value) for key, value in (said.get("configuration") or {}).items()},
        libraries=tuple(entry["glob"]["include"] for entry in said.get("libraries") or ()),
        own=own,
    )


def _faults(said: Any, lines: dict[Keys, int], file: str) -> Iterator[ProjectFault]:
    if not isinstance(said, dict):
        yield ProjectFault(file, 1, "expected keys such as name and storage")
        return
    for key in said:
        if key not in _KEYS_PROJECT:
            hint = "natsctl's additions belong in natsctl.yml" if key in ("streams", "sinks", "interval") else ""
            yield ProjectFault(file, line_of(lines, (str(key),)), f"unknown key {key!r}", hint)
    for key in ("name", "storage"):
        if not said.get(key):
            yield ProjectFault(file, 1, f"{key} is missing")
    for key in _TEXTS_PROJECT:
        if said.get(key) is not None and not isinstance(said[key], str):
            yield ProjectFault(file, line_of(lines, (key,)), f"{key}: expected a text, not {said[key]!r}")
    configuration = said.get("configuration")
    for key, value in configuration.items() if isinstance(configuration, dict) else ():
        if not isinstance(value, str):
            yield ProjectFault(file, line_of(lines, ("configuration", str(key))), f"{key}: expected a text, in quotes")
    if configuration is not None and not isinstance(configuration, dict):
        yield ProjectFault(
            file, line_of(lines, ("configuration",)), "configuration: expected settings of Spark by name"
        )
    yield from _libraries(said.get("libraries"), line_of(lines, ("libraries",)), file)


def _libraries(said: Any, line: int, file: str) -> Iterator[ProjectFault]:
    entries = said if isinstance(said, list) else [] if said is None else [said]
    for entry in entries:
        include = entry.get("glob", {}).get("include") if isinstance(entry, dict) else None
        if not isinstance(include, str):
            yield ProjectFault(file, line, "libraries: expected entries such as - glob: {include: transformations/**}")
        elif any(char in include.removesuffix("/**") for char in "*?["):
            yield ProjectFault(file, line, f"libraries: {include!r} is neither a file nor a folder with /** at its end")


def check_streams(project: Project, server: Mapping[str, str]) -> tuple[StreamView, ...]:
    """Return every stream that is a view, patterns resolved. Raises PipelineError for wrong options and streams.

    Needs the server and no Spark.
    """
    faults = list(_option_faults(project))
    asking = Asking(server_settings(Options(server, STREAM_READ), {}))
    try:
        names = asking(lambda api: api.stream_names())
        named: tuple[StreamView | StreamSink, ...] = (*project.own.streams, *project.own.sinks)
        for one in named:
            said = {key.lower(): value for key, value in one.options.items()}
            if not {"streampattern", "backup", "path", "servers", "context"} & said.keys():
                faults += _missing(asking, said.get("stream", one.name), one.line)
    finally:
        asking.close()
    if faults:
        raise PipelineError(faults)
    taken = {view.name for view in project.own.streams}
    matching = [name for name in names for pattern in project.own.patterns if fnmatchcase(name, pattern)]
    return (*project.own.streams, *(StreamView(name) for name in dict.fromkeys(matching) if name not in taken))


def _missing(asking: Asking, streams: str, line: int) -> list[ProjectFault]:
    names = filter(None, (each.strip() for each in streams.split(",")))
    return [
        ProjectFault(FILE, line, f"there is no stream {name!r}", f"natsctl stream add {name}")
        for name in names
        if not _exists(asking, name.removesuffix("$subjects"))
    ]


def _exists(asking: Asking, name: str) -> bool:
    try:
        asking(lambda api: api.stream_info(name))
    except StreamNotFoundError:
        return False
    return True


def _option_faults(project: Project) -> list[ProjectFault]:
    option_faults = []
    for view in project.own.streams:
        option_faults += _refused(view.options, BATCH_READ if view.batch else STREAM_READ, view.line)
    for sink in project.own.sinks:
        option_faults += _refused(sink.options, STREAM_WRITE, sink.line)
    return option_faults


def _refused(options: Mapping[str, str], place: str, line: int) -> list[ProjectFault]:
    try:
        parsed = Options(options, place)
        check_combination(parsed)
        if place != STREAM_WRITE:
            check_order(parsed)
            check_acked(parsed)
    except OptionError as failure:
        return [ProjectFault(FILE, line, failure.text)]
    return []


_SPECIFICATION: Final = """\
# Spark's own file: https://spark.apache.org/docs/latest/declarative-pipelines-programming-guide.html
name: {name}
storage: storage            # checkpoints: how far each flow has read
libraries:
  - glob:
      include: transformations/**
"""
_OWN: Final = """\
# Additions of natsctl: streams as views and as sinks. Every option of docs/spark.md goes below a name.
streams:
  {stream}: {{}}                # FROM STREAM {quoted}, from the first message on, unless startingOffsets says otherwise
sinks:
  {sink}:                # a stream: each update publishes the new rows of the view big_messages
    from: big_messages
interval: 30s               # how often `natsctl pipeline run` updates; with --once one time
# context: lab              # the server, unless a flag or NATS_URL names it
"""
_SQL: Final = """\
-- The messages of the stream: the table keeps them after the stream has dropped them. CREATE STREAMING TABLE messages
AS SELECT seq, subject, timestamp, CAST(value AS STRING) AS body, length(value) AS bytes FROM STREAM {quoted};

-- What to publish: a row is a message.
CREATE TEMPORARY VIEW big_messages AS
SELECT
  concat({prefix}, subject) AS subject,
  to_json(struct(seq, bytes)) AS value,
  concat({place}, seq) AS msgId
FROM STREAM messages
WHERE bytes > 100;
"""
_PYTHON: Final = '''\
"""Numbers by subject, recomputed by each update with new messages."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@dp.materialized_view
def by_subject() -> DataFrame:
    return (
        spark.read.table("messages")  # noqa: F821  # Spark gives `spark` to these files
        .groupBy("subject")
        .agg(F.count("*").alias("messages"), F.sum("bytes").alias("bytes"), F.max("timestamp").alias("last"))
    )
'''
_IGNORED: Final = "/storage/\n/tables/\n/.natsctl/\n__pycache__/\n"


_PLAIN: Final = re.compile(r"(?!(?:true|false|yes|no|on|off|y|n|null)$)[A-Za-z][A-Za-z0-9_-]*", re.IGNORECASE)
"""Texts that YAML takes for texts as they are."""


def write_project(folder: Path, stream: str, *, dry: bool = False) -> list[Path]:
    """Write a project that reads a stream, unless `dry`, and return its files. Raises FileExistsError, OSError.

    It publishes to `BIG_<STREAM>`, a stream created by the user.
    """
    sink = f"BIG_{stream}"
    words = {
        "name": _yaml(folder.absolute().name),
        "stream": _yaml(stream),
        "sink": _yaml(sink),
        "quoted": quote(stream),
        "prefix": literal(f"{sink}."),
        "place": literal(f"{stream}:"),
    }
    texts = {
        "spark-pipeline.yml": _SPECIFICATION.format(**words),
        "natsctl.yml": _OWN.format(**words),
        "transformations/messages.sql": _SQL.format(**words),
        "transformations/by_subject.py": _PYTHON,
        ".gitignore": _IGNORED,
    }
    there = [name for name in texts if (folder / name).exists()]
    if there:
        raise FileExistsError(f"{folder / there[0]} is there")
    for name, text in texts.items() if not dry else ():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub(r" +$", "", text, flags=re.MULTILINE), encoding="utf-8")
    return [folder / name for name in texts]


def _yaml(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
