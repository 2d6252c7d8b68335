"""Configured assets: one way from a file, flags and answers to the configuration of a stream, consumer or bucket.

A configuration is read from a file (JSON or YAML, or the output of `info -j`), completed by flags and questions, and
sent. An edit is a merge onto the live configuration, by file, flags or in the user's editor; it shows what differs, and
a dry run shows its request. In the editor a configuration is YAML with durations and sizes in readable form; unedited
fields keep the value that the server sent, fields unknown to natsctl included. Older and smaller servers leave out
unknown fields: a warning names the fields that were not taken.
"""

from __future__ import annotations

import json as json_text
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from natsctl.api.errors import ExitCode, UsageError
from natsctl.api.model import Model
from natsctl.api.units import format_duration
from natsctl.api.versions import SERVER_METADATA
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import confirmed_edit, show_preview
from natsctl.cli.framework.flags import Config, ConfigFile, Flag, Given, Unset, apply
from natsctl.cli.framework.parameters import ExitError, Option, as_usage_error
from natsctl.cli.framework.prompts import Question, prompt, prompt_confirm
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.render.change import (
    DURATIONS,
    SIZES,
    FieldChange,
    not_taken,
    render_change,
    render_labelled,
    render_not_taken,
)
from natsctl.cli.render.text import safe
from natsctl.client.message import DryRunError

if TYPE_CHECKING:
    from natsctl.api.update_losses import Loss
    from natsctl.cli.framework.session import Session
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Answer


_SET_KEYS = frozenset(
    {"apiVersion", "kind", "streams", "consumers", "key_values", "kv", "object_stores", "objects", "owner", "include"}
)
"""Keys of desired-state documents; a configuration with a name may have some of them."""


def load_config(path: str, model: type[Model]) -> dict[str, Any]:
    """Return the configuration in the file, as `config_in` gives it. Raises UsageError by file, path and reason."""
    return config_in(load_object(path), path, model)


def load_object(path: str) -> Mapping[str, Any]:
    """Return the object in the file, unchanged; `-` reads stdin. Raises UsageError, also for a set of documents."""
    document = parse_document(path, read_text(path))
    if not isinstance(document, Mapping):
        raise UsageError(f"{path}: $: expected an object{', but there is nothing' if document is None else ''}")
    named = "name" in document or "config" in document
    if isinstance(document.get("kind"), str) or not (named or _SET_KEYS.isdisjoint(document)):
        raise _is_a_set(path)
    return document


def _is_a_set(path: str) -> UsageError:
    return UsageError(
        f"{path}: expected one configuration, not a set of documents", hint=f"natsctl apply {path} applies all of them"
    )


def config_in(document: Mapping[str, Any], path: str, model: type[Model]) -> dict[str, Any]:
    """Return the configuration of a document, in wire values, with the keys that it has and no others.

    Durations, sizes and times may be written for people. Raises UsageError by file, path and reason.
    """
    from natsctl.api.documents import is_info, load_document

    inner = document["config"] if isinstance(document.get("config"), Mapping) else document
    typed = load_document(document if is_info(document) else inner, model, path)
    config = {str(key): value for key, value in inner.items() if value is not None}
    wire = {key: _wire(typed, key, value) for key, value in config.items()}
    if isinstance(wire.get("metadata"), dict):
        wire["metadata"] = own_metadata(wire["metadata"])
    return wire


def own_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if not key.startswith(SERVER_METADATA)}


