"""`natsctl.yml`: what natsctl adds to Spark's own specification of a pipeline.

Which streams are views and which are sinks, the server, how often to update, and where Spark runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from natsctl.api.units import parse_duration
from natsctl.spark.pipeline.faults import Fault, PipelineFaults
from natsctl.spark.pipeline.yaml_lines import Keys, line_of, load_with_lines

FILE: Final = "natsctl.yml"
WILDCARDS: Final = "*?["


@dataclass(frozen=True)
class StreamView:
    """A stream as a view; `options` are of the data source, and a `batch` view is read as a whole by each update."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    batch: bool = False
    line: int = 0


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
    """The settings of a project; a project without the file has none. Raises PipelineFaults with every fault."""
    path = folder / FILE
    if not path.is_file():
        return OwnSettings()
    said, lines = load_with_lines(path)
    return _Reader(lines).settings({} if said is None else said)


class _Reader:
    def __init__(self, lines: dict[Keys, int]) -> None:
        self._lines = lines
        self._faults: list[Fault] = []

    def settings(self, said: Any) -> OwnSettings:
        if not isinstance(said, dict):
            raise PipelineFaults([Fault(FILE, 1, f"expected keys such as streams, not {type(said).__name__}")])
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
            raise PipelineFaults(self._faults)
        return found

    def _streams(self, said: Any) -> tuple[tuple[StreamView, ...], tuple[str, ...]]:
        """The views, and the patterns, of a list of names or of names with options."""
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
            views.append(StreamView(str(name), options, batch == "true", line_of(self._lines, keys)))
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
        """Options as the texts that Spark takes."""
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
        """Seconds; a bare number counts seconds."""
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
        """Spark's names do not tell capitals from small letters."""
        seen: dict[str, str] = {}
        for one in named:
            other = seen.setdefault(one.name.lower(), one.name)
            if other is not one.name:
                text = f"{one.name!r} and {other!r} are one name for Spark"
                self._faults.append(Fault(FILE, one.line, text, "give one another name, with the option stream"))

    def _fault(self, keys: Keys, text: str, hint: str = "") -> None:
        self._faults.append(Fault(FILE, line_of(self._lines, keys), f"{'.'.join(keys)}: {text}", hint))
