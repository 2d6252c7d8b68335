"""Settings that a server accepts, but that have no effect in their configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from natsctl.desired.assets import AssetKey, DesiredAsset, Kind

_NEED_ACKS: Final = ("ack_wait", "backoff", "max_deliver", "max_ack_pending", "sample_freq")
_NEED_PULL: Final = ("max_batch", "max_expires", "max_bytes")
FIELDS: Final = frozenset(
    (*_NEED_ACKS, *_NEED_PULL, "deliver_group", "discard", "compression", "duplicate_window", "max_msgs_per_subject")
)
"""The fields that `without_effect` may report."""


def without_effect(one: DesiredAsset, config: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield fields that a document sets and that have no effect in the whole `config` of its asset, with the reason.

    Combinations that servers refuse are left out.
    """
    asked = FIELDS & one.mentioned
    for names, reason in (_of_consumer if one.key.consumer else _of_stream)(one.key, config) if asked else ():
        if found := tuple(name for name in names if name in asked and _is_set(config.get(name))):
            verb = "has" if len(found) == 1 else "have"
            yield found, f"{', '.join(found)} {verb} no effect: {reason}"


def _is_set(value: Any) -> bool:
    return bool(value) and value not in (-1, "0", "0%", "none")


def _of_consumer(key: AssetKey, config: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    push = bool(config.get("deliver_subject"))
    if config.get("ack_policy") == "none":
        # A server refuses max_ack_pending of a push consumer without acks.
        yield tuple(name for name in _NEED_ACKS if name != "max_ack_pending" or not push), "ack_policy: none"
    elif config.get("backoff") and config.get("ack_wait") not in (None, 0, config["backoff"][0]):
        yield ("ack_wait",), "the first interval of backoff replaces it"
    if push:
        yield _NEED_PULL, "the consumer is pushed, not pulled"
    else:
        yield ("deliver_group",), "a pull consumer has no deliver_subject"


def _of_stream(key: AssetKey, config: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    most, per_subject = config.get("max_msgs"), config.get("max_msgs_per_subject")
    limited = any(_is_set(config.get(name)) for name in ("max_msgs", "max_bytes", "discard_new_per_subject"))
    if config.get("discard") == "new" and not limited and key.kind is Kind.STREAM:
        yield ("discard",), "neither max_msgs nor max_bytes is set, so the stream is never full"
    if config.get("storage") == "memory":
        yield ("compression",), "messages in memory are not compressed"
    if config.get("mirror"):
        yield ("duplicate_window",), "a mirror does not look for duplicates"
    if isinstance(most, int) and isinstance(per_subject, int) and 0 < most <= per_subject and key.kind is Kind.STREAM:
        yield ("max_msgs_per_subject",), f"max_msgs is {most:,}"
