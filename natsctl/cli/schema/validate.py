"""`natsctl schema validate` and `request`: whether a document is of the kind that it should be."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from natsctl.api.errors import UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.flags import Json, session_of
from natsctl.cli.render.text import body_text, safe
from natsctl.cli.schema.kinds import full_id, kinds
from natsctl.cli.schema.shapes import Verdict
from natsctl.cli.schema.verdict import judge

MAX_BYTES = 64 * 1024 * 1024
"""Limit of what `validate` reads: the longest answer of a server is below it."""


def validate(
    id: Annotated[str, typer.Argument(metavar="ID", help="the id, or its end such as stream_configuration")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="the JSON document; - for stdin")],
    strict: Annotated[bool, typer.Option("--strict", help="unknown keys are errors")] = False,
    json: Json = False,
) -> None:
    """Check a JSON document against a schema; ends with 1 with the path and the reason if it does not match."""
    verdict = judge(_parsed(_read(file), file), full_id(id))
    _tell(verdict, file, strict=strict, json=json)


def request(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="the subject to ask")],
    body: Annotated[str, typer.Argument(metavar="BODY", help="the body of the request")] = "{}",
    schema: Annotated[str, typer.Option("--schema", metavar="ID", help="schema of the answer [from its type]")] = "",
    show: Annotated[bool, typer.Option("--show", help="also show the answer")] = False,
    json: Json = False,
) -> None:
    """Send a request and check the answer against the schema of its `type`, or that of --schema."""
    session = session_of(ctx)
    if session.dry_run:
        from natsctl.client.message import DryRunError, Planned

        raise DryRunError(Planned(subject, body.encode()))
    message = session.run(lambda manager: manager.connection.request(subject, body.encode()))
    answer = _parsed(message.body, f"the answer on {subject}")
    said = str(answer.get("type", "")) if isinstance(answer, dict) else ""
    if not schema and said not in kinds():
        raise UsageError(f"the answer on {subject} does not name its type", hint="give --schema ID")
    if show:
        output.note(body_text(message.body))
    _tell(judge(answer, full_id(schema or said)), f"the answer on {subject}", strict=False, json=json)


def _tell(verdict: Verdict, what: str, *, strict: bool, json: bool) -> None:
    if strict and verdict.valid and verdict.unknown:
        verdict.valid, verdict.path, verdict.reason = False, verdict.unknown[0], "unknown key"
    if json:
        output.emit_json(msgspec.to_builtins(verdict))
    elif verdict.valid:
        output.emit(f"{safe(what)} is a valid {verdict.id}")
    else:
        output.emit(safe(f"{what}: {verdict.path}: {verdict.reason}"))
    if verdict.unknown and not json:
        output.note(f"warning: unknown keys: {', '.join(safe(path) for path in verdict.unknown)}")
    if not verdict.valid:
        raise typer.Exit(ExitCode.FAILED)


def _read(file: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read(MAX_BYTES)
        with Path(file).open("rb") as opened:
            return opened.read(MAX_BYTES)
    except OSError as failure:
        raise UsageError(f"{file}: {failure.strerror or failure}") from failure


def _parsed(raw: bytes, what: str) -> Any:
    try:
        return json_text.loads(raw)
    except ValueError as failure:
        raise UsageError(f"{what}: not JSON: {failure}") from failure
