"""JetStream's errors by number: `natsctl errors`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from natsctl.api.catalogue import ApiError, entries
from natsctl.api.errors import NatsctlError, NotFoundError, UsageError, exit_code_of
from natsctl.api.model import Model, WireEnum
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.parameters import Argument, Option, as_usage_error
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.page import Page
from natsctl.cli.render.tables import Table, render_table
from natsctl.client.atomic_file import atomic_write

_USES = {"legacy": "older servers only", "reserved": "has a number, but is never sent"}


def render_error_page(one: KnownError) -> Page:
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
    causes = json.loads(Path(__file__).with_name("error_causes.json").read_text(encoding="utf-8"))
    errors = []
    for number, entry in sorted(entries().items()):
        cause, use = causes[str(number)]
        errors.append(
            KnownError(
                err_code=number,
                code=entry.code,
                constant=entry.constant,
                description=entry.description,
                cause=cause,
                use=Use(use),
            )
        )
    return errors


def matching(match: str, errors: Sequence[KnownError]) -> list[KnownError]:
    """Return the errors with a number, name, text or cause that matches the regular expression; raises UsageError."""
    try:
        pattern = re.compile(match, re.IGNORECASE)
    except re.error as failure:
        raise UsageError(f"{match!r} is not a regular expression: {failure}") from failure
    return [
        error
        for error in errors
        if pattern.search(f"{error.err_code} {error.constant}\n{error.description}\n{error.cause}")
    ]


def ordered(found: list[KnownError], order: str, *, reverse: bool) -> list[KnownError]:
    named = next((name for name in ORDERS if order and name.startswith(order.lower())), None)
    if named is None:
        raise UsageError(f"cannot sort by {order!r}: there are {', '.join(ORDERS)}")
    return sorted(found, key=ORDERS[named], reverse=reverse)


Definitions = Annotated[
    str | None,
    Option("--errors", metavar="FILE", help="explain the errors of this file instead, nats-server's errors.json"),
]


class Definition(Model, kw_only=True):
    """An error in nats-server's errors.json, the file that its constants are generated from."""

    constant: str = ""
    code: int = 0
    error_code: int = 0
    description: str = ""
    comment: str = ""
    help: str = ""
    url: str = ""
    deprecates: str = ""

    def faults(self) -> list[str]:
        checks = (
            (
                re.fullmatch(r"\{[^}]+\}", self.description) and not self.comment,
                "a description of one token needs a comment",
            ),
            (not 10000 <= self.error_code <= 65535, "error_code must be between 10000 and 65535"),
            (not self.code, "code is missing"),
            (not self.constant, "constant is missing"),
            (not self.description, "description is missing"),
            (self.description.count("{") != self.description.count("}"), "the numbers of { and } differ"),
            (
                "{" in self.description and not self.constant.endswith("F"),
                "the constant of an error with tokens must end in F",
            ),
        )
        return [text for wrong, text in checks if wrong]


class Checked(Model, kw_only=True):
    """Result of a check of a file of definitions: their number, and the faults by error code."""

    errors: int
    faults: dict[str, list[str]]


def read_definitions(file: str) -> list[dict[str, object]]:
    with as_usage_error(file):
        definitions = json.loads(Path(file).read_text(encoding="utf-8"))
    if not isinstance(definitions, list) or not all(isinstance(one, dict) for one in definitions):
        raise UsageError(f"{file}: expected an array of objects, as in nats-server's server/errors.json")
    return definitions


def definition_of(document: object, where: str) -> Definition:
    with as_usage_error(where):
        return msgspec.convert(document, Definition)


def defined_errors(file: str | None) -> list[KnownError]:
    """Return the errors of a file of definitions, by number; or the errors that natsctl knows."""
    if file is None:
        return known_errors()
    found = [definition_of(definition, file) for definition in read_definitions(file)]
    return sorted(
        (
            KnownError(
                err_code=one.error_code,
                code=one.code,
                constant=one.constant,
                description=one.description,
                cause=one.comment,
                use=Use.CURRENT,
            )
            for one in found
        ),
        key=lambda one: one.err_code,
    )


def ls(
    match: Annotated[str, Argument(metavar="MATCH", help="regular expression that they must match")] = "",
    sort: Annotated[str, Argument(metavar="SORT", help="sort by code, http or description")] = "code",
    reverse: Annotated[bool, Option("--reverse/--no-reverse", "-R", help="reverse the order")] = False,
    errors: Definitions = None,
    json: Json = False,
) -> None:
    """List JetStream's errors."""
    found = ordered(matching(match, defined_errors(errors)), sort, reverse=reverse)
    output.show_list(found, lambda: render_errors(found), "No error matches", json=json)


