"""A cached revocation holds by the entry's own status if the response in it cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from natsctl.server.ocsp.cache import ResponseCache
from natsctl.server.ocsp.peers import PeerVerifier
from natsctl.server.ocsp.responders import ResponderError
from natsctl.server.ocsp.responses import Response, fingerprint
from natsctl.server.options import OcspCacheOptions, OcspPeerOptions
from natsctl.server.resources import SystemClock
from tests.support.ocsp import Pki
from tests.support.tls_clients import ListLog


class Silent:
    """Responders that nobody reaches, and events that nobody hears."""

    async def get(self, *_: object) -> bytes:
        raise ResponderError("no answer")

    def peer_rejected(self, *_: object) -> None:
        pass

    link_invalid = peer_rejected


@pytest.mark.parametrize(("status", "refused"), [("revoked", True), ("good", False)])
async def test_an_unreadable_revocation_refuses_a_client_while_no_responder_answers(
    tmp_path: Path, status: Any, refused: bool
) -> None:
    cache = ResponseCache(OcspCacheOptions(preserve_revoked=True), ListLog(), SystemClock())
    pki, silent = Pki(tmp_path, "http://127.0.0.1:1"), Silent()
    client = pki.issue("client", pki.root)
    cache.put(fingerprint(client.der), Response(b"no DER", status, 0, None, False, True), "client")
    verifier: Any = PeerVerifier(ListLog(), SystemClock(), lambda: cache, lambda: silent, silent)
    options = OcspPeerOptions(verify=True, allow_when_unreachable=True)
    for _ in range(2):  # the entry is preserved
        assert bool(await verifier.verdict([client.der, pki.root.der], options, "Client")) is refused
