"""`natsctl stream template`: templates that make a stream for each subject on its first message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, UnreachableError, UsageError
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, named
from natsctl.cli.framework.flags import (
    WHOLE,
    Config,
    Flag,
    Force,
    Given,
    IfNotExists,
    Json,
    MissingOk,
    Names,
    apply,
    flagged,
)
from natsctl.cli.framework.output import emit_name_pages
from natsctl.cli.framework.parameters import Argument
from natsctl.cli.framework.resolve import did_you_mean, if_there, pick
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.text import safe
from natsctl.cli.stream.create import STREAM_ADD
from natsctl.client.asset_config import new_stream

if TYPE_CHECKING:
    from natsctl.client.requests import Answer


NOT_ON_SERVERS_OF_TODAY = "nats-server has had no stream templates since 2.14; natsctl server has"

TemplateName = Annotated[str | None, Argument(metavar="TEMPLATE", help="name of the template")]

_OF_ONE_STREAM = ("--mirror", "--source", "--first-sequence")
TEMPLATE_ADD = (
    *(flag for flag in STREAM_ADD if flag.name not in _OF_ONE_STREAM),
    Flag("--max-streams", WHOLE, "max_streams", "max streams that the template creates"),
)


@flagged(TEMPLATE_ADD)
def add(
    session: Session,
    given: Given,
    template: TemplateName = None,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a template: a stream for each subject, made on its first message."""
    wanted = _wanted(template, given)
    if if_not_exists and (live := _existing(session, wanted["name"])) is not None:
        _show(live, json, f"Stream Template {wanted['name']} exists already")
        return
    with explaining(session, wanted["name"]):
        answer = session.run(lambda manager: manager.template_create(wanted))
    _show(answer, json, f"Stream Template {wanted['name']} was created")


def _wanted(name: str | None, given: Given) -> Config:
    if not name:
        raise UsageError("a name for the template is needed: give TEMPLATE")
    config: Config = {}
    apply(config, TEMPLATE_ADD, given)
    most = config.pop("max_streams", None)
    if most is None:
        raise UsageError("a limit of streams is needed: give --max-streams")
    if not config.get("subjects"):
        raise UsageError("subjects are needed: give --subjects")
    return {"name": name, "config": new_stream({"name": "", **config}), "max_streams": most}


def ls(session: Session, names: Names = False, json: Json = False) -> None:
    """List the templates; -j shows them in full."""
    with explaining(session, ""):
        if not json:
            if not emit_name_pages(session.ask, lambda manager: manager.template_name_pages()):
                output.emit("No Stream Templates defined")
            return
        found = list(session.run(lambda manager: manager.template_names()))
    output.emit_json(found if names else [_info(session, name).raw for name in found])


def info(session: Session, template: TemplateName = None, json: Json = False) -> None:
    """Show a template's configuration and the streams it has made."""
    _show(_info(session, _pick(session, template)), json)


def rm(
    session: Session,
    template: TemplateName = None,
    force: Force = False,
    missing_ok: MissingOk = False,
    json: Json = False,
) -> None:
    """Remove a template and every stream that it made."""
    check_consent(session, f"delete {named('Stream Template', [template] if template else [])}", force)
    name = _pick(session, template)
    live = _existing(session, name) if missing_ok else _info(session, name)
    if live is None:
        output.emit_json({"success": True}) if json else output.note(f"Stream Template {safe(name)} does not exist")
        return
    made = live.raw.get("streams") or []
    session.effect["streams"] = made
    question = f"delete Stream Template {name} and its {plural(len(made), 'stream')}"
    if not confirmed(session, question, force, typed=name):
        return
    with explaining(session, name):
        answer = session.run(lambda manager: manager.template_delete(name))
    output.emit_json(answer.raw) if json else output.note(f"Stream Template {safe(name)} was removed")


def _info(session: Session, name: str) -> Answer[Any]:
    with explaining(session, name):
        return session.run(lambda manager: manager.template_info(name))


def _existing(session: Session, name: str) -> Answer[Any] | None:
    return if_there(lambda: _info(session, name), ErrCode.STREAM_TEMPLATE_NOT_FOUND)


def _pick(session: Session, given: str | None) -> str:

    def names() -> list[str]:
        with explaining(session, ""):
            return session.run(lambda manager: manager.template_names())

    return pick(session, given, "Stream Template", names)


def _show(answer: Answer[Any], json: bool, done: str = "") -> None:
    if json:
        output.emit_json(answer.raw)
        return
    if done:
        output.note(safe(done))
    from natsctl.cli.render.streams import render_template

    output.show_page(render_template(answer.value))


@contextmanager
def explaining(session: Session, template: str) -> Iterator[None]:
    """Add a suggestion to an error, or the hint that this server may not support templates."""
    try:
        yield
    except UnreachableError as failure:
        failure.hint = failure.hint or NOT_ON_SERVERS_OF_TODAY
        raise
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.STREAM_TEMPLATE_NOT_FOUND:
            failure.hint = failure.hint or _hint(session, template)
        raise


def _hint(session: Session, word: str) -> str:
    try:
        names = list(session.run(lambda manager: manager.template_names()))
    except NatsctlError:
        return ""
    return safe(did_you_mean(word, names)) or "natsctl str template ls shows those there are"


VERBS = (
    verb("add, create, new", add, "StreamTemplateCreateAnswer|StreamTemplateInfoAnswer"),
    verb("ls, list, l", ls, "StreamTemplateInfo[]"),
    verb("info, nfo, i", info, "StreamTemplateInfoAnswer"),
    verb("rm, delete, del", rm, "StreamTemplateDeleteAnswer|cli.stream.messages:Removed"),
)
