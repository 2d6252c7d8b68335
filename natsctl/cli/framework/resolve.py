"""Names of streams, consumers and messages: from the command line, else picked from a list at a terminal.

A name that does not exist is never replaced by another one: it is an error with a suggestion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, UsageError, closest
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.cli.framework.session import Session


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean "ORDERS"?`, or nothing when no known name is near."""
    near = closest(word, known)
    if not near:
        return ""
    quoted = [f'"{name}"' for name in near]
    choice = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return f"did you mean {choice}?"


INTERNAL_PREFIXES = ("KV_", "OBJ_", "$MQTT_")
"""Streams that belong to another feature; lists leave them out unless asked."""


def is_internal(stream: str) -> bool:
    """Return whether the stream belongs to a key-value bucket, an object store or MQTT."""
    return stream.startswith(INTERNAL_PREFIXES)


def is_pattern(word: str) -> bool:
    """Return whether a word may match several names: no name has *, but one may have ?."""
    return "*" in word or "?" in word


def is_match(name: str, word: str) -> bool:
    """Return whether a name equals the word, or matches it as a pattern with * and ?."""
    from fnmatch import fnmatchcase

    return name == word or fnmatchcase(name, word.replace("[", "[[]"))


def matching(names: Iterable[str], word: str) -> list[str]:
    """Return the names that a word selects: the name itself if it exists, else all that match it as a pattern."""
    known = list(names)
    return [word] if word in known else [name for name in known if is_match(name, word)]


def pick_stream(session: Session, given: str | None, *, all_streams: bool = False) -> str:
    """Return the stream that was given, or that the user picks. Raises UsageError without a terminal."""
    if given:
        return given
    if not session.interactive:
        raise UsageError("a stream is needed: give STREAM")
    from natsctl.cli.framework.prompts import prompt_name

    names = session.run(lambda manager: manager.stream_names())
    every = all_streams or session.options.all_streams
    shown = [name for name in names if every or not is_internal(name)]
    if not shown:
        raise UsageError("no Streams are defined")
    return prompt_name("Select a Stream", shown)


def pick_consumer(session: Session, stream: str, given: str | None) -> str:
    """Return the consumer that was given, or that the user picks. Raises UsageError without a terminal."""
    if given:
        return given
    if not session.interactive:
        raise UsageError("a consumer is needed: give CONSUMER")
    from natsctl.cli.framework.prompts import prompt_name

    with suggesting(session, stream):
        names = session.run(lambda manager: manager.consumer_names(stream))
    if not names:
        raise UsageError(f"no Consumers are defined for Stream {stream}")
    return prompt_name("Select a Consumer", names)


def check_stream(session: Session, stream: str) -> None:
    """Raise ApiResponseError with a suggestion unless the stream exists; called before the user is asked about it."""
    with suggesting(session, stream):
        session.run(lambda manager: manager.stream_info(stream))


def check_consumer(session: Session, stream: str, consumer: str) -> None:
    """Raise ApiResponseError with a suggestion unless the consumer exists; called before the user is asked about it."""
    with suggesting(session, stream, consumer):
        session.run(lambda manager: manager.consumer_info(stream, consumer))


@contextmanager
def suggesting(session: Session, stream: str, consumer: str = "") -> Iterator[None]:
    """Add a suggestion to errors about a stream or consumer that does not exist."""
    try:
        yield
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.STREAM_NOT_FOUND:
            failure.hint = failure.hint or _hint(session, stream, "")
        elif failure.err_code == ErrCode.CONSUMER_NOT_FOUND:
            failure.hint = failure.hint or _hint(session, consumer, stream)
        raise


def _hint(session: Session, word: str, stream: str) -> str:
    """Return a suggestion, else the command that lists the existing ones."""

    try:
        if stream:
            names = session.run(lambda manager: manager.consumer_names(stream))
        else:
            names = session.run(lambda manager: manager.stream_names())
    except NatsctlError:
        return ""
    kind, listing = ("Consumer", f"natsctl con ls {stream}") if stream else ("Stream", "natsctl str ls -a")
    place = f" of Stream {stream}" if stream else ""
    if not names:
        return safe(f"no {kind}s{place} are defined")
    return safe(did_you_mean(word, names) or f"there is no {kind} {word}{place}; {listing} shows those there are")
