"""`ocsp`, `ocsp_cache` and `ocsp_peer` in nats.conf: values, and faults in nats-server's words."""

from __future__ import annotations

import pytest

from natsctl.server.conf import config
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import OcspCacheOptions, OcspOptions, OcspPeerOptions, ServerOptions


def read(text: str) -> ServerOptions:
    return config.apply(load_text(text, {}), ServerOptions())


def fault(text: str) -> str:
    with pytest.raises(ConfError) as found:
        read(text)
    return str(found.value).split(": ", 1)[1]


def test_short_and_long_forms_are_read() -> None:
    assert read("").ocsp is None and read("").ocsp_cache is None
    assert read("ocsp: true").ocsp == OcspOptions("auto") and read("ocsp: false").ocsp == OcspOptions("never")
    both = ("http://a", "http://b")
    assert read('ocsp { mode: Must, urls: ["http://a", "http://b"] }').ocsp == OcspOptions("must", both)
    assert read('ocsp { url: "http://a" }').ocsp == OcspOptions("auto", both[:1])
    assert read("ocsp_cache: false").ocsp_cache == OcspCacheOptions("none")
    long = 'ocsp_cache { type: LOCAL, local_store: x, preserve_revoked: true, save_interval: "1m" }'
    assert read(long).ocsp_cache == OcspCacheOptions("local", "x", True, 60.0)
    assert read("ocsp_cache { save_interval: 0.2 }").ocsp_cache == OcspCacheOptions(save_interval_s=1.0)


def test_peers_are_checked_as_the_block_says() -> None:
    tls = read("tls { verify: true, ocsp_peer: true }").tls
    assert tls is not None and tls.ocsp_peer == OcspPeerOptions(verify=True) and tls.checks_peers
    text = (
        'ocsp_peer { verify: true, ca_timeout: 1.5, allowed_clockskew: "1m", warn_only: true, unknown_is_good: true, '
        "allow_when_ca_unreachable: true, cache_ttl_when_next_update_unset: 10 }"
    )
    tls = read(f"tls {{ verify: true, {text} }}").tls
    assert tls is not None and tls.ocsp_peer == OcspPeerOptions(True, 1.5, 60.0, True, True, True, 10.0)
    tls = read("tls { ocsp_peer { ca_timeout: -1, allowed_clockskew: -1 } }").tls
    assert tls is not None and tls.ocsp_peer == OcspPeerOptions() and not tls.checks_peers


@pytest.mark.parametrize("block", ["%s", "leafnodes { port: -1, %s }", "websocket { port: -1, %s }"])
def test_listeners_that_check_must_ask_for_certificates(block: str) -> None:
    text = "OCSP peer verification for client connections requires TLS verify (mTLS) to be enabled"
    assert fault(block % "tls { ocsp_peer: true }") == text
    assert read(block % "tls { ocsp_peer: true, verify: true }").checks_peers


def test_a_remote_that_checks_its_hub_needs_no_certificate_of_its_own() -> None:
    line = "leafnodes { remotes: [{ url: nats-leaf://127.0.0.1, tls { ocsp_peer: true } }] }"
    assert read(line).checks_peers


def test_a_time_that_no_duration_can_have_is_refused() -> None:
    assert fault("tls { ocsp_peer { ca_timeout: 99999999999 } }").endswith("longer than a duration can be")
