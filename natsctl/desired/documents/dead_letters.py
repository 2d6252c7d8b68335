"""The key `dead_letters` of a stream's document, and the capture stream that it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from natsctl.api.model import Duration, Int, Model
from natsctl.client.deadletters.capture import MARK, CaptureOptions, capture_config


class DeadLetterWords(Model):
    """A capture stream as a document describes it; fields that it does not mention get their defaults at creation."""

    max_age: Duration = 0
    max_msgs: Int = -1
    replicas: Int = 1
    copy: bool = False


DEAD_LETTER_FIELDS: Final = {
    "max_age": "max_age",
    "max_msgs": "max_msgs",
    "replicas": "num_replicas",
    "copy": "subjects",
}
"""The field of the capture stream that each key sets."""


def capture_fields(stream: str, words: Mapping[str, Any], replicas: int) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the configuration of a stream's capture stream, and the fields that apply at its creation only.

    `replicas` is the number of the stream's own.
    """
    options = CaptureOptions(words.get("max_age"), words.get("max_msgs"), words.get("replicas"), words.get("copy"))
    unsaid = {field for word, field in DEAD_LETTER_FIELDS.items() if word not in words}
    return capture_config(stream, options, replicas), frozenset(unsaid | {"description"})


def captured_stream(config: Mapping[str, Any]) -> str:
    """Return the stream with dead letters that a stream keeps, if natsctl made it for that; else ""."""
    metadata = config.get("metadata")
    return str(metadata.get(MARK, "")) if isinstance(metadata, Mapping) else ""


def words_of_capture(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a document that describe a capture stream, the inverse of `capture_fields`."""
    age_ns, most = config.get("max_age") or 0, config.get("max_msgs") or -1
    replicas, subjects = config.get("num_replicas") or 1, config.get("subjects") or ()
    return {"max_age": age_ns, "max_msgs": most, "replicas": replicas, "copy": len(subjects) > 2}
