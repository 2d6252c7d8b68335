"""`natsctl schema ls` and `info`."""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any, Final, get_origin

import msgspec
import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.flags import Json, Names
from natsctl.cli.schema.kinds import full_id, kinds, printed_by, schema_of
from natsctl.cli.schema.shapes import Described

_PLAIN: Final = {list: "An array; see the schema for its items.", dict: "An object; see the schema for its keys."}


def ls(
    match: Annotated[str, typer.Argument(metavar="MATCH", help="regular expression that the ids must match")] = "",
    commands: Annotated[
        bool, typer.Option("--commands", help="only the output of -j, with the commands that print it")
    ] = False,
    names: Names = False,
    json: Json = False,
) -> None:
    """List the kinds of documents that have a schema."""
    try:
        pattern = re.compile(match, re.IGNORECASE)
    except re.error as failure:
        raise UsageError(f"{match!r} is not a regular expression: {failure}") from failure
    printed = printed_by()
    found = [
        Described(id=id, description=_first_line(kind), commands=printed.get(id, []))
        for id, kind in kinds().items()
        if pattern.search(id) and (not commands or id in printed)
    ]
    if names:
        ids = [one.id for one in found]
        output.emit_json(ids) if json else output.emit_names(ids)
    elif json:
        output.emit_json(msgspec.to_builtins(found))
    elif found:
        from natsctl.cli.output import show_table
        from natsctl.cli.render.schema import render_kinds

        show_table(render_kinds(found, commands=commands))
    else:
        output.emit("No schema matches")


def _first_line(kind: Any) -> str:
    """Return the first line of a kind's docstring; for an array or a map Python has words of its own."""
    plain = _PLAIN.get(get_origin(kind) or kind)
    return plain or inspect.cleandoc(kind.__doc__ or "").split("\n")[0]


def info(
    id: Annotated[str, typer.Argument(metavar="ID", help="the id, or its end such as stream_configuration")],
    yaml: Annotated[bool, typer.Option("--yaml", help="as YAML")] = False,
    json: Json = False,
) -> None:
    """Show the JSON schema of a kind of document; with `[]` behind the id, that of an array of them."""
    schema = schema_of(full_id(id))
    if not yaml or json:
        output.emit_json(schema)
        return
    import yaml as writer

    output.emit(writer.safe_dump(schema, sort_keys=False, allow_unicode=True).rstrip("\n"))
