"""What a configuration says of operators, and of where the JWTs of their accounts are."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from natsctl.api.model import Confidential
from natsctl.broker.jwt.claims import OperatorClaims

Deleting = Literal["no", "rename", "remove"]


class DirectoryOptions(msgspec.Struct, frozen=True):
    """A folder of account JWTs: every account (`full`), or those that are used (`cache`)."""

    folder: Path
    full: bool = True
    deleting: Deleting = "no"
    limit: int = 0
    """Accounts that are kept; 0: any number."""
    ttl_s: float = 0.0
    """How long a JWT is kept that nobody asks for; 0: for ever."""


class OperatorOptions(Confidential, frozen=True):
    """Operators, and their accounts' resolver."""

    UNSHOWN: ClassVar = ("preload", "sentinel")

    operators: tuple[OperatorClaims, ...] = ()
    trusted_keys: tuple[str, ...] = ()
    memory: bool = False
    """The resolver is what is preloaded."""
    directory: DirectoryOptions | None = None
    preload: tuple[tuple[str, str], ...] = ()
    """Account JWTs by public key."""
    pinned: tuple[str, ...] = ()
    sentinel: str = ""
