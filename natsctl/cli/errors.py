"""JetStream's errors by number: `natsctl errors`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from natsctl.api.catalogue import entries
from natsctl.api.errors import ExitCode, NatsctlError, UsageError, exit_code_of
from natsctl.api.model import Model, WireEnum
from natsctl.cli import output
from natsctl.cli.flags import Json
from natsctl.cli.parameters import Argument, Option
from natsctl.cli.render.page import Page
from natsctl.cli.render.tables import render_table
from natsctl.cli.verbs import Verb

if TYPE_CHECKING:
    from natsctl.cli.render.tables import Table


_USES = {"legacy": "older servers only", "reserved": "has a number, but is never sent"}


def render_error_page(one: KnownError) -> Page:
    """Return the page of one error, with the exit status of a command that fails with it."""
    from natsctl.api.catalogue import ApiError

    page = Page(f"NATS Error {one.err_code}")
    rows = page.section()
    rows.row("Description", one.description)
    rows.row("HTTP Code", str(one.code))
    rows.row("Go Constant", one.constant)
    rows.maybe("Cause", one.cause)
    rows.maybe("Use", _USES.get(one.use, ""))
    rows.row("Exit Code", str(int(exit_code_of(ApiError(code=one.code, err_code=one.err_code)))))
    return page


def render_errors(found: Sequence[KnownError]) -> Table:
    """Return the table of errors."""
    rows = [(str(one.err_code), str(one.code), one.description, one.constant) for one in found]
    columns = ("NATS Code", "HTTP Code", "Description", "Go Constant")
    return render_table("NATS Errors", columns, rows, right=columns[:2], least=("Go Constant",))


class Use(WireEnum):
    """Use of an error: whether servers send it."""

    CURRENT = "current"
    LEGACY = "legacy"
    """Sent by older servers only."""
    RESERVED = "reserved"
    """Has a number, but is never sent."""


class KnownError(Model, kw_only=True):
    """One kind of error of the JetStream API; `description` may have placeholders such as `{err}`."""

    err_code: int
    code: int
    constant: str
    description: str
    cause: str
    use: Use


ORDERS = {
    "code": lambda one: one.err_code,
    "http": lambda one: (one.code, one.err_code),
    "description": lambda one: (one.description.lower(), one.err_code),
}
"""Orders of a list, and the key of each."""


def known_errors() -> list[KnownError]:
    """Return every error, by number."""
    causes = json.loads(Path(__file__).with_name("error_causes.json").read_text(encoding="utf-8"))
    found = []
    for number, entry in sorted(entries().items()):
        cause, use = causes[str(number)]
        found.append(
            KnownError(
                err_code=number,
                code=entry.code,
                constant=entry.constant,
                description=entry.description,
                cause=cause,
                use=Use(use),
            )
        )
    return found


def matching(match: str) -> list[KnownError]:
    """Return the errors whose number, name, text or cause the regular expression finds; raises UsageError."""
    try:
        pattern = re.compile(match, re.IGNORECASE)
    except re.error as failure:
        raise UsageError(f"{match!r} is not a regular expression: {failure}") from failure
    return [
        one
        for one in known_errors()
        if pattern.search(f"{one.err_code} {one.constant}\n{one.description}\n{one.cause}")
    ]


def ordered(found: list[KnownError], order: str, *, reverse: bool) -> list[KnownError]:
    """Return the errors sorted by one of ORDERS, which may be abbreviated; raises UsageError."""
    named = next((name for name in ORDERS if order and name.startswith(order.lower())), None)
    if named is None:
        raise UsageError(f"cannot sort by {order!r}: there are {', '.join(ORDERS)}")
    return sorted(found, key=ORDERS[named], reverse=reverse)


class UnknownError(NatsctlError):
    """No error has that number or name."""

    exit_code = ExitCode.NOT_FOUND


def ls(
    match: Annotated[str, Argument(metavar="MATCH", help="regular expression that they must match")] = "",
    sort: Annotated[str, Argument(metavar="SORT", help="sort by code, http or description")] = "code",
    reverse: Annotated[bool, Option("--reverse", "-R", help="reverse the order")] = False,
    json: Json = False,
) -> None:
    """List JetStream's errors."""
    found = ordered(matching(match), sort, reverse=reverse)
    if json:
        output.emit_json(msgspec.to_builtins(found))
    elif found:
        from natsctl.cli.output import show_table

        show_table(render_errors(found))
    else:
        output.emit("No error matches")


def lookup(
    code: Annotated[str, Argument(metavar="CODE", help="number or name, such as 10059 or JSStreamNotFoundErr")],
    json: Json = False,
) -> None:
    """Explain one error: its text, its HTTP-like code and what causes it."""
    errors = known_errors()
    found = next((one for one in errors if code.lower() in (str(one.err_code), one.constant.lower())), None)
    if found is None:
        from natsctl.cli.resolve import did_you_mean

        names = [one.constant for one in errors] + [str(one.err_code) for one in errors]
        hint = did_you_mean(code, names) or "natsctl errors ls MATCH searches them"
        raise UnknownError(f"there is no error {code}", hint=hint)
    if json:
        output.emit_json(msgspec.to_builtins(found))
        return
    from natsctl.cli.output import show_page

    show_page(render_error_page(found))


VERBS = (
    Verb(
        "ls, list",
        ls,
        answer="cli.errors:KnownError[]",
        examples=("natsctl errors ls subject", "natsctl errors ls mirror http -R"),
    ),
    Verb(
        "lookup, find, get, show, view, l",
        lookup,
        answer="cli.errors:KnownError",
        examples=("natsctl errors lookup 10059",),
    ),
)
