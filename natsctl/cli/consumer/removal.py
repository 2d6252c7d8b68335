"""Removal of consumers: `natsctl consumer rm`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api import endpoints
from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiResponseError
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.consent import check_consent, confirmed, named
from natsctl.cli.consumer.state import list_consumers, live_consumer
from natsctl.cli.flags import Force, Json, MissingOk, StreamName, session_of
from natsctl.cli.render.text import safe
from natsctl.cli.resolve import is_pattern, matching, pick_consumer, pick_stream, suggesting
from natsctl.cli.stream.remove import NoStreamMatchesError
from natsctl.client.message import DryRunError, Planned

if TYPE_CHECKING:
    from natsctl.cli.session import Session


Info = dict[str, Any]


def rm(
    ctx: typer.Context,
    stream: StreamName = None,
    consumers: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONSUMER...", help="names, or patterns such as 'TMP_*'", show_default=False),
    ] = None,
    force: Force = False,
    missing_ok: MissingOk = False,
    json: Json = False,
) -> None:
    """Remove consumers with their progress; messages stay."""
    session = session_of(ctx)
    check_consent(session, f"delete {named('Consumer', consumers or [])}", force)
    where = pick_stream(session, stream)
    words = consumers or [pick_consumer(session, where, None)]
    single = len(words) == 1 and not is_pattern(words[0])
    names = words if single and force else _chosen(session, where, words, force, missing_ok)
    if not names:
        _tell(where, [], words, json)
        return
    question = f"delete Consumer {where} > {names[0]}" if single else f"delete {len(names)} Consumers of {where}"
    if session.dry_run and len(names) > 1:
        raise DryRunError(*(_planned(session, where, name) for name in names))
    typed = names[0] if single else where
    if not confirmed(session, question, force, typed=typed):
        return
    answers = {name: _remove(session, where, name, missing_ok) for name in names}
    if json and single and answers[names[0]]:
        output.emit_json(answers[names[0]])
        return
    removed = [name for name in names if answers[name]]
    _tell(where, removed, [name for name in names if not answers[name]], json)


def _chosen(session: Session, stream: str, words: Sequence[str], force: bool, missing_ok: bool) -> list[str]:
    """Return the names that are meant, after showing what is lost.

    Raises ApiResponseError for one that does not exist.
    """
    try:
        infos = {one.raw["name"]: one.raw for one in list_consumers(session, stream)}
    except ApiResponseError as failure:
        if missing_ok and failure.err_code == ErrCode.STREAM_NOT_FOUND:
            return []
        raise
    names: list[str] = []
    for word in words:
        if found := matching(infos, word):
            names += found
        elif is_pattern(word) and not missing_ok:
            raise NoStreamMatchesError(
                f"no Consumer of Stream {stream} matches {word}", hint=f"natsctl con ls {stream} shows those there are"
            )
        elif not missing_ok:
            live_consumer(session, stream, word)  # the server says in its own words that there is none
    names = list(dict.fromkeys(names))
    session.effect["consumers"] = [_loss(infos[name]) for name in names]
    if session.interactive and not force and not session.dry_run:
        for name in names:
            output.note(_told(infos[name]))
    return names


def _loss(info: Info) -> Info:
    """Return what is lost with a consumer: its position."""
    return {
        "name": info["name"],
        "outstanding_acks": info.get("num_ack_pending", 0),
        "unprocessed": info.get("num_pending", 0),
        "ack_floor_stream_seq": (info.get("ack_floor") or {}).get("stream_seq", 0),
    }


def _told(info: Info) -> str:
    loss = _loss(info)
    return (
        f"Consumer {safe(info['name'])}: {plural(loss['outstanding_acks'], 'outstanding ack')}, "
        f"{plural(loss['unprocessed'], 'unprocessed message')}, ack floor at {loss['ack_floor_stream_seq']:,}"
    )


def _planned(session: Session, stream: str, name: str) -> Planned:
    return Planned(endpoints.CONSUMER_DELETE.subject(stream, name, prefix=session.target().api_prefix))


def _tell(stream: str, removed: Sequence[str], missing: Sequence[str], json: bool) -> None:
    if json:
        output.emit_json({"success": True, "removed": [*removed], "missing": [*missing]})
        return
    for name in removed:
        output.note(f"Consumer {safe(stream)} > {safe(name)} was removed")
    for name in missing:
        output.note(f"there is no Consumer {safe(stream)} > {safe(name)}: nothing to remove")


def _remove(session: Session, stream: str, name: str, missing_ok: bool) -> Info | None:
    """Return the server's answer, or None where there was nothing to remove and that is no error."""
    try:
        with suggesting(session, stream, name):
            return session.run(lambda manager: manager.consumer_delete(stream, name)).raw
    except ApiResponseError as failure:
        if missing_ok and failure.err_code in (ErrCode.CONSUMER_NOT_FOUND, ErrCode.STREAM_NOT_FOUND):
            return None
        raise
