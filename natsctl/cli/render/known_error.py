"""Errors of the catalogue: one as a page, several as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.api.errors import exit_code_of
from natsctl.cli.render.page import Page
from natsctl.cli.render.tables import render_table

if TYPE_CHECKING:
    from natsctl.cli.errors import KnownError
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
