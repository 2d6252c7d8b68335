"""Certificates for tests: an authority, and the servers and clients that it signs, as files.

authority = Authority(folder)
server = authority.issue("server", dns=["localhost"], addresses=["127.0.0.1"])
client = authority.issue("client", emails=["derek@nats.io"])
TlsOptions(server.cert, server.key, authority.cert, verify=True)
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """The files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """An authority with a folder for its files; its own certificate is `cert`, valid for `days`."""

    def __init__(self, folder: Path, name: str = "authority", days: float = 2) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = subject(("CN", name))
        self.cert = folder / f"{name}.pem"
        self._write(self.cert, self._builder(self._name, self._key.public_key(), days), authority=True)

    def key_pem(self) -> bytes:
        """Return the authority's key; it is not written to any file."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def issue(
        self,
        name: str,
        *,
        attributes: Sequence[tuple[str, str]] = (),
        dns: Sequence[str] = (),
        addresses: Sequence[str] = (),
        emails: Sequence[str] = (),
        uris: Sequence[str] = (),
        days: float = 2,
    ) -> Issued:
        """Return a new certificate; `attributes` are its subject (short names, in order), else CN=`name`.

        `days` below 0: it has expired; a part of a day is one that soon will, to the second.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [*map(x509.DNSName, dns), *map(x509.RFC822Name, emails)]
        names += [x509.UniformResourceIdentifier(uri) for uri in uris]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = self._builder(subject(*(attributes or [("CN", name)])), key.public_key(), days)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        issued = Issued(self._folder / f"{name}.pem", self._folder / f"{name}-key.pem")
        self._write(issued.cert, builder, authority=False)
        issued.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return issued

    def _builder(self, name: x509.Name, key: CertificatePublicKeyTypes, days: float) -> x509.CertificateBuilder:
        from cryptography import x509

        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 5 * DAY)
            .not_valid_after(now + days * DAY)
        )

    def _write(self, path: Path, builder: x509.CertificateBuilder, *, authority: bool) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding

        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        public = self._key.public_key()
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        if authority:
            builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            builder = builder.add_extension(_signing(), critical=True)
        path.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))


def _signing() -> x509.KeyUsage:
    """Return the use of an authority's key: without it strict clients refuse its certificates."""
    from cryptography import x509

    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        decipher_only=False,
        **dict.fromkeys(unused, False),
    )


def subject(*attributes: tuple[str, str]) -> x509.Name:
    """Return a subject of attributes by their short names, in order; `+O` joins the element before it."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    oids = {
        "CN": NameOID.COMMON_NAME,
        "O": NameOID.ORGANIZATION_NAME,
        "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
        "C": NameOID.COUNTRY_NAME,
        "L": NameOID.LOCALITY_NAME,
        "ST": NameOID.STATE_OR_PROVINCE_NAME,
        "DC": NameOID.DOMAIN_COMPONENT,
        "UID": NameOID.USER_ID,
        "SERIALNUMBER": NameOID.SERIAL_NUMBER,
    }
    elements: list[list[x509.NameAttribute[str]]] = []
    for short, value in attributes:
        if not short.startswith("+"):
            elements.append([])
        elements[-1].append(x509.NameAttribute(oids[short.removeprefix("+")], value))
    return x509.Name([x509.RelativeDistinguishedName(element) for element in elements])
