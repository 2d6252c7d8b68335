"""What an account has: every stream and consumer with its configuration, as the server says it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from natsctl.plan.asset import AssetKey


@dataclass(frozen=True, slots=True)
class Live:
    """One asset as it is: `config` and `info` are the server's JSON objects, unknown keys and all."""

    key: AssetKey
    info: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """Its configuration, with what the server adds to the metadata."""
        return dict(self.info.get("config") or {})


@dataclass(frozen=True, slots=True)
class World:
    """An account at one moment; `server` says whose, `limits` what the server caps (fields of an account's info).

    Consumers are known of the streams that were asked for.
    """

    assets: dict[AssetKey, Live] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
