"""The lines that a tracing server writes, in the form of nats-server."""

import pytest

from natsctl.server.process.protocol_trace import ProtocolTrace


def received(data: bytes, most: int = 0) -> list[str]:
    return ProtocolTrace(sent=False).lines(data, most)


def sent(data: bytes, most: int = 0) -> list[str]:
    return ProtocolTrace(sent=True).lines(data, most)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"PING\r\n", ["<<- [PING]"]),
        (b"PONG\r\n", ["<<- [PONG]"]),
        (b"sub  foo 1 \r\n", ["<<- [SUB foo 1]"]),
        (b"SUB bar  q   2\r\n", ["<<- [SUB bar  q   2]"]),
        (b"UNSUB 1 5\r\n", ["<<- [UNSUB 1 5]"]),
        (b'PUB foo 5\r\nhe"lo\r\n', ["<<- [PUB foo 5]", '<<- MSG_PAYLOAD: ["he\\"lo"]']),
        (b"PUB foo r.r 0\r\n\r\n", ["<<- [PUB foo r.r 0]"]),
        (
            b"HPUB foo 12 14\r\nNATS/1.0\r\n\r\n\x01\xff\r\n",
            ["<<- [HPUB foo 12 14]", '<<- MSG_PAYLOAD: ["NATS/1.0\\r\\n\\r\\n\\x01\\xff"]'],
        ),
        (b"LS+ foo q 2\r\n", ["<<- [LS+ foo q 2]"]),
        (b"+OK\r\nINFO {}\r\nBOO\r\n\r\n", []),
    ],
)
def test_each_operation_that_arrives_is_a_line(data: bytes, lines: list[str]) -> None:
    assert received(data) == lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"INFO {}\r\n", []),
        (b"+OK\r\nPONG\r\n", ["->> [OK]", "->> [PONG]"]),
        (b"-ERR 'Invalid Subject'\r\n", ["->> [-ERR Invalid Subject]"]),
        (b"MSG foo 1 5\r\nhello\r\nPING\r\n", ["->> [MSG foo 1 5]", '->> MSG_PAYLOAD: ["hello"]', "->> [PING]"]),
        (b"MSG foo 1 6\r\nPING\r\n\r\n", ["->> [MSG foo 1 6]", '->> MSG_PAYLOAD: ["PING\\r\\n"]']),
    ],
)
def test_each_operation_that_is_sent_is_a_line(data: bytes, lines: list[str]) -> None:
    assert sent(data) == lines


def test_what_comes_in_pieces_makes_the_same_lines() -> None:
    data = b"SUB a 1\r\nPUB a 7\r\nx\r\ny\r\nz\r\nPING\r\nHPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    trace = ProtocolTrace(sent=False)
    pieces = [line for at in range(len(data)) for line in trace.lines(data[at : at + 1], 0)]
    assert pieces == received(data)
    assert len(pieces) == 6


@pytest.mark.parametrize(("most", "text"), [(0, '"xxxxxxxx"'), (8, '"xxxxxxxx"'), (3, '"xxx..."')])
def test_a_payload_is_shown_as_far_as_is_asked_for(most: int, text: str) -> None:
    assert received(b"PUB a 8\r\nxxxxxxxx\r\n", most)[1] == f"<<- MSG_PAYLOAD: [{text}]"


def test_connect_is_shown_without_its_secrets() -> None:
    connect = (
        b'CONNECT {"verbose":true,"user":"a","pass":"secret","auth_token":"secret","sig":"secret","jwt":"secret",'
        b'"nkey":"secret","lang":"py"}\r\n'
    )
    (line,) = received(connect)
    assert "secret" not in line
    assert line.startswith('<<- [CONNECT {"verbose":true,"user":"a","pass":"[REDACTED]","auth_token":"[REDACTED]"')
    assert line.endswith('"lang":"py"}]')


@pytest.mark.parametrize(
    "options",
    [b'{"pass":"secret"', b'["secret"]', b"pass=secret", b'{"p\\u0061ss":"secret"}', b'{"PASS":{"a":"secret"}}'],
)
def test_no_way_to_write_connect_puts_a_secret_into_the_log(options: bytes) -> None:
    assert "secret" not in "".join(received(b"CONNECT " + options + b"\r\n") + received(b"connect" + options + b"\r\n"))


def test_a_control_character_of_a_client_does_not_reach_the_log() -> None:
    assert received(b"SUB a\x1b[31m\x85 1\r\n") == ["<<- [SUB a�[31m� 1]"]


def test_requests_of_callouts_are_shown_without_what_clients_have_shown() -> None:
    trace = ProtocolTrace(sent=True)
    message = b"MSG $SYS.REQ.USER.AUTH 1 _INBOX.x 6\r\nsecret\r\nMSG a 2 2\r\nhi\r\n"
    for most in (0, 3):
        assert trace.lines(message, most) == [
            "->> [MSG $SYS.REQ.USER.AUTH 1 _INBOX.x 6]", '->> MSG_PAYLOAD: ["[REDACTED]"]',
            "->> [MSG a 2 2]", '->> MSG_PAYLOAD: ["hi"]',
        ]  # fmt: skip
