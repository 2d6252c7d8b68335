"""Whether a restored stream has what its backup says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natsctl.api.errors import NatsctlError
from natsctl.api.units import plural

if TYPE_CHECKING:
    from natsctl.client.answer import Answer
    from natsctl.client.backup.opened import OpenBackup

_LIMITS = ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_consumers")
"""Fields above 0 of which a restored stream may rightly have less than its backup."""


class IncompleteRestoreError(NatsctlError):
    """The server has made the stream, but less is in it than in the backup."""


def missing(backup: OpenBackup, answer: Answer[Any]) -> list[str]:
    """What the restored stream lacks of the saved state; it may have more by now, from publishers or its origin."""
    said, found = backup.state, answer.raw.get("state") or {}
    told = [
        f"{word} {int(found.get(key) or 0):,} instead of {int(said.get(key) or 0):,}"
        for key, word in (("messages", "messages"), ("last_seq", "last sequence"))
        if int(found.get(key) or 0) < int(said.get(key) or 0)
    ]
    first, was = int(found.get("first_seq") or 0), int(said.get("first_seq") or 0)
    if said.get("messages") and first > was:
        told.append(f"first sequence {first:,} instead of {was:,}")
    return told


def lacking(backup: OpenBackup, config: dict[str, Any], answer: Answer[Any]) -> list[str]:
    """Warnings about what a limit explains. Raises IncompleteRestoreError for what nothing does."""
    told = missing(backup, answer)
    consumers = int((answer.raw.get("state") or {}).get("consumer_count") or 0)
    manifest = backup.manifest
    if manifest is not None and manifest.consumers and consumers < int(backup.state.get("consumer_count") or 0):
        told.append(f"{plural(consumers, 'consumer')} instead of {backup.state.get('consumer_count')}")
    if not told:
        return []
    text = f"the restored stream differs from its backup: {', '.join(told)}"
    limited = any(int(config.get(limit) or 0) > 0 for limit in _LIMITS) or config.get("allow_msg_ttl")
    if limited or config.get("retention", "limits") != "limits":
        return [f"{text}; its limits or its retention may have removed messages"]
    raise IncompleteRestoreError(
        text, hint=f"natsctl backup verify {backup.path} checks whether the backup is complete"
    )