def copied_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a copy: without an owner, as no documents created it or may remove it."""
    from natsctl.client.asset_config import LABELS

    return {key: value for key, value in own_metadata(metadata).items() if key not in LABELS}


def write_config(config: Mapping[str, Any], model: type[Model], path: str | None) -> None:
    """Check a configuration as well as possible without a server, and print it or write it to a file.

    Raises UsageError. Only the user can read the file: a configuration may name prefixes of other accounts.
    """
    from natsctl.api.documents import load_document
    from natsctl.client.atomic_file import PRIVATE, atomic_write

    load_document(dict(config), model, "configuration")
    if path in (None, "-"):
        output.emit_json(config)
        return
    with as_usage_error(f"--output {path}"), atomic_write(Path(str(path)), PRIVATE) as file:
        file.write(json_text.dumps(config, indent=2).encode() + b"\n")
    output.note(f"Wrote the configuration to {path}")


def _wire(typed: Model, key: str, value: Any) -> Any:
    return msgspec.to_builtins(getattr(typed, key)) if key in typed.__struct_fields__ else value


def read_text(path: str) -> str:
    """Return the text of a configuration file, `-` for stdin. Raises UsageError."""
    from natsctl.api.locations import TextError
    from natsctl.desired.documents import files

    try:
        return files.read_text(path)
    except TextError as fault:
        raise UsageError(f"--config {path}: {fault.reason}") from fault


def parse_document(path: str, text: str) -> Any:
    """Return the content of a text, JSON or YAML; `path` names it. Raises UsageError by path and line."""
    from natsctl.api.documents import values_of

    documents = values_of(text, path)
    if len(documents) > 1:
        raise _is_a_set(path)
    return documents[0] if documents else None


NAMES = frozenset(("name", "durable_name"))
"""Fields that identify the asset, and are never removed."""


class Edits(NamedTuple):
    """Flags of edits that are not about single fields: a bundle for commands."""

    config: ConfigFile = None
    replace: Annotated[
        bool,
        Option("--replace", help="fields that --config leaves out take their defaults, also without a name in it"),
    ] = False
    unset: Unset = None
    interactive: Annotated[bool, Option("--interactive", "-i", help="edit the configuration in $EDITOR")] = False

    def check(self) -> None:
        if self.replace and not self.config:
            raise UsageError("--replace needs --config FILE")

    def is_whole(self, patch: Config) -> bool:
        """Return whether the file is the whole configuration: one with a name is, as files of `nats` are."""
        return self.replace or not NAMES.isdisjoint(patch)

    def change(self, given: Given) -> object:
        """Return a true value if anything is to be changed, by these or by the flags of a table."""
        return given or self.config or self.unset or self.interactive

    def applied(
        self,
        session: Session,
        live: Config,
        patch: Config,
        given: Given,
        table: Sequence[Flag],
        model: type[Model],
        what: str,
        meanings: Mapping[str, str] | None = None,
    ) -> tuple[Config, list[str]]:
        """Return the configuration after the file, the editor, the flags and --unset, and the fields that were unset.

        The asset keeps its name. `meanings` are descriptions of fields for the editor. Raises UsageError.
        """
        names = {key: value for key, value in live.items() if key in NAMES}
        own = {key: value for key, value in patch.items() if key not in NAMES}
        config = (own if self.is_whole(patch) else merged(live, own)) | names
        if self.interactive:
            config = edit_config(session, config, model, what, meanings) | names
        apply(config, table, given)
        return config, unset(config, self.unset, table, model)


class AssetEdit(NamedTuple):
    """An edit of a stream, consumer or bucket: its changes, and how to send it and to show the result."""

    what: str
    """The asset in texts: `Stream ORDERS`."""
    changes: Sequence[FieldChange]
    losses: Sequence[Loss]
    update: Callable[[Manager], Awaitable[Answer[Any]]]
    show: Callable[[Answer[Any], str], None]
    """Shows an answer, and a line about it."""
    labelled: bool = True
    quiet: bool = False
    typed: str = ""
    """The word that confirms the edit, if a plain yes is not enough."""
    unset: Sequence[str] = ()

    def send(self, session: Session, live: Answer[Any], wanted: Config, *, force: bool, json: bool) -> None:
        def update() -> Answer[Any]:
            return session.ask(self.update, changes=True)

        if session.dry_run:
            preview_edit(session, self.changes, update, json=json)
            return
        if not self.changes:
            self.show(live, "No difference in configuration")
            return
        if session.interactive or not (json or self.quiet):
            show_differences(self.changes, self.what, labelled=self.labelled)
        if not confirmed_edit(session, f"edit {self.what}", force, self.losses, typed=self.typed):
            return
        answer = update()
        self.show(answer, "" if self.quiet else f"{self.what} was updated")
        requested = part_of(wanted, (change.path for change in self.changes if change.path not in self.unset))
        warn_unless_taken(requested, answer, json, emptied=True)


def create_asset(
    session: Session,
    what: str,
    wanted: Config,
    create: Callable[[], Answer[Any]],
    existing: Callable[[], Answer[Any] | None],
    show: Callable[[Answer[Any], str], None],
    *,
    if_not_exists: bool,
    json: bool,
    made: str = "was created",
) -> None:
    if if_not_exists and (live := existing()) is not None:
        show(live, f"{what} exists already")
        return
    answer = create()
    if not answer.raw.get("did_create", True):
        made = "exists already with this configuration"
    show(answer, f"{what} {made}" if made else "")
    warn_unless_taken(wanted, answer, json)


def check_given(session: Session, change: object, hint: str) -> None:
    if session.interactive and not change:
        raise UsageError("nothing to change was given", hint=hint)


def without_server_metadata(config: Config) -> Config:
    own = own_metadata(config.get("metadata") or {})
    rest = {key: value for key, value in config.items() if key != "metadata"}
    return {**rest, "metadata": own} if own else rest


def merged(live: Config, patch: Config) -> Config:
    """Return the live configuration with a patch over it; metadata of the server stays."""
    wanted = {**live, **patch}
    if "metadata" in patch:
        owned = {key: value for key, value in (live.get("metadata") or {}).items() if key.startswith(SERVER_METADATA)}
        wanted["metadata"] = {**patch["metadata"], **owned}
    return wanted


def unset(config: Config, words: Sequence[str] | None, table: Sequence[Flag], model: type[Model]) -> list[str]:
    """Unset fields, and return their names: by name, by flag (`max-age`), or below another (`metadata.team`)."""
    by_flag = {flag.name.lstrip("-"): flag.to for flag in table if isinstance(flag.to, str)}
    known = {*model.__struct_fields__, *config} - NAMES
    paths = []
    for word in [one for text in words or () for one in text.replace(",", " ").split()]:
        flag = word.lstrip("-")
        path = by_flag.get(flag) or (flag if flag.partition(".")[0] in known else flag.replace("-", "_"))
        if path.partition(".")[0] not in known:
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


def show_differences(found: Sequence[FieldChange], what: str, *, labelled: bool = False) -> None:
    """Show the changes of an edit on stderr, `labelled` as on the pages of streams and consumers."""
    render = render_labelled if labelled else render_change
    output.note("\n".join([f"Differences in {safe(what)}:", *(f"  {render(one)}" for one in found)]))


def show_outcome(answer: Answer[Any], json: bool, line: str) -> None:
    """Show a line about an edit, below its differences; with `json` the server's answer."""
    output.emit_json(answer.raw) if json else output.note(safe(line, block=True))


