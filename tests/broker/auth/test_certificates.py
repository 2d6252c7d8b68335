"""Users that certificates name."""

import pytest

from natsctl.broker.auth.credentials import ConnectOptions, Credentials, Grant, LoginCertificate, parse_dn
from natsctl.broker.auth.static_auth import StaticAuthenticator, User


def called(subject: str, dn: str = "") -> LoginCertificate:
    """Return a certificate of which nats-server makes the text `subject`, all of it being `dn`."""
    return LoginCertificate(subject, dn=parse_dn(dn or subject))


def admitted(
    certificate: LoginCertificate | None, *users: User, kind: str = "STANDARD", password: str = ""
) -> str | None:
    auth = StaticAuthenticator(users=users, map_certificates=True)
    options = ConnectOptions(user="whoever", password=password)
    answer = auth.authenticate(Credentials(options, certificate=certificate, connection_type=kind))
    return answer.user if isinstance(answer, Grant) else None


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, "a"),
        (LoginCertificate(), ""),
        (called("CN=a"), "a"),
        (called("CN=a,O=b"), "CN=a"),
        (called("CN=a"), "CN=a,O=b"),
        (called("CN=a"), "CN=A"),
        (called("CN=b,O=o", "CN=b,O=o,CN=a"), "O=o,CN=b"),
        (called("CN=a,O=b", "CN=a,DC=x+O=b"), "CN=a,DC=x,O=b"),
        (LoginCertificate("CN=a,O=b"), "O=b,CN=a"),
        (LoginCertificate(emails=("a@x",)), "whoever"),
    ],
)
def test_other_names_are_not(certificate: LoginCertificate | None, name: str) -> None:
    assert admitted(certificate, User(name, "")) is None


def test_a_password_is_asked_for_besides() -> None:
    certificate = LoginCertificate(emails=("a@x",))
    assert admitted(certificate, User("a@x", "p")) is None
    assert admitted(certificate, User("a@x", "p"), password="p") == "a@x"


def test_the_kind_of_connection_counts() -> None:
    certificate = LoginCertificate(emails=("a@x",))
    user = User("a@x", "", connection_types=frozenset({"WEBSOCKET"}))
    assert admitted(certificate, user) is None and admitted(certificate, user, kind="WEBSOCKET") == "a@x"


def test_who_is_known_by_a_certificate_needs_it_on_every_listener() -> None:
    users = [User("a@x", ""), User("b", "", connection_types=frozenset({"STANDARD"}))]
    auth = StaticAuthenticator(users=users, mapped_types=frozenset({"WEBSOCKET"}))
    answers = {name: auth.authenticate(Credentials(ConnectOptions(user=name))) for name in ("a@x", "b")}
    assert not isinstance(answers["a@x"], Grant) and isinstance(answers["b"], Grant)


@pytest.mark.parametrize(
    "text", ["", "a", "=", "CN", "a@x", "CN=a,", "spiffe://x", "CN=a,b", ",", "CN=a+", "CN=#04024869", "CN=\\ff"]
)
def test_what_is_no_distinguished_name(text: str) -> None:
    assert parse_dn(text) in (None, ((("CN", "a"),),))


def test_blanks_around_and_escapes_within_a_distinguished_name() -> None:
    assert parse_dn("  CN = a b , O=\\ c\\20 ") == ((("CN", "a b"),), (("O", " c "),))
    assert parse_dn("2.5.4.3=x+DC=y") == ((("2.5.4.3", "x"), ("DC", "y")),)
