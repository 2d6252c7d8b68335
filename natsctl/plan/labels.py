"""What natsctl keeps in the metadata of an asset: whose it is, and whether it is protected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

OWNER: Final = "natsctl.owner"
"""The owner of the documents that made the asset or changed it last."""
PROTECT: Final = "natsctl.protect"
"""Says "true" where the asset may be neither removed nor replaced."""
CREATOR: Final = "natsctl.creator"
"""The owner whose documents created the asset: only that owner's documents prune it."""
LABELS: Final = (OWNER, PROTECT, CREATOR)
SERVER_MADE: Final = "_nats."
"""The prefix of keys that servers write."""


def owner_of(config: Mapping[str, Any]) -> str:
    """Return the owner of an asset by its configuration, "" where none is recorded."""
    return str(_metadata(config).get(OWNER, ""))


def creator_of(config: Mapping[str, Any]) -> str:
    """Return the owner whose documents created an asset, "" where natsctl did not create it."""
    return str(_metadata(config).get(CREATOR, ""))


def is_protected(config: Mapping[str, Any]) -> bool:
    """Return whether an asset may be neither removed nor replaced."""
    return _metadata(config).get(PROTECT) == "true"


def labelled(config: Mapping[str, Any], owner: str, protect: bool, creator: str = "") -> dict[str, Any]:
    """Return the configuration with the labels of its owner in place of any others."""
    labels = {OWNER: owner, **({PROTECT: "true"} if protect else {}), **({CREATOR: creator} if creator else {})}
    return {**config, "metadata": {**_metadata(stripped(config)), **labels}}


def stripped(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration without labels."""
    return _without(config, lambda key: key in LABELS)


def without_server_made(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration without the metadata that servers write; labels are kept."""
    return _without(config, lambda key: key.startswith(SERVER_MADE))


def _metadata(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = config.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _without(config: Mapping[str, Any], unwanted: Any) -> dict[str, Any]:
    """Return the configuration without some keys of its metadata, and without metadata if none is left."""
    rest = {key: value for key, value in config.items() if key != "metadata"}
    kept = {key: value for key, value in _metadata(config).items() if not unwanted(key)}
    return {**rest, "metadata": kept} if kept else rest
