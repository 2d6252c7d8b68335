"""URLs of servers: one parser, one rule for what is escaped, and no secret in an error."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import natsctl
from natsctl.wire.server_url import ServerUrl, ServerUrlError, parse_server_url, without_login
from tests.support import tiers

NOT_OF_SERVERS = {
    "api/jwt_validation.py", "server/broker_setup.py", "server/conf/leafnodes.py", "server/conf/operator.py",
    "server/monitor/pages.py", "server/http_client.py", "server/ocsp/responses.py", "server/log/syslog.py",
    "server/websocket/protocol.py", "spark/session/connect.py",
}  # fmt: skip
"""Modules that take apart other URLs: of proxies, resolvers, responders, monitoring, browsers' origins and Spark."""


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost", ("nats", "localhost", 4222)),
        ("tls://Host:1", ("tls", "host", 1)),
        ("ws://h", ("ws", "h", 80)),
        ("wss://h/p?q=1", ("wss", "h", 443, "", None, "/p?q=1")),
        ("nats://[::1]", ("nats", "::1", 4222)),
        ("nats://[fe80::1%25eth0]:1", ("nats", "fe80::1%eth0", 1)),
        ("h:4222/", ("nats", "h", 4222, "", None, "/")),
        ("nats://dom%40in:p%3Aw@h", ("nats", "h", 4222, "dom@in", "p:w")),
        ("u%2Fs%65r:%2f@h", ("nats", "h", 4222, "u/ser", "/")),
        ("nats://tok%20en@h", ("nats", "h", 4222, "tok en", None)),
        ("nats://u:@h", ("nats", "h", 4222, "u", "")),
        ("nats://u:a@b:c+d%zz%@h", ("nats", "h", 4222, "u", "a@b:c+d%zz%")),
        ("nats://u:[é]{}|\\^\"'<>&=;$!*~@h", ("nats", "h", 4222, "u", "[é]{}|\\^\"'<>&=;$!*~")),
    ],
)
def test_a_url_is_taken_apart_and_its_login_decoded(text: str, parts: tuple[object, ...]) -> None:
    assert parse_server_url(text) == ServerUrl(*parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nats://SECRET:SECRET/SECRET@h", "not escaped"),
        ("nats://SECRET/SECRET@h", "not escaped"),
        ("nats://u:1#SECRET@h", "not escaped"),
        ("nats://SECRET?SECRET@h:4222", "not escaped"),
        ("ws://u:SECRET/SECRET@h", "not escaped"),
        ("ws://h/p?SECRET@h", "not escaped"),
        ("nats://u:SECRET", "port is not a number"),
        ("nats://u:SECRET@h:SECRET", "port is not a number"),
        ("h:65536", "port is not a number up to 65535"),
        ("h:" + "9" * 5000, "port is not a number"),
        ("nats://u:SECRET@", "no host"),
        ("SECRET://SECRET@h", "scheme is not nats, tls, ws or wss"),
        ("SE_CRET://h", "scheme is malformed"),
        ("nats://u:SECRET@[::1", "brackets"),
        ("nats://SECRET:SECRET:1", "more than one colon"),
        ("nats://u:SEC RET@h", "blank"),
        ("nats://u:SEC\x1bRET@h", "blank"),
    ],
)
def test_an_error_names_the_wrong_part_and_repeats_none(text: str, reason: str) -> None:
    with pytest.raises(ServerUrlError, match=reason) as raised:
        parse_server_url(text)
    assert not re.search("SECRET|SEC|RET", str(raised.value) + raised.value.hint)
    assert "SECRET" not in without_login("nats://SECRET@SECRET:SECRET/SECRET@h")


@tiers.examples(2000)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.text(st.characters(exclude_categories=["Cs"])))
def test_any_login_survives_being_written_as_a_url(user: str, password: str | None) -> None:
    url = ServerUrl("nats", "h", 4222, user, password)
    again = parse_server_url(url.full)
    assert again.login == url.login
    assert (again.bare, repr(again), without_login(url.full)) == (url.bare, "ServerUrl('nats://h:4222')", url.bare)


@tiers.examples(2000)
@given(st.text("nats:/@?#%[]u.1\\ 0Z"))
def test_what_is_accepted_reads_the_same_when_written_again(text: str) -> None:
    try:
        url = parse_server_url(text)
    except ServerUrlError:
        return
    assert parse_server_url(url.full) == url._replace(password=url.password if url.login else None)


def test_no_other_module_parses_the_url_of_a_server() -> None:
    package = Path(natsctl.__file__).parent
    parsing = re.compile(r"\burlsplit\b|\burlparse\b|\.rpartition\(\"@\"\)")
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if parsing.search(path.read_text())}
    assert found == NOT_OF_SERVERS | {"wire/server_url.py"}
