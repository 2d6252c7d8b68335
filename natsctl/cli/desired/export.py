"""The account as documents: `natsctl export`, and where documents are written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from natsctl.api.catalogue import error
from natsctl.api.errors import ApiResponseError, ErrCode, ExitCode, NotAuthorisedError, UsageError
from natsctl.api.times import format_time
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import did_you_mean, is_match
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import safe
from natsctl.client.message import DryRunError
from natsctl.desired.assets import AssetKey, DocumentSet
from natsctl.desired.documents.files import (
    file_names,
    is_folder,
    json_text,
    other_documents,
    stream_of,
    write_files,
    yaml_text,
)

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.desired.export import ExportedAsset, Exporter
    from natsctl.desired.live import LiveState


class WriteFlags(NamedTuple):
    """Flags about the format and destination of documents, shared by commands."""

    full: Annotated[bool, Option("--full", help="write every field, including fields that servers fill in")] = False
    split: Annotated[bool, Option("--split", help="one document for each asset, with its kind")] = False
    path: Annotated[
        str,
        Option(
            "--output",
            "-o",
            metavar="PATH",
            help="file (.yaml, .yml, .json) or folder, one file for each stream [stdout]",
        ),
    ] = ""
    format: Annotated[
        str,
        Option("--format", metavar="yaml|json", help="format [by the file's name, else yaml]"),
    ] = ""
    force: Annotated[bool, Option("--force", help="replace existing files")] = False

    def to(self, json: bool, header: Sequence[str] = (), is_meant: Callable[[str], bool] | None = None) -> ExportTarget:
        return ExportTarget(self.path, self.format, self.split, self.force, json, header, is_meant)


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """The destination of documents;

    `is_meant` returns whether this command would have written a stream of that name.
    """

    path: str = ""
    format: str = ""
    split: bool = False
    force: bool = False
    json: bool = False
    header: Sequence[str] = ()
    is_meant: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        if self.format not in ("", "yaml", "json"):
            raise UsageError(f"--format {self.format}: expected yaml or json")

    @property
    def is_json(self) -> bool:
        """Return whether documents are written as JSON, as with -j on stdout."""
        return self.format == "json" or (not self.format and (self.path.endswith(".json") or self._json_answer))

    @property
    def _json_answer(self) -> bool:
        return self.json and not self.path


def write(session: Session, exporter: Exporter, to: ExportTarget) -> None:
    if not to.path or to.path == "-":
        _print(exporter, to)
        return
    texts = _texts(exporter, to)
    if session.dry_run:
        raise DryRunError(effect={"files": [str(path) for path in texts]})
    done = write_files(texts, force=to.force)
    done.stale = _stale(to, list(texts))
    output.emit_json(done) if to.json else _show_written(to, len(done.written), len(done.unchanged), done.stale)


def _print(exporter: Exporter, to: ExportTarget) -> None:
    documents: Any = exporter.typed() if to.split else exporter.plain()
    if to.is_json:
        output.emit_json(documents)
        return
    text = yaml_text(documents if to.split else [documents], to.header)
    if sys.stdout.isatty() and not text.replace("\n", "").isprintable():
        text = yaml_text(documents if to.split else [documents], to.header, ascii_only=True)
    output.emit(text.removesuffix("\n"))


def _texts(exporter: Exporter, to: ExportTarget) -> dict[Path, str]:
    if not is_folder(to.path):
        return {Path(to.path): _text(exporter, exporter.written(), to)}
    by_stream: dict[str, list[ExportedAsset]] = {}
    for one in exporter.written():
        by_stream.setdefault(one.key.stream, []).append(one)
    names = file_names(by_stream, ".json" if to.is_json else ".yaml")
    return {Path(to.path) / names[stream]: _text(exporter, assets, to) for stream, assets in by_stream.items()}


def _text(exporter: Exporter, assets: list[ExportedAsset], to: ExportTarget) -> str:
    documents: Any = exporter.typed(assets) if to.split else exporter.plain(assets)
    return json_text(documents) if to.is_json else yaml_text(documents if to.split else [documents], to.header)


def _stale(to: ExportTarget, written: list[Path]) -> list[str]:
    """Return the files of streams that no longer exist, or that have a file in the other format too."""
    if to.is_meant is None or not is_folder(to.path):
        return []
    return [str(path) for path in other_documents(Path(to.path), written) if to.is_meant(stream_of(path))]


def _show_written(to: ExportTarget, written: int, unchanged: int, stale: Sequence[str]) -> None:
    same = f", {unchanged} were up to date" if unchanged else ""
    output.note(f"Wrote {plural(written, 'file')} to {safe(to.path)}{same}")
    for path in stale:
        output.note(
            f"{safe(path)}: no exported stream belongs to it any more; remove the file if the stream was deleted"
        )


MQTT = "$MQTT_"
"""The prefix of streams that servers create for MQTT."""


def export(
    session: Session,
    how: WriteFlags,
    streams: Annotated[
        list[str] | None,
        Argument(metavar="STREAM", help="streams or buckets; * and ? match any characters"),
    ] = None,
    ephemeral: Annotated[bool, Option("--ephemeral", help="also consumers without a durable name")] = False,
    header: Annotated[bool, Option("--header/--no-header", help="name the server in a comment at the top")] = True,
    time: Annotated[bool, Option("--time", help="add the time to that comment")] = False,
    json: Json = False,
) -> int:
    """Write the configuration of the account, or of these streams, as documents for natsctl apply.

    Streams include their durable consumers, buckets are written as buckets. Assets that servers create and values
    that they fill in again are left out. The order is stable: the same account gives the same text.
    """
    from natsctl.desired.export import Exporter, wanted_of

    names = streams or []
    live_state = session.run(lambda manager: _read(manager, names))
    wanted = wanted_of(live_state, ephemeral=ephemeral)
    said = _header(live_state, names, time) if header else ()
    to = how.to(json, said, lambda stream: not names or any(_is_named(stream, name) for name in names))
    write(session, Exporter(wanted, how.full), to)
    return _report_left_out(live_state, wanted, session.run(_templates) if not names else [])


async def _read(manager: Manager, names: list[str]) -> LiveState:
    """Return the named streams, or all except MQTT's. Raises ApiResponseError for a name without a stream."""
    from natsctl.desired.live import read_live_state

    every = await manager.stream_names()
    if not names:
        mqtt = any(one.startswith(MQTT) for one in every)
        return await read_live_state(manager, [one for one in every if not one.startswith(MQTT)] if mqtt else None)
    found = [one for one in every if any(_is_named(one, name) for name in names)]
    for name in names:
        if not any(_is_named(one, name) for one in found):
            raise _no_stream(name, every)
    return await read_live_state(manager, found)


