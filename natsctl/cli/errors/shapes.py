"""What the commands about errors print with -j."""

from __future__ import annotations

from natsctl.api.model import Model, WireEnum


class Use(WireEnum):
    """Whether servers send an error."""

    CURRENT = "current"
    LEGACY = "legacy"
    """Older servers did."""
    RESERVED = "reserved"
    """It has a number, but is never sent."""


class KnownError(Model, kw_only=True):
    """One kind of error of the JetStream API; `description` may have placeholders such as `{err}`."""

    err_code: int
    code: int
    constant: str
    description: str
    cause: str
    use: Use
