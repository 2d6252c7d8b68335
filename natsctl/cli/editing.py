"""What every edit does: merge onto the live configuration, show what differs, and say what a dry run would send."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from natsctl.api.errors import UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.options import Config as ConfigFile
from natsctl.cli.render.change import SERVER_OWNED, Change, render_change
from natsctl.cli.render.text import safe
from natsctl.client.preview import DryRunError

if TYPE_CHECKING:
    from natsctl.api.model import Model
    from natsctl.cli.flags import Config, Flag, Given
    from natsctl.cli.session import Session

NAMES = frozenset(("name", "durable_name"))
"""Fields that say what is meant, and are never taken away."""

Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="FIELD", help="remove a field, so that the server's default applies"),
]


class Edits(NamedTuple):
    """What changes a configuration beside its own flags: a bundle of flags for commands."""

    config: ConfigFile = None
    replace: Annotated[
        bool,
        typer.Option("--replace", help="--config is the whole configuration: fields it leaves out take their defaults"),
    ] = False
    unset: Unset = None
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="edit the configuration in $EDITOR", show_default=False)
    ] = False

    def check(self) -> None:
        """Raise UsageError for what does not go together."""
        if self.replace and not self.config:
            raise UsageError("--replace needs --config FILE")

    def change(self, given: Given) -> object:
        """Return what is true where anything is to be changed, by these or by the flags of a table."""
        return given or self.config or self.unset or self.interactive


def check_given(session: Session, change: object, hint: str) -> None:
    """Raise UsageError, with a hint at what to give, where a person at a terminal gave no change."""
    if session.interactive and not change:
        raise UsageError("nothing to change was given", hint=hint)


def without_server_metadata(config: Config) -> Config:
    """The configuration without the metadata that the server writes anew into each answer."""
    from natsctl.cli.documents import own_metadata

    own = own_metadata(config.get("metadata") or {})
    rest = {key: value for key, value in config.items() if key != "metadata"}
    return {**rest, "metadata": own} if own else rest


def merged(live: Config, patch: Config) -> Config:
    """The live configuration with a patch over it; metadata of the server stays."""
    wanted = {**live, **patch}
    if "metadata" in patch:
        owned = {key: value for key, value in (live.get("metadata") or {}).items() if key.startswith(SERVER_OWNED)}
        wanted["metadata"] = {**patch["metadata"], **owned}
    return wanted


def unset(config: Config, words: Sequence[str] | None, table: Sequence[Flag], model: type[Model]) -> list[str]:
    """Take fields away, and return which: by name, by flag (`max-age`), or below another (`metadata.team`).

    Raises UsageError for what is no field.
    """
    by_flag = {flag.name.lstrip("-"): flag.to for flag in table if isinstance(flag.to, str)}
    known = {*model.__struct_fields__, *config} - NAMES
    paths = []
    for word in [one for text in words or () for one in text.replace(",", " ").split()]:
        flag = word.lstrip("-")
        path = by_flag.get(flag) or (flag if flag.partition(".")[0] in known else flag.replace("-", "_"))
        if path.partition(".")[0] not in known:
            from natsctl.cli.suggest import did_you_mean

            fields = ", ".join(sorted(known))
            raise UsageError(f"--unset {word}: no such field", hint=did_you_mean(path, known) or f"there are {fields}")
        _remove(config, path)
        paths.append(path)
    return paths


def _remove(config: Config, path: str) -> None:
    head, dot, rest = path.partition(".")
    if not dot:
        config.pop(head, None)
    elif isinstance(config.get(head), Mapping):
        # The key may have dots of its own, as keys of metadata have; the object may be shared with the live one.
        below = dict(config[head])
        if rest in below:
            del below[rest]
        else:
            _remove(below, rest)
        config[head] = below


def show_differences(found: Sequence[Change], what: str) -> None:
    """Tell on stderr what an edit changes."""
    output.note("\n".join([f"Differences in {safe(what)}:", *(f"  {render_change(one)}" for one in found)]))


def preview_edit(session: Session, found: Sequence[Change], send: Callable[[], object], *, json: bool) -> None:
    """End a dry run: what differs and the request that `send` would send; drift where there is any, else success."""
    from natsctl.cli.preview import show_preview

    differences: dict[str, Any] = {"differences": [one._asdict() for one in found]}
    if not found:
        if json:
            show_preview(DryRunError(), {**session.effect, **differences}, as_json=True)
        else:
            output.emit("No difference in configuration")
        return
    if not json:
        output.emit("\n".join(f"  {render_change(one)}" for one in found))
    try:
        send()
    except DryRunError as preview:
        show_preview(preview, {**session.effect, **(differences if json else {})}, as_json=json)
    raise typer.Exit(ExitCode.DRIFT)