def _is_named(stream: str, name: str) -> bool:
    """Return whether a word means a stream: its name, or the name of its bucket."""
    return is_match(stream, name) or is_match(AssetKey(stream).name, name)


def _no_stream(name: str, known: list[str]) -> Exception:
    failure = ApiResponseError(error(ErrCode.STREAM_NOT_FOUND), hint=did_you_mean(name, known))
    failure.args = (f"no stream or bucket is called {name}",)
    failure.text = failure.args[0]
    return failure


def _header(live_state: LiveState, names: list[str], time: bool) -> list[str]:
    server = " ".join(str(live_state.server[key]) for key in ("server_name", "version") if key in live_state.server)
    moment = f" at {format_time(live_state.now_ns // 1_000_000_000 * 1_000_000_000)}" if time else ""
    some = f": {' '.join(names)}" if names else ""
    return [safe(f"natsctl export from server {server}{some}{moment}")]


async def _templates(manager: Manager) -> list[str]:
    """Return the names of stream templates, if the server has any and the user may list them."""
    from natsctl.client.backup.configuration import may_have_templates

    try:
        return list(await manager.template_names()) if may_have_templates(manager.connection.info) else []
    except NotAuthorisedError:
        return []


def _report_left_out(live_state: LiveState, wanted: DocumentSet, templates: list[str]) -> int:
    """Report parts of the account that documents cannot hold, and streams that could not be read: these are missing."""
    from natsctl.desired.export import remarks

    for text in remarks(wanted):
        output.note(f"note: {safe(text)}")
    for name in templates:
        output.note(f"note: template {safe(name)} is left out, natsctl backup keeps it: documents hold streams")
    for name, reason in live_state.unreadable.items():
        output.note(f"Stream {safe(name)} is missing: {safe(reason)}")
    return ExitCode.FAILED if live_state.unreadable else ExitCode.DONE
