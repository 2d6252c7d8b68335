"""Names that nats-server's configuration and log know of TLS, beside those of OpenSSL."""

from __future__ import annotations

import ssl
from typing import Final

SUITES: Final = {
    "TLS_AES_128_GCM_SHA256": "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384": "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256": "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
"""Suites that are held secure: the name in `cipher_suites` and connz, and OpenSSL's; the first three are TLS 1.3's."""

INSECURE_SUITES: Final = {
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
}
"""Suites that need `allow_insecure_cipher_suites`; an OpenSSL may have left some of them out."""

TLS13_SUITES: Final = frozenset(list(SUITES)[:3])

CURVES: Final = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
    "X25519MLKEM768": "X25519MLKEM768",
    "SecP256r1MLKEM768": "SecP256r1MLKEM768",
    "SecP384r1MLKEM1024": "SecP384r1MLKEM1024",
}
"""Names in `curve_preferences`, and OpenSSL's."""

_IANA: Final = {name: iana for iana, name in (SUITES | INSECURE_SUITES).items()}

_NOT_TLS: Final = "tls: first record does not look like a TLS handshake"

_REASONS: Final = {
    "HTTP_REQUEST": _NOT_TLS,
    "HTTPS_PROXY_REQUEST": _NOT_TLS,
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "UNKNOWN_PROTOCOL": _NOT_TLS,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "tls: client didn't provide a certificate",
    "NO_SHARED_CIPHER": "tls: no cipher suite supported by both client and server",
    "UNSUPPORTED_PROTOCOL": "tls: client offered only unsupported versions",
    "TLSV1_ALERT_PROTOCOL_VERSION": "remote error: tls: protocol version not supported",
    "TLSV1_ALERT_UNKNOWN_CA": "remote error: tls: unknown certificate authority",
    "SSLV3_ALERT_BAD_CERTIFICATE": "remote error: tls: bad certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "remote error: tls: expired certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "remote error: tls: unknown certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "remote error: tls: handshake failure",
    "CERTIFICATE_VERIFY_FAILED": "tls: failed to verify certificate: x509: ",
}
"""Log texts for OpenSSL's reasons."""

_VERIFY: Final = {
    10: "certificate has expired or is not yet valid",
    9: "certificate has expired or is not yet valid",
    26: "certificate specifies an incompatible key usage",
}
"""Log texts for OpenSSL's codes of refused certificates; any other has no known authority."""


def suite_name(openssl: str) -> str:
    """Return the IANA name of a suite."""
    return _IANA.get(openssl, openssl)


def error_text(error: ssl.SSLError) -> str:
    """Return nats-server's log text for a failed handshake, or OpenSSL's where it has none."""
    text = _REASONS.get(error.reason or "", "")
    if isinstance(error, ssl.SSLCertVerificationError):
        return text + _VERIFY.get(error.verify_code, "certificate signed by unknown authority")
    return text or f"tls: {(error.reason or str(error)).lower().replace('_', ' ')}"


def is_probe(error: ssl.SSLError) -> bool:
    """Return whether the other side did not attempt TLS at all: a load balancer's check, or a browser without it."""
    return _REASONS.get(error.reason or "") == _NOT_TLS
