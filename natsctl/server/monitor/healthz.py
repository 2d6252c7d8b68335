"""`/healthz`: whether the server does what it promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from natsctl.server.instance import ServerInstance


class HealthzOptions(msgspec.Struct, kw_only=True, rename="kebab"):
    """What is asked of `healthz`; keys are written with dashes."""

    js_enabled: bool = False
    js_enabled_only: bool = False
    js_server_only: bool = False
    js_meta_only: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False


def healthz(server: ServerInstance, options: HealthzOptions) -> dict[str, Any]:
    """Return the state of health with its `status_code`, which HTTP sends as the status instead."""
    store = server.store
    if store is not None and not store.healthy:
        return {"status": "unavailable", "status_code": 503, "error": "; ".join(store.faults)}
    return {"status": "ok", "status_code": 200}