def preview_edit(session: Session, found: Sequence[FieldChange], send: Callable[[], object], *, json: bool) -> None:
    """End a dry run with the differences and the request of `send`; the exit status is drift or success."""
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
    raise ExitError(ExitCode.DRIFT)


EDITORS = ("vi", "nano")
"""Editors tried in this order if neither VISUAL nor EDITOR is set."""
STDERR = 2
"""Terminal that an editor draws on, as stdout may be a pipe."""


def edit_config(
    session: Session, config: Config, model: type[Model], what: str, meanings: Mapping[str, str] | None = None
) -> Config:
    """Return the configuration after the user's edit; a document with a fault may be edited again at a terminal.

    `meanings` are descriptions of fields, shown as comments.
    Raises UsageError for a fault if no user can be asked, and for an empty document.
    """
    document = {key: _words(key, value) for key, value in config.items()}
    if isinstance(document.get("metadata"), dict):
        document["metadata"] = {k: v for k, v in document["metadata"].items() if not k.startswith(SERVER_METADATA)}
        if not document["metadata"]:
            del document["metadata"]
    original = document
    text = _text(original, model, what, meanings or {})
    while True:
        text = edit_text(text, ".yaml")
        try:
            return _read(text, original, config, model)
        except UsageError as failure:
            if not session.interactive:
                raise
            output.note(safe(str(failure), block=True))
            if not prompt_confirm("Edit it again", True):
                raise


def edit_text(text: str, suffix: str) -> str:
    """Return a text after an edit in the user's editor; its file is removed. Raises UsageError."""
    command = _editor()
    handle, name = tempfile.mkstemp(suffix, "natsctl-")
    path = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        # Stdout is for the answer, not for the editor.
        status = subprocess.run([*command, name], stdout=STDERR, check=False).returncode
        if status:
            raise UsageError(f"the editor {command[0]} exited with {status}: nothing is changed")
        return path.read_text()
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"the editor {command[0]}: {failure}") from failure
    finally:
        path.unlink(missing_ok=True)


