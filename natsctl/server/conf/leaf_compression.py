"""The key `compression` of leaf nodes."""

from __future__ import annotations

from typing import Final

from natsctl.server.conf.syntax import Item

COMPRESSION_MODES: Final = frozenset({
    "off", "disabled", "accept", "s2_auto", "auto", "on", "enabled", "s2_fast", "s2_better", "s2_best",
    "s2_uncompressed", "fast", "better", "best", "uncompressed",
})  # fmt: skip
"""What a file may say; links are never compressed, and both sides agree on that by themselves."""


def check_compression(item: Item) -> None:
    """Refuse what is no compression mode."""
    value = item.value
    if isinstance(value, dict):
        mode = next((found for key, found in value.items() if key.lower() == "mode"), None)
        if mode is not None:
            check_compression(mode)
    elif not isinstance(value, bool) and (not isinstance(value, str) or value.lower() not in COMPRESSION_MODES):
        raise item.fault(f'unsupported compression mode "{value}"')
