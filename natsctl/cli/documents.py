"""Configuration files, JSON or YAML: a configuration, or the output of `info -j`."""

from __future__ import annotations

import json
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
"""Keys of desired-state documents; a configuration with a name may have some of them."""


def load_config(path: str, model: type[Model]) -> dict[str, Any]:
    """Return the configuration in the file, as `config_in` gives it. Raises UsageError by file, path and reason."""
    return config_in(load_document(path), path, model)


def load_document(path: str) -> Mapping[str, Any]:
    """Return the object in the file, unchanged; `-` reads stdin. Raises UsageError, also for a set of documents."""
    document = parse_document(path, read_text(path))
    if not isinstance(document, Mapping):
        raise UsageError(f"{path}: $: expected an object")
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
    """Return the metadata of a copy: without an owner, as no documents created it or may remove it."""
    from natsctl.client.asset_config import LABELS

    return {key: value for key, value in own_metadata(metadata).items() if key not in LABELS}


def write_config(config: Mapping[str, Any], model: type[Model], path: str | None) -> None:
    """Check a configuration as well as possible without a server, and print it or write it to a file.

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
    if len(documents) > 1:
        raise _is_a_set(path)
    return documents[0] if documents else None