def _editor() -> list[str]:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named:
        return shlex.split(named)
    found = next((one for one in EDITORS if shutil.which(one)), None) if sys.stdin.isatty() else None
    if found is None:
        raise UsageError("no editor to use: set EDITOR", hint="flags, --config and --unset work without one")
    return [found]


def _words(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _words(key, below) for key, below in value.items()}
    if isinstance(value, list):
        return [_words(name, one) for one in value]
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return value
    if name in DURATIONS:
        return format_duration(value)
    return _size(value) if name in SIZES else value


def _size(number: int) -> str | int:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number % factor == 0:
            return f"{number // factor}{unit}"
    return number


def _text(document: Config, model: type[Model], what: str, meanings: Mapping[str, str]) -> str:
    import yaml

    def comment(name: str) -> list[str]:
        return [f"# {meanings[name]}"] if name in meanings else []

    lines = [
        f"# {what}",
        "# Durations are 30s, 5m, 1h30m, 7d or 1y, sizes 10KB, 5MB or 1GiB. Removing a line removes its",
        "# field; an empty file changes nothing.",
        "",
    ]
    for name, value in document.items():
        lines += [*comment(name), yaml.safe_dump({name: value}, allow_unicode=True).rstrip("\n")]
    lines += ["", "# Not set:", ""]
    for name in model.__struct_fields__:
        if name not in document:
            lines += [*comment(name), f"# {name}:"]
    return "\n".join([*lines, ""])


def _read(text: str, original: Config, config: Config, model: type[Model]) -> Config:
    document = parse_document("the edited text", text)
    if not isinstance(document, dict) or not document:
        raise UsageError("the edited text is empty: nothing is changed")
    changed = {key: value for key, value in document.items() if key not in original or original[key] != value}
    wanted = {key: config[key] for key in config if key in document and key not in changed}
    wanted |= config_in(changed, "the edited text", model) if changed else {}
    owned = {k: v for k, v in (config.get("metadata") or {}).items() if k.startswith(SERVER_METADATA)}
    if owned:
        wanted["metadata"] = {**(wanted.get("metadata") or {}), **owned}
    return wanted


def part_of(wanted: Config, paths: Iterable[str]) -> Config:
    """Return the whole fields that contain the dotted paths, None for missing fields."""
    return {head: wanted.get(head) for head in dict.fromkeys(path.partition(".")[0] for path in paths)}


def warn_unless_taken(asked: Mapping[str, Any], answer: Answer[Any], json: bool, *, emptied: bool = False) -> None:
    """Warn on stderr of fields that the answer has with other values; with `json` the answer shows them.

    Empty values count as requested only if `emptied` is set.
    """
    if json:
        return
    found = not_taken(asked, answer.raw.get("config") or {}, emptied=emptied)
    if found:
        output.note(render_not_taken(found))


class FlagDialogue:
    """A dialogue that adds answers to a configuration; a flag that was given is not asked about."""

    def __init__(self, table: Sequence[Flag], config: Config, given: Given) -> None:
        self._flags = {flag.name: flag for flag in table}
        self._config = config
        self._given = given

    def ask(
        self,
        name: str,
        text: str,
        default: str = "",
        choices: tuple[tuple[str, str], ...] = (),
        *,
        check: Callable[[Any], None] | None = None,
        required: bool = False,
    ) -> None:
        """Ask for the value of a flag; `check` raises ValueError for values that are not accepted."""
        if name not in self._given:
            self._flags[name].place(self._config, self.value(name, text, default, choices, check, required))

    def confirm(self, name: str, text: str, default: bool = False, *, inverted: bool = False) -> None:
        """Ask whether a switch is on, or with `inverted` whether it is off."""
        if name not in self._given:
            yes = prompt_confirm(text, default, self.help(name))
            self._flags[name].place(self._config, yes is not inverted)

    def value(
        self,
        name: str,
        text: str,
        default: str = "",
        choices: tuple[tuple[str, str], ...] = (),
        check: Callable[[Any], None] | None = None,
        required: bool = False,
    ) -> Any:
        def read(answer: str) -> Any:
            value = self._flags[name].kind.read(answer)
            if check is not None:
                check(value)
            return value

        return prompt(Question(text, self.help(name), default, read, required, choices))

    def help(self, name: str) -> str:
        text = self._flags[name].help
        return f"{text[0].upper()}{text[1:]}. Settable using {name}"
