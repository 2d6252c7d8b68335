"""Control of deliveries, and removal: `natsctl consumer pause`, `resume`, `reset`, `unpin` and `rm`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from natsctl.api.errors import ApiResponseError, ErrCode, NotFoundError, UsageError
from natsctl.api.times import format_time, parse_time
from natsctl.api.units import plural
from natsctl.cli.consumer.listing import ConsumerFlags, list_consumers, show_info
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, named
from natsctl.cli.framework.flags import FORMS, Force, Json, MissingOk, StreamName, read_moment
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import is_pattern, live_consumer, matching, pick_consumer, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import duration, safe, stamp, when
from natsctl.cli.stream.remove import one_by_one

DEFAULT_PAUSE = "1h"


def pause(
    session: Session,
    chosen: ConsumerFlags,
    until: Annotated[
        str | None,
        Argument(metavar="UNTIL", help="a duration, or a time; without offset it is local"),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Pause delivery until a time.

    UNTIL is a time such as 2026-12-24T18:00:00Z, local time such as "2026-12-24 18:00", or a duration such as 1h.
    """
    where, name = chosen.pick(session)
    if not session.dry_run:
        live_consumer(session, where, name)
    until_ns = _until(session, until)
    answer = session.ask(lambda manager: manager.consumer_pause(where, name, format_time(until_ns)), changes=True)
    if json:
        output.emit_json(answer.raw)
        return
    until_ns = parse_time(answer.value.pause_until)
    shown = f"{stamp(until_ns)} ({duration(answer.value.pause_remaining)} remaining)"
    output.emit(f"Paused {safe(where)} > {safe(name)} until {shown}")


def resume(
    session: Session,
    chosen: ConsumerFlags,
    force: Force = False,
    json: Json = False,
) -> None:
    """Resume delivery."""
    where, name = chosen.pick(session)
    live: dict[str, Any] = live_consumer(session, where, name).raw
    paused = bool(live.get("paused"))
    answer = session.ask(lambda manager: manager.consumer_pause(where, name), changes=True)
    if json:
        output.emit_json(answer.raw)
        return
    shown = f"Consumer {safe(where)} > {safe(name)}"
    if paused:
        until = when(live["config"].get("pause_until"))
        output.emit(f"{shown} was resumed while previously paused until {until}")
    else:
        output.emit(f"{shown} was not paused")


def _prompt_pause(default: str) -> int:
    """Return the time until which a consumer is paused, in ns since the epoch."""
    from natsctl.cli.framework.prompts import Question, prompt

    def read(text: str) -> int:
        until_ns = read_moment(text)
        if until_ns <= time.time_ns():
            raise ValueError("that is in the past")
        return until_ns

    help = f"It is {FORMS}. Settable as the third argument"
    return int(prompt(Question("Pause until (time or duration)", help, default, read)))


def _until(session: Session, text: str | None) -> int:
    """Return the end of the pause in ns; without an argument the user is asked at a terminal. Raises UsageError."""
    if text is None:
        if not session.interactive:
            raise UsageError("until when is needed: give UNTIL", hint=f"it is {FORMS}")
        return _prompt_pause(DEFAULT_PAUSE)
    try:
        until_ns = read_moment(text)
    except ValueError as error:
        raise UsageError(f"UNTIL: {error}") from error
    if until_ns <= time.time_ns():
        raise UsageError(f"UNTIL: {stamp(until_ns)} is in the past", hint="natsctl consumer resume ends a pause")
    return until_ns


PINNED = "pinned_client"


