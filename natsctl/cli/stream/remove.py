"""Removal of streams: `natsctl stream rm`, and names and patterns that choose several streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from natsctl.api.errors import ApiResponseError, ErrCode, NotFoundError
from natsctl.api.units import format_size, plural
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, named
from natsctl.cli.framework.flags import Force, Json, MissingOk
from natsctl.cli.framework.parameters import Argument
from natsctl.cli.framework.resolve import is_internal, is_pattern, live_stream, matching, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import safe
from natsctl.cli.stream.info import warn_of_bucket
from natsctl.client.message import DryRunError

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.client.requests import Answer


T = TypeVar("T")

StreamNames = Annotated[
    list[str] | None,
    Argument(metavar="[STREAM]...", help="the streams; * and ? match any characters"),
]


def has_pattern(words: Sequence[str] | None) -> bool:
    return any(is_pattern(word) for word in words or ())


def chosen_streams(session: Session, words: Sequence[str] | None, *, missing_ok: bool = False) -> list[str]:
    """Return the selected streams, each once: the given names, the matches of patterns, else the user's pick.

    A pattern matches streams of buckets only if it has their prefix. Raises NotFoundError.
    """
    if not words:
        return [pick_stream(session, None)]
    names = session.ask(lambda manager: manager.stream_names()) if has_pattern(words) else []
    chosen: list[str] = []
    for word in words:
        if not is_pattern(word):
            chosen.append(word)
            continue
        matched = [name for name in matching(names, word) if not is_internal(name) or is_internal(word)]
        if not matched and not missing_ok:
            raise NotFoundError(f"no Stream matches {word}", hint="natsctl str ls -a shows those there are")
        chosen += sorted(matched)
    return list(dict.fromkeys(chosen))


def rm(
    session: Session,
    streams: StreamNames = None,
    force: Force = False,
    missing_ok: MissingOk = False,
    json: Json = False,
) -> None:
    """Remove streams with all their messages and consumers."""
    check_consent(session, f"delete {named('Stream', streams or [])}", force)
    names = chosen_streams(session, streams, missing_ok=missing_ok)
    if not force or session.dry_run:
        live, offline = _live(session, names, missing_ok)
        names = [name for name in names if name in live or name in offline]
        session.effect.update(_effect(live))
        if not json and not session.dry_run:
            output.note("\n".join([*map(_loss_text, live.values()), *map(safe, offline.values())]))
    several = len(names) != 1 or has_pattern(streams)
    if names:
        for name in names:
            warn_of_bucket(name, json=json or session.dry_run)
        typed = names[0] if len(names) == 1 else str(len(names))
        if not confirmed(session, f"delete {named('Stream', names)}", force, typed=typed):
            return
    answers = _delete(session, names, missing_ok)
    if json:
        _emit(answers, several and len(streams or ()) != 1)
        return
    for name in names:
        done = "was removed" if name in answers else "does not exist"
        output.note(f"Stream {safe(name)} {done}")
    if not names:
        output.note("nothing to remove")


def _live(
    session: Session, names: list[str], missing_ok: bool
) -> tuple[dict[str, Answer[StreamInfoAnswer]], dict[str, str]]:
    """Return the live streams, and the errors of streams that are stored but not served.

    Missing ones are left out if that is no error.
    """
    live, offline = {}, {}
    for name in names:
        try:
            live[name] = live_stream(session, name)
        except ApiResponseError as failure:
            if failure.err_code == ErrCode.STREAM_OFFLINE_REASON:
                offline[name] = f"Stream {name} is offline, its contents are unknown: {failure}"
            elif not missing_ok or failure.err_code != ErrCode.STREAM_NOT_FOUND:
                raise
    return live, offline


def _effect(live: dict[str, Answer[StreamInfoAnswer]]) -> dict[str, int]:
    states = [one.value.state for one in live.values()]
    return {
        "streams": len(states),
        "messages": sum(state.messages for state in states),
        "bytes": sum(state.bytes for state in states),
        "consumers": sum(state.consumer_count for state in states),
    }


def _loss_text(one: Answer[StreamInfoAnswer]) -> str:
    state = one.value.state
    messages, consumers = plural(state.messages, "message"), plural(state.consumer_count, "consumer")
    return f"Stream {safe(one.value.config.name)} holds {messages} ({format_size(state.bytes)}) and {consumers}"


def one_by_one(names: Iterable[str], work: Callable[[str], T]) -> dict[str, T]:
    """Return the results of requests. In a dry run raises DryRunError with all of them."""
    results: dict[str, T] = {}
    previews: list[DryRunError] = []
    for name in names:
        try:
            results[name] = work(name)
        except DryRunError as preview:
            previews.append(preview)
    if previews:
        raise DryRunError(*(request for preview in previews for request in preview.planned))
    return results


def _delete(session: Session, names: list[str], missing_ok: bool) -> dict[str, Answer[Any]]:
    def delete(name: str) -> Answer[Any] | None:
        try:
            with suggesting(session, name):
                return session.ask(lambda manager: manager.stream_delete(name), changes=True)
        except ApiResponseError as failure:
            if not missing_ok or failure.err_code != ErrCode.STREAM_NOT_FOUND:
                raise
            return None

    return {name: answer for name, answer in one_by_one(names, delete).items() if answer is not None}


def _emit(answers: dict[str, Answer[Any]], several: bool) -> None:
    """Show the server's answer, or for several streams a list of them; nothing to remove is no error."""
    if several:
        output.emit_json([{"stream": name, **answer.raw} for name, answer in answers.items()])
    else:
        output.emit_json(next((answer.raw for answer in answers.values()), {"success": True}))
