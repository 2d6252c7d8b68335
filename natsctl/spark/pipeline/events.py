"""Events of an update: Spark reports them as sentences, which are parsed here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

_STATE: Final = re.compile(r"Flow '?(?P<flow>.+?)'? (?:is|has|was) (?P<state>[A-Z]{4,})\b(?P<rest>.*)", re.DOTALL)
_UNRESOLVED: Final = re.compile(r"Failed to resolve flow: '(?P<flow>.+?)'\.(?P<rest>.*)", re.DOTALL)
_RUN: Final = re.compile(r"Run (?:is|has) (?P<state>[A-Z]{4,})\b(?P<rest>.*)", re.DOTALL)
_ERROR: Final = re.compile(r"Error: (.*)", re.DOTALL)
_CONDITION: Final = re.compile(r"\[(?P<condition>[A-Z][A-Z0-9_.]+)\] (?P<text>.*?)(?:\s*SQLSTATE: \w+|\n|$)", re.DOTALL)
_OWN: Final = re.compile(r"\[(?P<condition>JETSTREAM_[A-Z_]+)\] (?P<text>[^\n]+)")
_WRAPPING: Final = ("STREAM_FAILED", "PYTHON_DATA_SOURCE_ERROR", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR")
UNRESOLVED: Final = "UNRESOLVED"
_NOT_EXPECTED: Final = "UNKNOWN_RESPONSE"
_QUOTED: Final = re.compile(r"`((?:[^`]|``)*)`")


def without_counters(responses: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a server's responses without the last one, in which some servers count the work of Python processes.

    PySpark's client does not expect it of a pipeline. It comes behind everything else, and only after a success.
    """
    from pyspark.errors import PySparkException

    try:
        yield from responses
    except PySparkException as failure:
        if failure.getCondition() != _NOT_EXPECTED:
            raise


@dataclass(frozen=True)
class Event:
    """One sentence; `flow` is empty for the update as a whole, `error` for what is no failure."""

    time: datetime
    flow: str
    state: str
    message: str
    error: str = ""
    condition: str = ""
    position: str = ""
    """The place of a failure in its statement, in Spark's words."""
    read: Mapping[str, int] = field(default_factory=dict)
    """For a flow that has completed: by stream, the number of sequences that it has passed in this update."""


def parse_event(message: str, time: datetime) -> Event:
    """Return the parts of a sentence; what is not understood is kept as the message of an event without state."""
    time = time.replace(tzinfo=UTC)
    unresolved = _UNRESOLVED.match(message)
    found = unresolved or _STATE.match(message) or _RUN.match(message)
    if found is None:
        return Event(time, "", "", message.strip())
    parts = found.groupdict()
    state = UNRESOLVED if unresolved else str(parts["state"])
    flow = short_name(parts.get("flow") or "")
    wrong = _ERROR.search(parts["rest"])
    if wrong is None:
        return Event(time, flow, state, message.strip())
    condition, error = told_error(wrong[1])
    first = message.partition("\n")[0].strip()
    return Event(time, flow, state, first, error, condition, wrong[1])


def told_error(text: str) -> tuple[str, str]:
    """Return the condition and the sentence of a failure that a reader can act on, without plans and stacks."""
    if own := _OWN.search(text):
        return own["condition"], own["text"].strip()
    found = _CONDITION.search(text)
    while found and found["condition"] in _WRAPPING:
        found = _CONDITION.search(text, found.end("condition"))
    if found:
        return found["condition"], " ".join(found["text"].split())
    lines = (line.strip() for line in text.splitlines())
    return "", next((line for line in lines if line and not line.startswith("at ")), "")


def name_parts(name: str) -> list[str]:
    """Return the catalog, database and table of a name, as far as it has them, without backticks."""
    parts = []
    rest = name
    while rest:
        quoted = _QUOTED.match(rest)
        part = quoted[0] if quoted else rest.partition(".")[0]
        parts.append(quoted[1].replace("``", "`") if quoted else part)
        rest = rest[len(part) :].removeprefix(".")
    return parts


def short_name(name: str) -> str:
    """Return a flow's name without the catalog and database that Spark puts before it, and without backticks."""
    parts = name_parts(name)
    return parts[-1] if len(parts) in (2, 3) else name
