"""The end of a dry run: the exact messages that would be sent, and what would happen as far as it is known."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from natsctl.cli import output
from natsctl.cli.render.text import body_text, safe
from natsctl.client.message import pairs_of

if TYPE_CHECKING:
    from natsctl.client.message import HeaderLike
    from natsctl.client.preview import DryRunError, Planned


def show_preview(preview: DryRunError, effect: dict[str, Any], *, as_json: bool) -> None:
    """Print what was not sent; `effect` is what the command had found out before."""
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
    return [safe(json.dumps(planned.body, indent=2, ensure_ascii=False), block=True)]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    return safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
