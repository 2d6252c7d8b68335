"""`natsctl errors ls` and `lookup`."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from natsctl.api.errors import NatsctlError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.errors.known import known_errors, matching, ordered
from natsctl.cli.options import Json


class UnknownError(NatsctlError):
    """No error has that number or name."""

    exit_code = ExitCode.NOT_FOUND


def ls(
    match: Annotated[str, typer.Argument(metavar="MATCH", help="regular expression that they must match")] = "",
    sort: Annotated[str, typer.Argument(metavar="SORT", help="sort by code, http or description")] = "code",
    reverse: Annotated[bool, typer.Option("--reverse", "-R", help="reverse the order")] = False,
    json: Json = False,
) -> None:
    """List JetStream's errors."""
    found = ordered(matching(match), sort, reverse=reverse)
    if json:
        output.emit_json(msgspec.to_builtins(found))
    elif found:
        from natsctl.cli.render.known_error import render_errors
        from natsctl.cli.screen import show_table

        show_table(render_errors(found))
    else:
        output.emit("No error matches")


def lookup(
    code: Annotated[str, typer.Argument(metavar="CODE", help="number or name, such as 10059 or JSStreamNotFoundErr")],
    json: Json = False,
) -> None:
    """Explain one error: its text, its HTTP-like code and what causes it."""
    errors = known_errors()
    found = next((one for one in errors if code.lower() in (str(one.err_code), one.constant.lower())), None)
    if found is None:
        from natsctl.cli.suggest import did_you_mean

        names = [one.constant for one in errors] + [str(one.err_code) for one in errors]
        hint = did_you_mean(code, names) or "natsctl errors ls MATCH searches them"
        raise UnknownError(f"there is no error {code}", hint=hint)
    if json:
        output.emit_json(msgspec.to_builtins(found))
        return
    from natsctl.cli.render.known_error import render_error_page
    from natsctl.cli.screen import show_page

    show_page(render_error_page(found))
