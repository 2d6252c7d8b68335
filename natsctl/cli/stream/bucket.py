"""Streams that a key-value bucket, an object store or MQTT keeps its data in."""

from __future__ import annotations

from natsctl.cli import output
from natsctl.cli.render.text import safe

OWNERS = (
    ("KV_", "the key-value bucket {}", "natsctl kv"),
    ("OBJ_", "the object store {}", "natsctl object"),
    ("$MQTT_", "MQTT", ""),
)
"""What a prefix stands for, and the commands that know how to change it."""


def bucket_named(stream: str) -> str:
    """What keeps its data in the stream, "" for a stream of its own."""
    return next((owner.format(stream[len(mark) :]) for mark, owner, _ in OWNERS if stream.startswith(mark)), "")


def warn_of_bucket(stream: str, *, json: bool = False) -> None:
    """Warn on stderr where the stream is not its own; a program that reads JSON is not told."""
    owner = bucket_named(stream)
    if not owner or json:
        return
    command = next(command for mark, _, command in OWNERS if stream.startswith(mark))
    better = f", {command} changes it safely" if command else ""
    output.note(f"warning: Stream {safe(stream)} belongs to {safe(owner)}{better}")
