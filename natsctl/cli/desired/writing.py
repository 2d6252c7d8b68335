"""Where documents go that a command writes: to stdout, to a file, or to a folder with a file for each stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.plan.export.export import Exporter, Written

Format = Annotated[
    str,
    typer.Option("--format", metavar="yaml|json", help="format [by the file's name, else yaml]", show_default=False),
]
OutputPath = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="file (.yaml, .yml, .json) or folder, one file for each stream [stdout]",
        show_default=False,
    ),
]
Split = Annotated[bool, typer.Option("--split", help="one document for each asset, with its kind", show_default=False)]
Replace = Annotated[bool, typer.Option("--force", help="replace existing files", show_default=False)]
Full = Annotated[
    bool, typer.Option("--full", help="write every field, including those that servers fill in", show_default=False)
]


class Writing(NamedTuple):
    """How documents are written, and where to: a bundle of flags for commands."""

    full: Full = False
    split: Split = False
    path: OutputPath = ""
    format: Format = ""
    force: Replace = False

    def to(self, json: bool, header: Sequence[str] = (), is_meant: Callable[[str], bool] | None = None) -> Destination:
        """Where they go. Raises UsageError."""
        return Destination(self.path, self.format, self.split, self.force, json, header, is_meant)


@dataclass(frozen=True, slots=True)
class Destination:
    """What the flags say; `is_meant` judges names of streams: whether this command would have written them."""

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
        """Whether documents are written as JSON: -j means that where they go to stdout."""
        return self.format == "json" or (not self.format and (self.path.endswith(".json") or self._json_answer))

    @property
    def _json_answer(self) -> bool:
        return self.json and not self.path


def write(session: Session, exporter: Exporter, to: Destination) -> None:
    """Write documents, and tell of files. Raises UsageError, StorageError."""
    if not to.path or to.path == "-":
        _print(exporter, to)
        return
    from natsctl.client.preview import DryRunError
    from natsctl.plan.export.folder import write_files

    texts = _texts(exporter, to)
    if session.dry_run:
        raise DryRunError(effect={"files": [str(path) for path in texts]})
    done = write_files(texts, force=to.force)
    done.stale = _stale(to, list(texts))
    if to.json:
        from msgspec import to_builtins

        output.emit_json(to_builtins(done))
    else:
        _tell(to, len(done.written), len(done.unchanged), done.stale)


def _print(exporter: Exporter, to: Destination) -> None:
    import sys

    from natsctl.plan.export.written import yaml_text

    documents: Any = exporter.typed() if to.split else exporter.plain()
    if to.is_json:
        output.emit_json(documents)
        return
    text = yaml_text(documents if to.split else [documents], to.header)
    if sys.stdout.isatty() and not text.replace("\n", "").isprintable():
        text = yaml_text(documents if to.split else [documents], to.header, ascii_only=True)
    output.emit(text.removesuffix("\n"))


def _texts(exporter: Exporter, to: Destination) -> dict[Path, str]:
    """The files to write."""
    from natsctl.plan.export.folder import file_names, is_folder

    if not is_folder(to.path):
        return {Path(to.path): _text(exporter, exporter.written(), to)}
    by_stream: dict[str, list[Written]] = {}
    for one in exporter.written():
        by_stream.setdefault(one.key.stream, []).append(one)
    names = file_names(by_stream, ".json" if to.is_json else ".yaml")
    return {Path(to.path) / names[stream]: _text(exporter, assets, to) for stream, assets in by_stream.items()}


def _text(exporter: Exporter, assets: list[Written], to: Destination) -> str:
    from natsctl.plan.export.written import json_text, yaml_text

    documents: Any = exporter.typed(assets) if to.split else exporter.plain(assets)
    return json_text(documents) if to.is_json else yaml_text(documents if to.split else [documents], to.header)


def _stale(to: Destination, written: list[Path]) -> list[str]:
    """Documents in the folder of streams that are gone, or that stand there in the other format too."""
    from natsctl.plan.export.folder import is_folder, other_documents, stream_of

    if to.is_meant is None or not is_folder(to.path):
        return []
    return [str(path) for path in other_documents(Path(to.path), written) if to.is_meant(stream_of(path))]


def _tell(to: Destination, written: int, unchanged: int, stale: Sequence[str]) -> None:
    from natsctl.api.units import plural
    from natsctl.cli.render.text import safe

    same = f", {unchanged} were up to date" if unchanged else ""
    output.note(f"Wrote {plural(written, 'file')} to {safe(to.path)}{same}")
    for path in stale:
        output.note(
            f"{safe(path)}: no exported stream belongs to it any more; remove the file if the stream is gone for good"
        )
