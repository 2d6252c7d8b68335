"""Consent: nothing that loses data, an asset or a consumer's progress is done unasked.

The rule is one for every command. A command that can remove messages, keys, objects, streams, consumers or buckets, or
set a consumer's progress back, needs a yes: its flag (`--force`, `--yes`), or an answer at a terminal. If no user can
be asked (no terminal, `--no-input`, or `-j` for a program) it ends with UsageError (exit 2) and the name of the flag.
Commands that always lose something call `check_consent` first, before any request; if it depends on the state (an edit,
an object that may exist) a command reads that first and changes nothing. With `--dry-run` nothing is asked, as nothing
changes.

Commands that remove nothing need no consent: leaders that step down, a pause, a balance, an unpinned client. An edit
that loses nothing is still asked about at a terminal, as the nats tool does, and goes on elsewhere.

A dry run shows the requests that would be sent and their effect.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from natsctl.api.errors import UsageError
from natsctl.cli.framework import output
from natsctl.cli.render.text import body_text, safe
from natsctl.client.message import DryRunError, HeaderLike, Planned, pairs_of
from natsctl.hints import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from natsctl.api.update_losses import Loss
    from natsctl.cli.framework.session import Session


FORCE: Final = "--force (-f)"
"""The flag that most commands have for a yes."""
MAX_NAMES: Final = 10
"""Names that a question lists; further ones are counted."""


class NotConfirmedError(UsageError):
    """Error for missing consent without a terminal to ask."""


def can_ask(session: Session) -> bool:
    """Return whether a person can be asked: at a terminal, without --no-input, and without -j."""
    return session.interactive and not session.json


def check_consent(session: Session, action: str, given: bool, *, flag: str = FORCE) -> None:
    """Raise NotConfirmedError unless consent is given, or a person can be asked, or nothing will be changed.

    `action` completes "cannot ask whether to …".
    """
    if given or session.dry_run or can_ask(session):
        return
    raise NotConfirmedError(
        f"cannot ask whether to {safe(action)}: {_why_not(session)}",
        hint=f"{flag} does it without asking, --dry-run shows what it would do",
    )


def confirmed(session: Session, action: str, given: bool, *, typed: str = "", flag: str = FORCE) -> bool:
    """Return whether to continue with a loss; `typed` is the word that the user must type to confirm."""
    check_consent(session, action, given, flag=flag)
    if given or session.dry_run:
        return True
    return _asked(action, typed)


def confirmed_edit(
    session: Session, action: str, given: bool, losses: Sequence[Loss], *, typed: str = "", flag: str = FORCE
) -> bool:
    """Return whether to continue with an edit, after showing its losses.

    An edit without losses is confirmed at a terminal only. Raises NotConfirmedError for one with losses if no user can
    be asked.
    """
    if losses:
        if not given and not session.dry_run and not can_ask(session):
            action = f"{action}, which loses data ({'; '.join(loss.text for loss in losses)})"
        elif not session.json:
            _warn(losses)
        return confirmed(session, action, given, typed=typed, flag=flag)
    return given or confirmed_at_terminal(session, action, typed=typed)


def confirmed_at_terminal(session: Session, action: str, *, typed: str = "") -> bool:
    """Return whether to continue with a change that loses nothing: confirmed at a terminal, always true elsewhere."""
    return session.dry_run or not can_ask(session) or _asked(action, typed)


def named(kind: str, names: Sequence[str]) -> str:
    """Return the names as a question lists them: `Stream A`, `3 Streams (A, B, C)`, or `Streams` for none."""
    if len(names) == 1:
        return f"{kind} {names[0]}"
    if not names:
        return f"{kind}s"
    shown = [*names[:MAX_NAMES], *([f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else [])]
    return f"{len(names)} {kind}s ({', '.join(shown)})"


def _asked(action: str, typed: str) -> bool:
    from natsctl.cli.framework.prompts import prompt_confirm, prompt_typed

    if typed:
        return prompt_typed(f"Really {action}: type {typed} to do it", typed)
    return prompt_confirm(f"Really {action}")


def _why_not(session: Session) -> str:
    if session.json:
        return "nothing is asked with -j"
    if session.host is not None and session.host.unattended:
        return session.host.unattended
    if sys.stdin.isatty() and sys.stderr.isatty():
        return "nothing is asked with --no-input"
    return "there is no terminal"


def _warn(losses: Sequence[Loss]) -> None:
    from natsctl.cli.framework.output import note

    for loss in losses:
        note(f"warning: {safe(loss.text)}")


def show_preview(preview: DryRunError, effect: dict[str, Any], *, as_json: bool) -> None:
    """Print the requests of a dry run; `effect` has the command's earlier findings."""
    effect = {**effect, **preview.effect}
    if as_json:
        output.emit_json({"dry_run": True, "requests": [_document(one) for one in preview.planned], "effect": effect})
        return
    output.note("dry run: nothing was sent")
    for planned in preview.planned:
        output.emit("\n".join([safe(planned.subject), *_headers(planned), *_body(planned)]))
    for name, value in effect.items():
        output.emit(f"{safe(name.replace('_', ' '))}: {_value(value)}")


def _document(planned: Planned) -> dict[str, Any]:
    document: dict[str, Any] = {"subject": planned.subject}
    if planned.headers:
        document["headers"] = _by_name(planned.headers)
    if isinstance(planned.body, bytes):
        import base64

        document["data"] = base64.b64encode(planned.body).decode()
    else:
        document["body"] = planned.body
    return document


def _headers(planned: Planned) -> list[str]:
    return [safe(f"{key}: {value}") for key, value in pairs_of(planned.headers or ())]


def _by_name(headers: HeaderLike) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for key, value in pairs_of(headers):
        named.setdefault(key, []).append(value)
    return named


def _body(planned: Planned) -> list[str]:
    if planned.body is None or planned.body == b"":
        return []
    if isinstance(planned.body, bytes):
        return [body_text(planned.body)]
    return [safe(output.json_text(planned.body), block=True)]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    return safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
