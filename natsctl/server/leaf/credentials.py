"""What a remote shows to its hub: a creds file, a seed, or the user of its url."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from natsctl.broker.leaf.options import RemoteCredentialsError, Signer
from natsctl.server.conf.syntax import read_file
from natsctl.server.leaf.options import LeafRemoteOptions, LeafUrl

_PARTS: Final = re.compile(rb"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}[^\n]*-{3,}")
"""A creds file holds the user's JWT, then its seed, each between two lines of dashes."""


def signer_of(remote: LeafRemoteOptions, url: LeafUrl) -> Signer:
    """Return what signs a hub's nonce; files are read when it does, so that renewed credentials are found."""

    def sign(nonce: bytes) -> Mapping[str, str]:
        shown: dict[str, str] = {}
        if remote.creds is not None:
            jwt, seed = read_creds(remote.creds)
            shown = {"jwt": jwt, "sig": _signature(seed, nonce, "Credentials file has malformed seed")[1]}
        elif remote.nkey:
            public, signature = _signature(remote.nkey.encode(), nonce, "Remote nkey has malformed seed")
            shown = {"nkey": public, "sig": signature}
        return {**shown, **_user(remote, url)}

    return sign


def read_creds(path: Path) -> tuple[str, bytes]:
    """Return JWT and seed of a creds file; raises RemoteCredentialsError."""
    try:
        content = read_file(path)
    except OSError as error:
        raise RemoteCredentialsError(f"open {path}: {(error.strerror or str(error)).lower()}") from error
    parts = _PARTS.findall(content)
    if len(parts) < 2:
        raise RemoteCredentialsError("Credentials file malformed")
    return parts[0].decode(), parts[1]


def _signature(seed: bytes, nonce: bytes, fault: str) -> tuple[str, str]:
    """Return the public key of a seed and its signature, as CONNECT has them; raises RemoteCredentialsError."""
    import nkeys

    try:
        pair = nkeys.from_seed(bytearray(seed))
        signature = base64.urlsafe_b64encode(pair.sign(nonce)).rstrip(b"=").decode()
        public = pair.public_key.decode()
        pair.wipe()
    except (nkeys.NkeysError, ValueError) as error:
        raise RemoteCredentialsError(fault) from error
    return public, signature


def _user(remote: LeafRemoteOptions, url: LeafUrl) -> dict[str, str]:
    """Return user and password of the url, or of the first one that has some where the hub has offered this one."""
    named = url if url.user else next((known for known in remote.urls if known.user), url)
    if not named.user:
        return {}
    if named.password is None:
        return {"user": named.user, "auth_token": named.user}
    return {"user": named.user, "password": named.password}
