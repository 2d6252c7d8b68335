"""A configuration as one hash, the same that nats-server makes of the same file; shown at the start and in varz.

It is the SHA-256 of what the file says as JSON in Go's form: keys sorted, `<`, `>` and `&` escaped, a line end.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any, Final

from natsctl.server.conf.syntax import Block, Item

_ESCAPED: Final = str.maketrans({
    "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029",
})  # fmt: skip


def config_digest(block: Block) -> str:
    """Return `sha256:` and the hash in hex."""
    text = json.dumps(_plain(block), ensure_ascii=False, sort_keys=True, separators=(",", ":")).translate(_ESCAPED)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "replace") + b"\n").hexdigest()


def _plain(value: Any) -> Any:
    match value:
        case Item():
            return _plain(value.value)
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%SZ")
        case float() if value.is_integer() and abs(value) < 1e21:
            return int(value)
    return value
