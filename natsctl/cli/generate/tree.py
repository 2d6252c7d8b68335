"""The whole command line as it is declared: nouns, verbs, arguments and flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from natsctl.cli.commands import COMMANDS
from natsctl.cli.invocation import command_of
from natsctl.cli.nouns import Noun

if TYPE_CHECKING:
    from natsctl.cli.verbs import Verb

NATS_SERVER_FLAGS = "server run"
"""Command whose flags are those of nats-server, which Typer does not read."""


def parameters(verb: Verb) -> Sequence[Any]:
    """Return the arguments and flags of a command, or of a group that runs without a verb."""
    return tuple(command_of(verb.function).params) if verb.function else ()


def completion_of(noun: Noun) -> dict[str, Any]:
    """Return the table that `completion/commands/<noun>.json` keeps: what completion has to know of a noun."""
    row = COMMANDS[noun.name]
    table = _declared(row) if row.function else {}
    return {**table, "commands": [_verb(verb, row.name) for verb in row.verbs]} if row.is_group else table


def _verb(verb: Verb, path: str) -> dict[str, Any]:
    path = f"{path} {verb.name}"
    if verb.is_group:
        return {"names": verb.words, "meaning": verb.help, "commands": [_verb(one, path) for one in verb.verbs]}
    declared = {} if path == NATS_SERVER_FLAGS else _declared(verb)
    return {"names": verb.words, "meaning": verb.summary, **declared}


def _declared(verb: Verb) -> dict[str, Any]:
    found = parameters(verb)
    flags = {
        spelling: ["" if one.is_flag else str(one.metavar or ""), one.help or ""]
        for one in found
        if one.param_type_name == "option" and not one.hidden
        for spelling in (*one.opts, *one.secondary_opts)
    }
    return {"arguments": [_metavar(one) for one in found if one.param_type_name == "argument"], "flags": flags}


def _metavar(parameter: Any) -> str:
    """The metavar of an argument without what says that it may be absent; `...` behind it for several."""
    metavar = str(parameter.metavar or parameter.name).replace("[", "").replace("]", "")
    bare = metavar.removesuffix("...").split(" ")[-1]
    return bare if parameter.nargs == 1 and not metavar.endswith("...") else f"{bare}..."
