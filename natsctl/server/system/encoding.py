"""Compressing answers for those who ask for it."""

from __future__ import annotations

from natsctl.api import headers

ACCEPT = b"Accept-Encoding"
CONTENT = b"Content-Encoding"


def encoded(body: bytes, request_header: bytes) -> tuple[bytes, bytes]:
    """Return the header block and the body of an answer to a request with `request_header`.

    What the asker takes is looked for anywhere in its header: snappy (or s2) first, then gzip. An encoding that is
    asked for and not known is answered with `identity`.
    """
    accepted = (headers.get(request_header, ACCEPT) or b"").lower() if request_header else b""
    if not accepted or not body:
        return b"", body
    if b"snappy" in accepted or b"s2" in accepted:
        import cramjam

        name, body = b"snappy", bytes(cramjam.snappy.compress(body))
    elif b"gzip" in accepted:
        import gzip

        name, body = b"gzip", gzip.compress(body)
    else:
        name = b"identity"
    return headers.encode(((CONTENT, name),)), body
