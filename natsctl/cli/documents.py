"""Configuration files, JSON or YAML: a configuration, what `info -j` printed, or one asset of a set of documents."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from natsctl.api import codec
from natsctl.api.errors import UsageError
from natsctl.api.model import Model
from natsctl.api.versions import SERVER_METADATA

_SET_KEYS = frozenset(
    {"apiVersion", "kind", "streams", "consumers", "key_values", "kv", "object_stores", "objects", "owner", "include"}
)


class _Several(list[Any]):
    """Text with more than one document."""


def load_config(path: str, model: type[Model], name: str | None = None) -> dict[str, Any]:
    """Return the configuration in the file, as `config_in` gives it. Raises UsageError by file, path and reason."""
    return config_in(load_document(path, "Stream", name), path, model)


def load_document(path: str, kind: str, name: str | None = None, stream: str | None = None) -> Mapping[str, Any]:
    """Return the object in the file, unchanged; `-` reads stdin. Raises UsageError.

    Of a set of documents it is the one asset of that kind, or the one of that name, a consumer with its `stream_name`.
    """
    document = parse_document(path, read_text(path))
    if path != "-" and _is_set(document):
        return _one_of_set(path, kind, name, stream)
    if not isinstance(document, Mapping):
        raise UsageError(f"{path}: $: expected an object")
    return document


def _is_set(document: Any) -> bool:
    """Return whether a document describes assets, and is not the configuration of one."""
    if not isinstance(document, Mapping):
        return isinstance(document, _Several)
    if "name" in document or "config" in document:
        return isinstance(document.get("kind"), str)
    return not _SET_KEYS.isdisjoint(document)


def _one_of_set(path: str, kind: str, name: str | None, stream: str | None) -> Mapping[str, Any]:
    from natsctl.desired.documents import load_documents

    wanted = load_documents([path], os.environ).wanted
    found = {key: one for key, one in wanted.items() if one.kind == kind and stream in (None, key.stream)}
    if len(found) > 1 and name:
        found = {key: one for key, one in found.items() if name == (key.consumer or key.stream)}
    if len(found) != 1:
        names = ", ".join(key.name for key, one in wanted.items() if one.kind == kind) or "none"
        raise UsageError(
            f"{path}: expected one {kind.lower()}, but it describes {names}", hint="natsctl apply takes all of them"
        )
    (key, one), *_ = found.items()
    return one.config | ({"stream_name": key.stream} if key.consumer else {})


def config_in(document: Mapping[str, Any], path: str, model: type[Model]) -> dict[str, Any]:
    """Return the configuration of a document, in wire values, with the keys that it has and no others.

    Durations, sizes and times may be written for people. Raises UsageError by file, path and reason.
    """
    if isinstance(document.get("config"), Mapping):
        document = document["config"]
    config = {str(key): value for key, value in document.items() if value is not None}
    typed = codec.load(config, model, path)
    wire = {key: _wire(typed, key, value) for key, value in config.items()}
    if isinstance(wire.get("metadata"), dict):
        wire["metadata"] = own_metadata(wire["metadata"])
    return wire


def own_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata without the keys that the server keeps there."""
    return {key: value for key, value in metadata.items() if not key.startswith(SERVER_METADATA)}


def copied_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a copy: without an owner, whose documents did not create it and must not remove it."""
    from natsctl.client.asset_config import LABELS

    return {key: value for key, value in own_metadata(metadata).items() if key not in LABELS}


def write_config(config: Mapping[str, Any], model: type[Model], path: str | None) -> None:
    """Check a configuration as far as possible without a server, and print it or write it to a file.

    Raises UsageError. Only the user can read the file: a configuration may name prefixes of other accounts.
    """
    from natsctl.cli.framework import output
    from natsctl.client.atomic_file import PRIVATE, atomic_write

    codec.load(dict(config), model, "configuration")
    if path in (None, "-"):
        output.emit_json(config)
        return
    try:
        with atomic_write(Path(str(path)), PRIVATE) as file:
            file.write(json.dumps(config, indent=2).encode() + b"\n")
    except OSError as error:
        raise UsageError(f"--output {path}: {error.strerror or error}") from error
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
    from natsctl.api.document_text import values_of

    documents = values_of(text, path)
    return _Several(documents) if len(documents) > 1 else documents[0] if documents else None
