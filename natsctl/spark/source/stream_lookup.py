"""Why no stream stores a message: asked of JetStream after a publish that nobody answered."""

from __future__ import annotations

from dataclasses import replace

from natsctl.spark.source.errors import JetStreamSourceError, PublishError, StreamNotFoundError
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.link import Link


def unstored_reason(settings: ServerSettings, subject: str, stream: str) -> JetStreamSourceError | None:
    """Return why no message is stored under a subject; None if a stream takes it, or if JetStream does not say.

    `stream` is the only one that may store it; empty: any. A stream that is offline is listed nevertheless.
    """
    settings = replace(settings, retries=0)
    try:
        with Link.open(settings) as link:
            api = JetStreamApi(link, settings)
            if stream:
                try:
                    config = api.stream_info(stream)["config"]
                except StreamNotFoundError:
                    return StreamNotFoundError(f"{subject} is not stored: stream {stream} does not exist")
            takers = api.stream_names(subject)
    except JetStreamSourceError:
        return None
    if not stream:
        return None if takers else PublishError(f"{subject}: no stream takes this subject; create one, or correct it")
    if stream in takers:
        return None
    elsewhere = f"; {', '.join(takers)} does" if takers else ""
    subjects = ", ".join(config.get("subjects") or ()) or "no subjects"
    return PublishError(f"{subject}: stream {stream} does not take this subject, but {subjects}{elsewhere}")
