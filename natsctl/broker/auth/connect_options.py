"""The body of CONNECT."""

from __future__ import annotations

from typing import Final

import msgspec

from natsctl.api.codec import InvalidJSONError, fold, read_folded


class ConnectOptions(msgspec.Struct, kw_only=True):
    """The body of CONNECT, with the defaults of a client that never sends it."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    auth_token: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    jwt: str = ""
    nkey: str = ""
    sig: str = ""
    account: str = ""
    new_account: bool = False

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"ConnectOptions(user={self.user!r}, nkey={self.nkey!r}, name={self.name!r}, …)"


_NAMES: Final = frozenset(ConnectOptions.__struct_encode_fields__)


def parse_connect(body: bytes, before: ConnectOptions | None = None) -> ConnectOptions | None:
    """Return the options of a CONNECT body; None where it is not what the protocol asks for.

    What a body does not say stays as `before` has it, which is what an earlier CONNECT said.
    """
    try:
        given = msgspec.json.decode(body, type=dict[str, object] | None) or {}
        if any(key not in _NAMES and fold(key) in _NAMES for key in given):
            given = read_folded(body, ConnectOptions)
        known = {key: value for key, value in given.items() if value is not None}
        return msgspec.convert(known if before is None else msgspec.to_builtins(before) | known, ConnectOptions)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError, InvalidJSONError):
        return None
