"""Comparison of secrets: plain ones in constant time, bcrypt hashes once per password that was right.

Theory of operation. A bcrypt comparison takes 50 to 100 ms, so authenticators leave it to a thread (see `Pending`).
A password that matched its hash is remembered by a digest, so that the next client that shows it, or the thousand that
reconnect at once, cost nothing. Wrong passwords are never remembered: who guesses pays every time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import OrderedDict
from typing import Final

MAX_KNOWN: Final = 4096
"""Hashes whose password is remembered; then the one that was asked for longest ago is forgotten."""
BCRYPT_MOST_BYTES: Final = 72
"""Bytes of a password that bcrypt looks at."""

_COSTS: Final = range(4, 32)
_DECOY: Final = b"Ro0CUfOqk6cXEKf3dyaM7OhSCvnwM9s4wIX9JeLapehKK5YdLxKcm"
"""Salt and hash of a password that no user has."""
_BCRYPT: Final = re.compile(r"\$2[abxy]\$\d{2}\$")
_WHOLE: Final = re.compile(r"\$2[abxy]\$(\d{2})\$[./A-Za-z0-9]{53}")
_known: OrderedDict[str, bytes] = OrderedDict()


def is_bcrypt(configured: str) -> bool:
    """Return whether a configured secret is a bcrypt hash; nats-server's expression."""
    return _BCRYPT.match(configured) is not None


def cost_of(configured: str) -> int:
    """Return the cost of a bcrypt hash, whose work doubles with each; 0 for anything else."""
    found = _WHOLE.fullmatch(configured)
    return int(found[1]) if found is not None and int(found[1]) in _COSTS else 0


def spend(cost: int, spent: int = 0) -> None:
    """Work as long as a comparison of `cost` takes, one of the cost `spent` being done; 0: none."""
    import bcrypt

    for each in range(spent, cost) if spent else (cost,) if cost else ():
        bcrypt.checkpw(b"", b"$2b$%02d$%b" % (each, _DECOY))


def is_known(configured: str, given: str) -> bool:
    """Return whether `given` has matched the bcrypt hash `configured` before."""
    known = _known.get(configured)
    return known is not None and hmac.compare_digest(known, _digest(configured, given))


def secret_matches(configured: str, given: str) -> bool:
    """Compare a secret with a plain one or a bcrypt hash, which takes long where the password is not known."""
    if not is_bcrypt(configured):
        return hmac.compare_digest(configured.encode(), given.encode())
    if is_known(configured, given):
        return True
    import bcrypt

    try:
        matches = bcrypt.checkpw(given.encode()[:BCRYPT_MOST_BYTES], configured.encode())
    except ValueError:
        return False
    if matches:
        _known[configured] = _digest(configured, given)
        while len(_known) > MAX_KNOWN:
            _known.popitem(last=False)
    return matches


def _digest(configured: str, given: str) -> bytes:
    return hmac.digest(configured.encode(), given.encode(), hashlib.sha256)
