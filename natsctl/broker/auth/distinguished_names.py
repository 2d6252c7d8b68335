"""Distinguished names of certificates and users: `CN=a,OU=b,O=c`, as RFC 4514 writes them."""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(
    r"\s*([A-Za-z][A-Za-z0-9-]*|\d+(?:\.\d+)*)\s*=\s*((?:[^\\,+]|\\.)*?)\s*(?:[,+]|\Z)", re.DOTALL
)
_ESCAPED: Final = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)

Attributes = tuple[tuple[str, str], ...]
"""(type, value) pairs in one order for all names that hold the same; types in capitals."""


def parse_dn(text: str) -> Attributes | None:
    """Return the attributes of a distinguished name, None where it is none.

    Two names with the same attributes are the same name, in whatever order. Source: reference, internal/ldap RDNsMatch.
    """
    found, at = [], 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part.end() == at:
            return None
        value = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 16)) if escaped[1] else escaped[2], part[2])
        found.append((part[1].upper(), value))
        at = part.end()
    return tuple(sorted(found)) if found else None