def lookup(
    code: Annotated[str, Argument(metavar="CODE", help="number or name, such as 10059 or JSStreamNotFoundErr")],
    errors: Definitions = None,
    json: Json = False,
) -> None:
    """Explain one error: its text, its HTTP-like code and what causes it."""
    known = defined_errors(errors)
    found = next((one for one in known if code.lower() in (str(one.err_code), one.constant.lower())), None)
    if found is None:
        names = [one.constant for one in known] + [str(one.err_code) for one in known]
        hint = did_you_mean(code, names) or "natsctl errors ls MATCH searches them"
        raise NotFoundError(f"there is no error {code}", hint=hint)
    if json:
        output.emit_json(found)
        return
    output.show_page(render_error_page(found))


def validate(
    file: Annotated[str | None, Argument(metavar="FILE", help="the file; else the file of --errors")] = None,
    errors: Definitions = None,
    json: Json = False,
) -> None:
    """Check a file of error definitions, such as nats-server's errors.json."""
    chosen = file or errors
    if chosen is None:
        raise UsageError("FILE is missing")
    found = [definition_of(definition, chosen) for definition in read_definitions(chosen)]
    faults: dict[str, list[str]] = {}
    seen: set[int] = set()
    for one in found:
        again = ["this error_code is used twice"] if one.error_code in seen else []
        seen.add(one.error_code)
        if wrong := [*one.faults(), *again]:
            faults.setdefault(str(one.error_code), []).extend(wrong)
    if json:
        output.emit_json(Checked(errors=len(found), faults=faults))
    else:
        for number, wrong in faults.items():
            output.emit(f"{number} failed: {', '.join(wrong)}")
    if faults:
        raise NatsctlError(f"{chosen} is invalid")
    if not json:
        output.emit(f"Validated {len(found)} errors")


def edit(
    session: Session,
    file: Annotated[str, Argument(metavar="FILE", help="the file of definitions")],
    code: Annotated[int | None, Argument(metavar="CODE", help="the error to edit; else a new one is added")] = None,
) -> None:
    """Edit one error of a file of definitions in $EDITOR, or add one with the next number."""
    found = read_definitions(file)
    at = next((place for place, one in enumerate(found) if code is not None and one.get("error_code") == code), None)
    if at is None:
        highest = max((definition_of(one, file).error_code for one in found), default=9999)
        before = msgspec.structs.asdict(Definition(error_code=code or highest + 1))
    else:
        before = found[at]
    wanted = _edited_definition(session, before)
    if any(one.get("error_code") == wanted["error_code"] for place, one in enumerate(found) if place != at):
        raise UsageError(f"{file} has an error {wanted['error_code']} already: nothing is changed")
    kept = [*found, wanted] if at is None else [*found[:at], wanted, *found[at + 1 :]]
    if session.dry_run:
        output.emit(json.dumps(wanted, indent=2, ensure_ascii=False))
        return
    with as_usage_error(file), atomic_write(Path(file)) as out:
        out.write((json.dumps(kept, indent=2, ensure_ascii=False) + "\n").encode())
    validate(file)


def _edited_definition(session: Session, before: dict[str, object]) -> dict[str, object]:
    """Return a definition after the user's edit; one with faults is edited again at a terminal. Raises UsageError."""
    from natsctl.cli.assets import edit_text

    text = json.dumps(before, indent=2, ensure_ascii=False) + "\n"
    while True:
        text = edit_text(text, ".json")
        try:
            document = json.loads(text)
            wrong = definition_of(document, "the edited text").faults()
        except ValueError as failure:
            wrong = [f"not a JSON document: {failure}"]
        except UsageError as failure:
            wrong = [str(failure)]
        if not wrong:
            return dict(document)
        refusal = UsageError(f"invalid error: {', '.join(wrong)}", hint="the file is unchanged")
        if not session.interactive:
            raise refusal
        from natsctl.cli.framework.prompts import prompt_confirm

        output.note(str(refusal))
        if not prompt_confirm("Edit it again", True):
            raise refusal


VERBS = (
    verb("ls, list", ls, "cli.errors:KnownError[]", "natsctl errors ls subject", "natsctl errors ls mirror http -R"),
    verb("lookup, find, get, show, view, l", lookup, "cli.errors:KnownError", "natsctl errors lookup 10059"),
    verb("edit, vi, add, new", edit, "", "natsctl errors edit server/errors.json 10059"),
    verb("validate", validate, "cli.errors:Checked", "natsctl errors validate server/errors.json"),
)
