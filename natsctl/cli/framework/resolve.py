"""Names of streams, consumers and messages: from the command line, else picked from a list at a terminal.

A name that does not exist is never replaced by another one: it is an error with a suggestion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, UsageError, closest
from natsctl.cli.render.text import safe
from natsctl.hints import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.cli.framework.session import Session
    from natsctl.client.requests import Answer


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


def pick(session: Session, given: str | None, kind: str, names: Callable[[], Sequence[str]], none: str = "") -> str:
    """Return the name that was given, or that the user picks from `names()`."""
    if given:
        return given
    argument = kind.rpartition(" ")[2].upper()
    if not session.interactive:
        raise UsageError(f"a {argument.lower()} is needed: give {argument}")
    from natsctl.cli.framework.prompts import prompt_name

    if not (choices := names()):
        raise UsageError(none or f"no {kind}s are defined")
    return prompt_name(f"Select a {kind}", choices)


def pick_stream(session: Session, given: str | None, *, all_streams: bool = False) -> str:
    every = all_streams or session.options.all_streams

    def names() -> list[str]:
        return [name for name in session.run(lambda manager: manager.stream_names()) if every or not is_internal(name)]

    return pick(session, given, "Stream", names)


def pick_consumer(session: Session, stream: str, given: str | None) -> str:
    def names() -> list[str]:
        with suggesting(session, stream):
            return session.run(lambda manager: manager.consumer_names(stream))

    return pick(session, given, "Consumer", names, f"no Consumers are defined for Stream {stream}")


def live_stream(session: Session, stream: str) -> Answer[StreamInfoAnswer]:
    with suggesting(session, stream):
        return session.ask(lambda manager: manager.stream_info(stream))


def live_consumer(session: Session, stream: str, consumer: str) -> Answer[Any]:
    with suggesting(session, stream, consumer):
        return session.ask(lambda manager: manager.consumer_info(stream, consumer))


def if_there(look: Callable[[], Answer[Any]], missing: int) -> Answer[Any] | None:
    """Return the answer of a request, or None for the error that the asset does not exist."""
    try:
        return look()
    except ApiResponseError as failure:
        if failure.err_code != missing:
            raise
        return None


@contextmanager
def suggesting(session: Session, stream: str, consumer: str = "") -> Iterator[None]:
    try:
        yield
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.STREAM_NOT_FOUND:
            failure.hint = failure.hint or _hint(session, stream, "")
        elif failure.err_code == ErrCode.CONSUMER_NOT_FOUND:
            failure.hint = failure.hint or _hint(session, consumer, stream)
        raise


def _hint(session: Session, word: str, stream: str) -> str:
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
