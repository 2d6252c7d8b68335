"""`/`: a live status page, and links to every endpoint for those who do without scripts."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from natsctl.server.http import Page

if TYPE_CHECKING:
    from natsctl.server.view import ServerView

_INLINE: Final = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


def index_page(server: ServerView) -> Page:
    """Return the page; what it shows it asks the other endpoints for, below the same path."""
    body, policy = _document()
    base = "/" + server.options.http_base_path.strip("/")
    body = body.replace(b"{{BASE}}", escape(base.rstrip("/")).encode())
    body = body.replace(b"{{VERSION}}", escape(server.broker.options.version).encode())
    headers = (
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-cache"),
    )
    return Page(200, body, "text/html; charset=utf-8", headers)


@cache
def _document() -> tuple[bytes, str]:
    """Return the document, and the policy that lets nothing run or load but what stands in it."""
    document = files("natsctl.server.monitor").joinpath("status.html").read_bytes()
    hashes = {b"script": "", b"style": ""}
    for kind, text in _INLINE.findall(document):
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        hashes[kind] += f" 'sha256-{digest}'"
    policy = (
        f"default-src 'none'; script-src{hashes[b'script']}; style-src{hashes[b'style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return document, policy
