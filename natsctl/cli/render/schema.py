"""Kinds of documents as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.cli.render.tables import render_table

if TYPE_CHECKING:
    from natsctl.cli.render.tables import Table
    from natsctl.cli.schema.shapes import Described


def render_kinds(found: Sequence[Described], *, commands: bool) -> Table:
    """Return the table of kinds, with what each is or with the commands that print it."""
    rows = [(one.id, ", ".join(one.commands) if commands else one.description) for one in found]
    return render_table("Schemas", ("ID", "Printed By" if commands else "Description"), rows)
