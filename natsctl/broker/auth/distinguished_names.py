"""Distinguished names of certificates and users: `CN=a,OU=b,O=c`, as RFC 4514 writes them."""

from __future__ import annotations

import re
from typing import Final

_PART: Final = r" *([A-Za-z][A-Za-z0-9-]*|\d+(?:\.\d+)*) *= *((?:[^\\,+]|\\.)*?) *([,+]|\Z)"
_ESCAPED: Final = rb"\\(?:([0-9A-Fa-f]{2})|(.))"
"""Compiled when first used: a server without TLS starts without."""

RelativeName = tuple[tuple[str, str], ...]
"""The (type, value) pairs of one element, sorted, as their order means nothing; types in capitals."""
DistinguishedName = tuple[RelativeName, ...]
"""The elements from the most specific one on, which a certificate has in the opposite order."""


def parse_dn(text: str) -> DistinguishedName | None:
    """Return the elements of a distinguished name, None where it is none. Source: nats-server, internal/ldap."""
    elements: list[RelativeName] = []
    element: list[tuple[str, str]] = []
    at, parts, escaped = 0, re.compile(_PART, re.DOTALL), re.compile(_ESCAPED, re.DOTALL)
    while at < len(text):
        part = parts.match(text, at)
        if part is None or part[2].startswith("#"):  # a value in BER
            return None
        raw = escaped.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else found[2], part[2].encode())
        try:
            element.append((part[1].upper(), raw.decode()))
        except UnicodeDecodeError:
            return None
        if part[3] != "+":
            elements.append(tuple(sorted(element)))
            element = []
        at = part.end()
    return tuple(elements) if elements and not element else None


def in_any_order(name: DistinguishedName) -> DistinguishedName:
    """Return the same for all names that have the same elements."""
    return tuple(sorted(name))
