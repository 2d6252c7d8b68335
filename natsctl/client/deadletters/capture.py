"""Capture streams: they keep the advisories about messages that consumers gave up or terminated.

A capture stream is an ordinary stream with the subjects of two kinds of advisories, of one stream
(`DEADLETTERS_ORDERS`) or of every stream of the account (`DEADLETTERS`). With copies it also stores the messages
themselves: `copying` publishes them on `$DLQ.STREAM.CONSUMER.SEQUENCE.ENTRY`; ENTRY is the sequence of the advisory
in the capture stream. A stream that somebody made by hand for these advisories is read too, but never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from natsctl.api.errors import ConflictError, ExitCode, NatsctlError
from natsctl.api.subjects import overlaps
from natsctl.api.units import DAY

if TYPE_CHECKING:
    from natsctl.api.stream import StreamConfig, StreamInfo
    from natsctl.client.manager import Manager

NAME: Final = "DEADLETTERS"
EVERY_STREAM: Final = "*"
MARK: Final = "natsctl.deadletters"
"""Key of the metadata with the name of the stream, or `*`; it marks the streams that natsctl made."""
PREFIX: Final = "$JS.EVENT.ADVISORY.CONSUMER"
MAX_DELIVERIES: Final = "MAX_DELIVERIES"
MSG_TERMINATED: Final = "MSG_TERMINATED"
COPIES: Final = "$DLQ"
COPYING_CONSUMER: Final = "natsctl-deadletter-run"
"""Durable consumer of a capture stream for the service that makes copies."""
MAX_AGE_NS: Final = 30 * DAY


class NoDeadLettersError(NatsctlError):
    """No stream keeps dead letters."""

    exit_code: ClassVar[int] = ExitCode.NOT_FOUND


class CaptureOptions(NamedTuple):
    """Limits of a capture stream; None keeps the present value, or the default of a new stream."""

    max_age_ns: int | None = None
    """[30 days]"""
    max_msgs: int | None = None
    """[-1: no limit]"""
    replicas: int | None = None
    """[as many as the stream has; 1 for the stream of an account]"""
    copies: bool | None = None
    """Whether the messages are kept too. [False]"""


class CaptureStream(NamedTuple):
    """A stream that keeps dead letters of `stream`, or of every stream for `*`."""

    name: str
    stream: str
    copies: bool
    made_by_natsctl: bool
    info: StreamInfo

    def keeps(self, stream: str) -> bool:
        """Return whether it keeps dead letters of a stream."""
        return any(overlaps(pattern, subject) for pattern in advisories_of(stream) for subject in _subjects(self.info))


def capture_name(stream: str) -> str:
    """Return the name of the capture stream of a stream, or for `*` of every stream."""
    return NAME if stream == EVERY_STREAM else f"{NAME}_{stream}"


def advisories_of(stream: str) -> list[str]:
    """Return the subjects of a stream's advisories, or of every stream for `*`."""
    rest = ">" if stream == EVERY_STREAM else f"{stream}.>"
    return [f"{PREFIX}.{kind}.{rest}" for kind in (MAX_DELIVERIES, MSG_TERMINATED)]


def copies_of(stream: str) -> str:
    """Return the subject of the copies of a stream's messages, or for `*` of every stream's."""
    return f"{COPIES}.>" if stream == EVERY_STREAM else f"{COPIES}.{stream}.>"


def capture_config(stream: str, options: CaptureOptions = CaptureOptions(), replicas: int = 1) -> dict[str, Any]:
    """Return the configuration of a new capture stream; `replicas` is the default of their number."""
    return {
        "name": capture_name(stream),
        "description": f"Dead letters of {'every stream' if stream == EVERY_STREAM else stream}",
        "subjects": [*advisories_of(stream), *([copies_of(stream)] if options.copies else [])],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": MAX_AGE_NS if options.max_age_ns is None else options.max_age_ns,
        "max_msgs": -1 if options.max_msgs is None else options.max_msgs,
        "num_replicas": options.replicas or replicas,
        "allow_direct": True,
        "metadata": {MARK: stream},
    }


def capture_stream(info: StreamInfo) -> CaptureStream | None:
    """Return the capture stream with this information, None if the stream keeps no dead letters."""
    subjects = _subjects(info)
    if not any(overlaps(pattern, subject) for pattern in advisories_of(EVERY_STREAM) for subject in subjects):
        return None
    marked = (info.config.metadata or {}).get(MARK, "")
    copies = any(overlaps(subject, copies_of(EVERY_STREAM)) for subject in subjects)
    return CaptureStream(info.config.name, marked or _only_stream(subjects), copies, bool(marked), info)


def _subjects(info: StreamInfo) -> list[str]:
    return list(info.config.subjects or ())


