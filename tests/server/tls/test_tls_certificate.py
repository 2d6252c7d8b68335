import ssl
from pathlib import Path

import pytest

from natsctl.server.tls_certificates import certificate_of, dns_names, not_after, peer_certificate
from natsctl.testing.certificates import Authority, Issued


def der(issued: Issued) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.cert.read_text())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


ODD = [
    ("C", "CH"), ("ST", "x y"), ("O", "A, B"), ("OU", "u1"), ("OU", "u2"), ("DC", "nats"), ("DC", "io"), ("UID", "7"),
    ("CN", "ann"), ("CN", " bob+# "), ("SERIALNUMBER", "5"),
]  # fmt: skip


def test_a_subject_is_written_as_the_reference_writes_it(authority: Authority) -> None:
    found = certificate_of(der(authority.issue("odd", attributes=ODD)))
    assert found.subject == r"SERIALNUMBER=5,CN=\ bob\+#\ ,OU=u1+OU=u2,O=A\, B,ST=x y,C=CH"
    assert found.domain_components == found.subject + ",DC=nats,DC=io"


def test_connz_shows_also_what_has_no_short_name(authority: Authority) -> None:
    name = peer_certificate(der(authority.issue("odd", attributes=[*ODD, ("DC", "é")]))).subject
    uid, components = "0.9.2342.19200300.100.1.1=#130137", "0.9.2342.19200300.100.1.25"
    tail = f",{components}=#0c02c3a9,{uid},{components}=#1302696f,{components}=#13046e617473"
    assert name == r"SERIALNUMBER=5,CN=\ bob\+#\ ,OU=u1+OU=u2,O=A\, B,ST=x y,C=CH" + tail


def test_alternative_names_are_kept_by_kind(authority: Authority) -> None:
    issued = authority.issue("names", dns=["A.test", "*.b.test"], emails=["a@b.c"], uris=["spiffe://a/b"])
    found = certificate_of(der(issued))
    assert (found.dns_names, found.emails, found.uris) == (("A.test", "*.b.test"), ("a@b.c",), ("spiffe://a/b",))
    assert found.domain_components == ""
    assert dns_names(issued.cert) == ["a.test", "*.b.test"]


def test_a_certificate_without_names_has_none(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue("bare", attributes=[("DC", "only")])
    found = certificate_of(der(issued))
    assert (found.subject, found.domain_components) == ("", ",DC=only")
    assert not_after(issued.cert).tzinfo is not None
