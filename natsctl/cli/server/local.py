"""Commands that need no running server: `natsctl server run`, `mappings`, `passwd` and `repair`."""

from __future__ import annotations

import os
import secrets
import string
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec.structs import asdict

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.subjects import is_valid_subject
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import confirmed
from natsctl.cli.framework.flags import Force, Json
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.prompts import Question, prompt
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import safe
from natsctl.cli.server.provisioned import serve

if TYPE_CHECKING:
    from natsctl.server.storage import RefusedStream


def run() -> int:
    """Run a JetStream server until it is stopped; takes the flags of nats-server, see `natsctl server run -h`."""
    return serve(())


class Mapped(msgspec.Struct):
    """A subject and its mapped subject, null if the source does not match it."""

    subject: str
    mapped: str | None


class Hashed(msgspec.Struct):
    """The hash of a password, and the password if it was generated."""

    hash: str
    password: str = ""


SHORTEST_PASSWORD = 10
"""Minimum characters of a password: shorter ones can be guessed."""
LONGEST_PASSWORD = 72
"""Bytes that bcrypt uses; further ones would be ignored."""
GENERATED = 22
_SIGNS = string.ascii_letters + string.digits + "-_%@&^#"


def mappings(
    session: Session,
    source: Annotated[str, Argument(metavar="SOURCE", help="the subjects that are mapped")],
    destination: Annotated[str, Argument(metavar="DEST", help="the subjects that they become")],
    subjects: Annotated[
        list[str] | None,
        Argument(metavar="SUBJECT", help="subjects to test the mapping with"),
    ] = None,
    json: Json = False,
) -> None:
    """Check a subject mapping and show the mapped subjects; asks no server."""
    from natsctl.api.subject_transform import SubjectMapping, TransformError, check_mapping

    try:
        check_mapping(source, destination)
        mapping = SubjectMapping.compile(source, destination)
    except TransformError as failure:
        raise UsageError(f"{'SOURCE' if failure.kind == 'source' else 'DEST'}: {failure}") from failure
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
    for subject in subjects:
        if not is_valid_subject(subject) or any(token in ("*", ">") for token in subject.split(".")):
            raise UsageError(f"SUBJECT: {subject!r} is not a subject that a message can have")
    return list(subjects)


def _try_on(mapping: object) -> None:
    from natsctl.api.subject_transform import SubjectMapping

    if not isinstance(mapping, SubjectMapping):
        return
    while subject := str(prompt(Question("Subject", "A subject to map; an empty one ends. Given as SUBJECT"))):
        to = mapping.apply(subject.encode())
        output.emit("no match" if to is None else safe(to.decode()))


def passwd(
    session: Session,
    password: Annotated[
        str | None,
        Option("--pass", "-p", metavar="PASSWORD", help="the password; - for stdin (PASSWORD)"),
    ] = None,
    cost: Annotated[int, Option("--cost", "-c", metavar="N", help="work factor of bcrypt", min=4, max=31)] = 11,
    generate: Annotated[bool, Option("--generate", "-g", help="generate a password and show it")] = False,
    json: Json = False,
) -> None:
    """Show the bcrypt hash of a password, for a server's configuration; asks no server."""
    import bcrypt

    if generate and password is not None:
        raise UsageError("--generate and --pass exclude each other")
    chosen = "".join(secrets.choice(_SIGNS) for _ in range(GENERATED)) if generate else _password(session, password)
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


def _password(session: Session, given: str | None) -> str:
    if given == "-":
        return sys.stdin.readline().rstrip("\r\n")
    if given is None:
        given = os.environ.get("PASSWORD")
    if given is not None:
        return given
    if not session.interactive:
        raise UsageError("a password is needed: give --pass, --pass - for stdin, PASSWORD, or --generate")
    from getpass import getpass

    first = getpass("Password: ")
    if getpass("The same again: ") != first:
        raise UsageError("the two passwords differ")
    return first


class Refused(msgspec.Struct):
    """A stream that a server refuses to serve, with the reason, and after a repair the result."""

    account: str
    name: str
    reason: str
    repaired: bool
    messages: int
    last_seq: int
    notes: list[str]
    remains: str


def repair(
    session: Session,
    folder: Annotated[Path, Argument(metavar="STORE_DIR", help="storage folder of the stopped server")],
    streams: Annotated[
        list[str] | None,
        Argument(metavar="STREAM", help="refused streams to repair; without any, they are shown"),
    ] = None,
    account: Annotated[str, Option("--account", metavar="NAME", help="the account of the streams")] = "$G",
    config: Annotated[
        Path | None,
        Option("--config", metavar="FILE", help="JSON configuration to use if it is lost"),
    ] = None,
    server_config: Annotated[
        Path | None,
        Option("--server-config", metavar="FILE", help="nats.conf of the server, with the key of an encrypted store"),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show the streams of a stopped server that it refuses to serve, or make streams of their readable parts.

    A stream is refused where files are damaged, missing, older than the synced data, or another stream's. Putting
    the right file back loses nothing. A repair gives up what cannot be read: messages keep their sequences and times,
    consumers are as they were in the rest of the journal, and the old folder is moved aside below refused/.
    `natsctl stream rm` on the running server gives a stream up altogether and frees its name.
    """
    from natsctl.server.storage import refused_streams, repair_streams

    if not streams:
        found = refused_streams(folder, server_config)
    else:
        question = f"discard what cannot be read of {', '.join(map(safe, streams))}"
        if not confirmed(session, question, force):
            return
        lost = config.read_bytes() if config is not None else None
        found = repair_streams(folder, account, streams, lost, server_config)
    if json:
        output.emit_json([asdict(one) for one in found])
        return
    for one in found:
        _show(one)
    if not found:
        output.note("every stream is served")


def _show(one: RefusedStream) -> None:
    name = f"{safe(one.account)} > {safe(one.name)}"
    if not one.repaired:
        output.emit(f"{name}: {safe(one.reason)}")
        return
    output.emit(
        f"{name}: {plural(one.messages, 'message')} up to sequence {one.last_seq:,}; the old files are in {one.remains}"
    )
    for note in one.notes:
        output.emit(f"  {safe(note)}")