def _only_stream(subjects: list[str]) -> str:
    """Return the stream that the subjects of a hand-made stream name, `*` for several."""
    names = {tokens[5] for subject in subjects if len(tokens := subject.split(".")) > 5}
    return names.pop() if len(names) == 1 and not names & {"*", ">"} else EVERY_STREAM


async def capture_streams(manager: Manager, stream: str = "") -> list[CaptureStream]:
    """Return the streams that keep dead letters of `stream` ("": of any), by name.

    Raises ApiResponseError if `stream` does not exist and nothing keeps its dead letters.
    """
    captures: dict[str, CaptureStream] = {}
    for pattern in advisories_of(stream or EVERY_STREAM):
        for answer in await manager.stream_list(subject=pattern):
            if (capture := capture_stream(answer.value)) is not None:
                captures[capture.name] = capture
    if not captures and stream:
        await manager.stream_info(stream)
    return [captures[name] for name in sorted(captures)]


async def required_captures(manager: Manager, stream: str = "") -> list[CaptureStream]:
    """Return the streams as `capture_streams` does. Raises NoDeadLettersError if no stream keeps them."""
    if captures := await capture_streams(manager, stream):
        return captures
    of = f" of {stream}" if stream else ""
    raise NoDeadLettersError(
        f"no stream keeps dead letters{of}",
        hint=f"natsctl deadletter enable {stream or '--all'} keeps them from now on",
    )


class EnabledCapture(NamedTuple):
    """Outcome of `enable`: the stream's configuration now, and whether it was created, or changed."""

    name: str
    stream: str
    created: bool
    changed: bool
    config: StreamConfig


async def enable(manager: Manager, stream: str, options: CaptureOptions = CaptureOptions()) -> EnabledCapture:
    """Create the capture stream of `stream` or of every stream (`*`), or change the limits that `options` has.

    Raises ApiResponseError if `stream` does not exist, ConflictError if another stream keeps some of
    these dead letters: two streams cannot store the same advisory.
    """
    name = capture_name(stream)
    replicas = 1 if stream == EVERY_STREAM else (await manager.stream_info(stream)).value.config.num_replicas
    captures = await capture_streams(manager, "" if stream == EVERY_STREAM else stream)
    if others := [capture for capture in captures if capture.name != name]:
        raise _conflict(stream, others)
    existing = await manager.find_stream(name)
    if existing is None:
        answer: Any = await manager.stream_create(capture_config(stream, options, replicas))
        return EnabledCapture(name, stream, True, True, answer.value.config)
    if (existing.raw["config"].get("metadata") or {}).get(MARK) != stream:
        raise ConflictError(f"Stream {name} exists and was not made for this: natsctl leaves it as it is")
    before = existing.raw["config"]
    after = {**before, **_changes(before, stream, options)}
    if after == before:
        return EnabledCapture(name, stream, False, False, existing.value.config)
    answer = await manager.stream_update(after)
    return EnabledCapture(name, stream, False, True, answer.value.config)


def _changes(config: dict[str, Any], stream: str, options: CaptureOptions) -> dict[str, Any]:
    limits = {"max_age": options.max_age_ns, "max_msgs": options.max_msgs, "num_replicas": options.replicas}
    changes: dict[str, Any] = {field: value for field, value in limits.items() if value is not None}
    if options.copies is not None:
        subjects = [subject for subject in config["subjects"] if subject != copies_of(stream)]
        changes["subjects"] = [*subjects, *([copies_of(stream)] if options.copies else [])]
    return changes


def _conflict(stream: str, others: list[CaptureStream]) -> ConflictError:
    names = ", ".join(capture.name for capture in others)
    if stream == EVERY_STREAM:
        text = f"dead letters of some streams are kept in {names} already, and two streams cannot store the same ones"
    else:
        text = f"dead letters of {stream} are kept in {names} already"
    made = [capture.stream for capture in others if capture.made_by_natsctl]
    commands = [f"natsctl deadletter disable {'--all' if name == EVERY_STREAM else name}" for name in made]
    return ConflictError(text, hint=f"to replace it: {'; '.join(commands)}" if commands else "")


async def capture_to_disable(manager: Manager, stream: str) -> CaptureStream | None:
    """Return the capture stream that natsctl made for `stream`, or for every stream (`*`), if it exists.

    Raises ConflictError if the stream with that name was made for something else.
    """
    answer = await manager.find_stream(capture_name(stream))
    if answer is None:
        return None
    capture = capture_stream(answer.value)  # type: ignore[arg-type]  # the answer has the fields of StreamInfo
    if capture is None or not capture.made_by_natsctl:
        raise ConflictError(f"Stream {capture_name(stream)} was not made by natsctl deadletter enable")
    return capture


async def disable(manager: Manager, stream: str) -> bool:
    """Delete the capture stream with all dead letters; return whether it existed. Raises as `capture_to_disable`."""
    if (capture := await capture_to_disable(manager, stream)) is None:
        return False
    await manager.stream_delete(capture.name)
    return True
