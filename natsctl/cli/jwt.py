"""JWTs without a server: `natsctl jwt decode`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final

from natsctl.api.errors import UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.parameters import Argument, as_usage_error
from natsctl.cli.framework.verbs import verb

AnyClaims = dict[str, Any]
"""The claims as in the JWT."""

_LOOKS_LIKE_JWT: Final = re.compile(r"eyJ[^.]*\.[^.]*\.[^.]*\Z", re.DOTALL)
_DECORATED: Final = re.compile(r"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}[^\n]*-{3,}")
MAX_FILE_BYTES: Final = 4 << 20
"""Longest file that is read: four times the longest JWT."""


def decode(
    jwt: Annotated[str, Argument(metavar="JWT", help="a JWT, or a file with one, such as a creds file")],
    json: Json = False,
) -> None:
    """Show the claims of a JWT: of an operator, an account or a user, an activation, an authorization.

    The JWT must be signed by the issuer it names. Whether that issuer is trusted is not checked, so a JWT that is shown
    is not proven to be good. Faults of the claims, such as an expired JWT, are listed under "Validation Issues". A
    creds file is read for its JWT only, never for its seed.
    """
    from natsctl.client.auth.claims import faults, faults_of_times, read_any

    claims, kind = read_any(token_in(jwt))
    if json:
        output.emit_json(claims)
        return
    from natsctl.cli.render.auth import render_jwt
    from natsctl.client.auth.claims import TYPES, typed

    known = typed(claims, TYPES[kind]) if kind in TYPES else None
    output.show_page(render_jwt(kind, claims, known, [*faults_of_times(claims), *faults(claims)]))


def token_in(text: str) -> str:
    """Return the JWT in an argument: itself, or the first one in the file of that name; raises UsageError."""
    from natsctl.client.auth.keys import is_seed

    word = text.strip()
    path = Path(word)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # longer than a path can be
        is_file = False
    if not is_file:
        if _LOOKS_LIKE_JWT.match(word):
            return word
        if is_seed(word):
            raise UsageError("this is a private key, not a JWT", hint="natsctl auth nkey show FILE shows a public key")
        shown = word if len(word) <= 200 else word[:200] + "…"
        raise UsageError(f'"{shown}" is neither a file nor a JWT')
    with as_usage_error(word), path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES).decode(errors="replace")
    match = _DECORATED.search(content)
    token = (match[1] if match else content).strip()
    if not _LOOKS_LIKE_JWT.match(token):
        raise UsageError(f"{word} does not contain a JWT")
    return token


VERBS = (
    verb("decode, de, d", decode, "cli.jwt:AnyClaims", "natsctl jwt decode app.creds", "natsctl jwt decode app.jwt -j"),
)
