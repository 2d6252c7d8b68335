"""The whole command line as it is declared: nouns, verbs, arguments and flags."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from natsctl.cli.main import NOUNS, Noun
from natsctl.cli.typer_run import import_typer
from natsctl.cli.verbs import Verb, build_single, load

REFERENCE_RUN = frozenset(("server.local:run",))
"""Commands whose flags are the reference server's, and not Typer's."""


@functools.cache
def parameters(where: str) -> Sequence[Any]:
    """The arguments and flags of the command that stands there."""
    return tuple(import_typer().get_command(build_single(where)).params)


def completion_of(noun: Noun) -> dict[str, Any]:
    """What completion has to know of a noun; the table that `completion/commands/<noun>.json` keeps."""
    table: dict[str, Any] = {}
    if ":" in noun.where or noun.alone:
        table |= _declared(noun.alone or noun.where)
    if ":" not in noun.where:
        table["commands"] = [_verb(verb, noun.name) for verb in load(noun.where) if not verb.hidden]
    return table


def _verb(verb: Verb, path: str) -> dict[str, Any]:
    path = f"{path} {verb.name}"
    if verb.is_group:
        below = [_verb(one, path) for one in load(verb.where) if not one.hidden]
        return {"names": verb.words, "meaning": verb.help, "commands": below}
    meaning = verb.help or _first_sentence(load(verb.where))
    declared = {} if verb.where in REFERENCE_RUN else _declared(verb.where)
    return {"names": verb.words, "meaning": meaning, **declared}


def _first_sentence(function: Any) -> str:
    return " ".join(inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].split()).removesuffix(".")


def _declared(where: str) -> dict[str, Any]:
    found = parameters(where)
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


def commands(nouns: Sequence[Noun] = NOUNS) -> Iterator[tuple[str, str, Verb | Noun]]:
    """Every command that is not hidden, groups left out: its words, where it is, and its row."""
    for noun in nouns:
        if ":" in noun.where or noun.alone:
            yield noun.name, noun.alone or noun.where, noun
        if ":" not in noun.where:
            yield from _below(noun.name, load(noun.where))


def _below(path: str, verbs: Sequence[Verb]) -> Iterator[tuple[str, str, Verb | Noun]]:
    for verb in verbs:
        if verb.is_group:
            yield from _below(f"{path} {verb.name}", load(verb.where))
        elif not verb.hidden:
            yield f"{path} {verb.name}", verb.where, verb
