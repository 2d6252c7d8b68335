"""The documents that the commands about Spark print with -j."""

from __future__ import annotations

from natsctl.api.model import Model, Size64, Time


class WarmStart(Model, kw_only=True):
    """The archive that makes starts quick; `made` is false where it was there before."""

    archive: str
    archive_bytes: Size64
    made: bool


class SparkServer(Model, kw_only=True):
    """A Spark in background; what is not known is null, and so is when it stops by itself where it never does."""

    running: bool
    pid: int | None = None
    port: int | None = None
    started: Time | None = None
    master: str | None = None
    java: str | None = None
    memory_bytes: Size64 | None = None
    idle_stop_s: float | None = None
    log: str | None = None
