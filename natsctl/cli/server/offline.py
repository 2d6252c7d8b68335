"""`natsctl server mappings` and `passwd`: what a configuration needs, worked out without a server."""

from __future__ import annotations

import os
import secrets
import string
from typing import Annotated

import typer

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.cli import output
from natsctl.cli.options import Json, session_of
from natsctl.cli.render.text import safe

SHORTEST_PASSWORD = 10
"""Characters that a password must have: shorter ones are found by trying."""
LONGEST_PASSWORD = 72
"""Bytes that bcrypt looks at; what comes behind them would count for nothing."""
GENERATED = 22
_SIGNS = string.ascii_letters + string.digits + "-_%@&^#"


def mappings(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="the subjects that are mapped", show_default=False)],
    destination: Annotated[
        str, typer.Argument(metavar="DEST", help="the subjects that they become", show_default=False)
    ],
    subjects: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUBJECT", help="subjects to test the mapping with", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Check a subject mapping and show what it makes of subjects; asks no server."""
    from natsctl.api.mapping_functions import BadTransform
    from natsctl.api.subject_transform import SubjectMapping, check_mapping

    try:
        check_mapping(source, destination)
        mapping = SubjectMapping.compile(source, destination)
    except BadTransform as failure:
        raise UsageError(f"{'SOURCE' if failure.kind == 'source' else 'DEST'}: {failure}") from failure
    session = session_of(ctx)
    tried = [(subject, mapping.apply(subject.encode())) for subject in _literal(subjects or ())]
    if json:
        output.emit_json([{"subject": one, "mapped": None if to is None else to.decode()} for one, to in tried])
    else:
        for one, to in tried:
            lead = f"{safe(one)} → " if len(tried) > 1 else ""
            output.emit(f"{lead}{'no match' if to is None else safe(to.decode())}")
        if not tried and session.interactive:
            _try_on(mapping)
        elif not tried:
            output.note("the mapping is valid; give SUBJECT to test it")
    if any(to is None for _, to in tried):
        raise NatsctlError("a subject is not matched by the mapping's source")


def _literal(subjects: list[str] | tuple[str, ...]) -> list[str]:
    from natsctl.api.subjects import is_valid_subject

    for subject in subjects:
        if not is_valid_subject(subject) or any(token in ("*", ">") for token in subject.split(".")):
            raise UsageError(f"SUBJECT: {subject!r} is not a subject that a message can have")
    return list(subjects)


def _try_on(mapping: object) -> None:
    """Ask for subjects and show what they are mapped to, until an empty one."""
    from natsctl.api.subject_transform import SubjectMapping
    from natsctl.cli.prompts.ask import Question, prompt

    if not isinstance(mapping, SubjectMapping):
        return
    while subject := str(prompt(Question("Subject", "A subject to map; enter alone ends. Given as SUBJECT"))):
        to = mapping.apply(subject.encode())
        output.emit("no match" if to is None else safe(to.decode()))


def passwd(
    ctx: typer.Context,
    password: Annotated[
        str | None,
        typer.Option(
            "--pass", "-p", metavar="PASSWORD", help="the password; - for stdin (PASSWORD)", show_default=False
        ),
    ] = None,
    cost: Annotated[int, typer.Option("--cost", "-c", metavar="N", help="work factor of bcrypt", min=4, max=31)] = 11,
    generate: Annotated[
        bool, typer.Option("--generate", "-g", help="generate a password and show it", show_default=False)
    ] = False,
    json: Json = False,
) -> None:
    """Show the bcrypt hash of a password, for a server's configuration; asks no server."""
    import bcrypt

    if generate and password is not None:
        raise UsageError("--generate and --pass exclude each other")
    chosen = "".join(secrets.choice(_SIGNS) for _ in range(GENERATED)) if generate else _password(ctx, password)
    raw = chosen.encode()
    if len(chosen) < SHORTEST_PASSWORD:
        raise UsageError(f"the password has {len(chosen)} characters, it needs {SHORTEST_PASSWORD}")
    if len(raw) > LONGEST_PASSWORD:
        raise UsageError(f"the password has {len(raw)} bytes, bcrypt takes {LONGEST_PASSWORD}")
    hashed = bcrypt.hashpw(raw, bcrypt.gensalt(cost, prefix=b"2a")).decode()
    if json:
        output.emit_json({**({"password": chosen} if generate else {}), "hash": hashed})
        return
    if generate:
        output.emit(f"Generated password: {chosen}")
        output.emit(f"       bcrypt hash: {hashed}")
    else:
        output.emit(hashed)


def _password(ctx: typer.Context, given: str | None) -> str:
    if given == "-":
        import sys

        return sys.stdin.readline().rstrip("\r\n")
    if given is None:
        given = os.environ.get("PASSWORD")
    if given is not None:
        return given
    if not session_of(ctx).interactive:
        raise UsageError("a password is needed: give --pass, --pass - for stdin, PASSWORD, or --generate")
    from getpass import getpass

    first = getpass("Password: ")
    if getpass("The same again: ") != first:
        raise UsageError("the two passwords differ")
    return first