def reset(
    session: Session,
    chosen: ConsumerFlags,
    sequence: Annotated[
        int,
        Option("--sequence", metavar="SEQ", help="stream sequence to deliver next", min=0),
    ] = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Reset a consumer to a stream sequence, or to its ack floor."""
    check_consent(session, f"reset {named('Consumer', [chosen.consumer] if chosen.consumer else [])}", force)
    where, name = chosen.pick(session)
    live = live_consumer(session, where, name).value
    target = f"stream sequence {sequence}" if sequence else f"its ack floor, {live.ack_floor.stream_seq}"
    session.effect.update(
        delivered_stream_seq=live.delivered.stream_seq,
        ack_floor_stream_seq=live.ack_floor.stream_seq,
        outstanding_acks_forgotten=live.num_ack_pending,
    )
    if session.interactive and not force and not session.dry_run:
        output.note(
            f"Consumer {safe(where)} > {safe(name)} has delivered up to stream sequence {live.delivered.stream_seq:,}, "
            f"{plural(live.num_ack_pending, 'outstanding ack')}"
        )
    question = f"reset Consumer {where} > {name} to {target}"
    if not confirmed(session, question, force):
        return
    answer = session.ask(lambda manager: manager.consumer_reset(where, name, sequence), changes=True)
    show_info(answer, json, state_only=True, done=f"Consumer {where} > {name} was reset to {target}")


def unpin(
    session: Session,
    chosen: ConsumerFlags,
    group: Annotated[str | None, Argument(metavar="GROUP", help="the priority group")] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Release the pinned client of a priority group."""
    where, name = chosen.pick(session)
    live = live_consumer(session, where, name).raw
    named_group, pinned = _group(session, live, group)
    session.effect.update(group=named_group, pinned_client=pinned or None)
    answer = session.ask(lambda manager: manager.consumer_unpin(where, name, named_group), changes=True)
    if json:
        output.emit_json(answer.raw)
        return
    what = f"Unpinned client {safe(pinned)} from" if pinned else "No client was pinned in"
    output.emit(f"{what} Priority Group {safe(where)} > {safe(name)} > {safe(named_group)}")


def _group(session: Session, live: Mapping[str, Any], given: str | None) -> tuple[str, str]:
    """Return the group and its pinned client; without a given group, the one that has a client."""
    config = live["config"]
    groups = list(config.get("priority_groups") or ())
    if config.get("priority_policy") != PINNED:
        raise UsageError("the consumer pins no clients", hint="con add --pinned-groups makes one that does")
    pinned = {
        priority_group["group"]: priority_group.get("pinned_client_id") or ""
        for priority_group in live.get("priority_groups") or ()
    }
    if given is not None:
        if given not in groups:
            raise UsageError(f"the consumer has no priority group {given}", hint=f"it has {', '.join(groups)}")
        return given, pinned.get(given, "")
    taken = [group for group in groups if pinned.get(group)] or groups
    if len(taken) == 1:
        return taken[0], pinned.get(taken[0], "")
    if not session.interactive:
        raise UsageError("the group is needed: give GROUP", hint=f"there are {', '.join(taken)}")
    from natsctl.cli.framework.prompts import prompt_name

    group = prompt_name("Select a Group", taken)
    return group, pinned.get(group, "")


Info = dict[str, Any]


def rm(
    session: Session,
    stream: StreamName = None,
    consumers: Annotated[
        list[str] | None,
        Argument(metavar="CONSUMER...", help="names, or patterns such as 'TMP_*'"),
    ] = None,
    force: Force = False,
    missing_ok: MissingOk = False,
    json: Json = False,
) -> None:
    """Remove consumers with their progress; messages stay."""
    check_consent(session, f"delete {named('Consumer', consumers or [])}", force)
    where = pick_stream(session, stream)
    words = consumers or [pick_consumer(session, where, None)]
    single = len(words) == 1 and not is_pattern(words[0])
    names = words if single and force else _chosen(session, where, words, force, missing_ok)
    if not names:
        _show_removed(where, [], words, json)
        return
    question = f"delete Consumer {where} > {names[0]}" if single else f"delete {len(names)} Consumers of {where}"
    typed = names[0] if single else where
    if not confirmed(session, question, force, typed=typed):
        return
    answers = one_by_one(names, lambda name: _remove(session, where, name, missing_ok))
    if json and single and answers[names[0]]:
        output.emit_json(answers[names[0]])
        return
    removed = [name for name in names if answers[name]]
    _show_removed(where, removed, [name for name in names if not answers[name]], json)


def _chosen(session: Session, stream: str, words: Sequence[str], force: bool, missing_ok: bool) -> list[str]:
    try:
        infos = {consumer.raw["name"]: consumer.raw for consumer in list_consumers(session, stream)}
    except ApiResponseError as failure:
        if missing_ok and failure.err_code == ErrCode.STREAM_NOT_FOUND:
            return []
        raise
    names: list[str] = []
    for word in words:
        if found := matching(infos, word):
            names += found
        elif is_pattern(word) and not missing_ok:
            raise NotFoundError(
                f"no Consumer of Stream {stream} matches {word}", hint=f"natsctl con ls {stream} shows those there are"
            )
        elif not missing_ok:
            live_consumer(session, stream, word)  # raises the server's error
    names = list(dict.fromkeys(names))
    session.effect["consumers"] = [_loss(infos[name]) for name in names]
    if session.interactive and not force and not session.dry_run:
        for name in names:
            output.note(_loss_text(infos[name]))
    return names


def _loss(info: Info) -> Info:
    return {
        "name": info["name"],
        "outstanding_acks": info.get("num_ack_pending", 0),
        "unprocessed": info.get("num_pending", 0),
        "ack_floor_stream_seq": (info.get("ack_floor") or {}).get("stream_seq", 0),
    }


def _loss_text(info: Info) -> str:
    loss = _loss(info)
    return (
        f"Consumer {safe(info['name'])}: {plural(loss['outstanding_acks'], 'outstanding ack')}, "
        f"{plural(loss['unprocessed'], 'unprocessed message')}, ack floor at {loss['ack_floor_stream_seq']:,}"
    )


def _show_removed(stream: str, removed: Sequence[str], missing: Sequence[str], json: bool) -> None:
    if json:
        output.emit_json({"success": True, "removed": [*removed], "missing": [*missing]})
        return
    for name in removed:
        output.note(f"Consumer {safe(stream)} > {safe(name)} was removed")
    for name in missing:
        output.note(f"there is no Consumer {safe(stream)} > {safe(name)}: nothing to remove")


def _remove(session: Session, stream: str, name: str, missing_ok: bool) -> Info | None:
    try:
        with suggesting(session, stream, name):
            return session.ask(lambda manager: manager.consumer_delete(stream, name), changes=True).raw
    except ApiResponseError as failure:
        if missing_ok and failure.err_code in (ErrCode.CONSUMER_NOT_FOUND, ErrCode.STREAM_NOT_FOUND):
            return None
        raise
