import json
import os
import re
import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from natsctl.server.log import syslog
from natsctl.server.log.lines import Log
from natsctl.server.log.syslog import parse_syslog_url
from natsctl.server.log.trace import ProtocolTrace
from natsctl.server.options import ServerOptions
from natsctl.server.process.serving import write_pid_file, write_ports_file

LINE = re.compile(r"\[(\d+)\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[INF\] Server is ready\n")


def test_lines_have_the_reference_servers_form(capsys: pytest.CaptureFixture[str]) -> None:
    Log().info("Server is ready")
    out, err = capsys.readouterr()
    match = LINE.fullmatch(err)
    assert match is not None
    assert int(match[1]) == os.getpid()
    assert out == ""


def test_a_log_file_is_appended_to_and_opened_anew_after_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    log = Log(path, with_time=False)
    log.info("one")
    path.rename(tmp_path / "old")
    log.reopen()
    log.info("two")
    log.close()
    assert "one" in (tmp_path / "old").read_text()
    assert (tmp_path / "old").read_text().startswith("before\n")
    assert "two" in path.read_text()
    assert "one" not in path.read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_full_disk_does_not_stop_those_who_log(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(Path("/dev/full"), with_time=False)
    for _ in range(3):
        log.info("x" * 10_000)
    assert log.lost == 3
    log.reopen()
    log.close()
    assert capsys.readouterr().err == ""


def test_a_log_file_that_cannot_be_opened_anew_leaves_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = Log(folder / "log", with_time=False)
    (folder / "log").unlink()
    folder.rmdir()
    log.reopen()
    log.info("still here")
    assert "error opening log file" in (err := capsys.readouterr().err) and "still here" in err


def test_a_full_file_is_put_aside_and_the_newest_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Log(path, with_time=False, size_limit=200, max_files=3)
    for number in range(40):
        log.info(f"line {number}")
    log.close()
    aside = sorted(tmp_path.glob("log.*"))
    assert len(aside) == 2
    assert path.stat().st_size <= 200 + 100
    assert "line 39" in path.read_text() + aside[-1].read_text()
    assert f'Rotated log, backup saved as "{aside[-1]}"' in path.read_text()
    assert "line 0" not in "".join(file.read_text() for file in tmp_path.iterdir() if file.is_file())


def test_no_log_file_can_be_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "log"
    before = os.umask(0)
    try:
        log = Log(path, with_time=False, size_limit=200, max_files=3)
        for number in range(40):
            log.info(f"line {number}")
        path.rename(tmp_path / "moved")
        log.reopen()
        log.close()
    finally:
        os.umask(before)
    assert len(files := list(tmp_path.iterdir())) == 4
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o640}


def test_a_log_goes_on_as_new_options_ask(tmp_path: Path) -> None:
    log = Log(tmp_path / "one", with_time=False)
    log.configure(ServerOptions(log_file=tmp_path / "two", log_time=True, log_utc=True, debug=True))
    log.debug("x")
    log.configure(ServerOptions(log_file=tmp_path / "none" / "three", log_time=False))
    log.info("y")
    log.close()
    assert (tmp_path / "one").read_text() == ""
    assert re.search(
        r"\d\d:\d\d:\d\d\.\d{6} \[DBG\] x\n.*\[ERR\] error opening log file.*\n.* \[INF\] y\n",
        (tmp_path / "two").read_text(),
    )


def test_what_others_chose_forges_no_line_and_moves_no_cursor(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = Log(path)
    log.error("name a\nb\r\x1b[2J\x9b \u2028\u202e\u061c\ud800 é\t\u4e2d")
    log.info("next")
    log.close()
    first, second, third = path.read_text(encoding="utf-8").split("\n")[:-1]
    assert first.endswith("[ERR] name a")
    assert second == "\tb\\r\\x1b[2J\\x9b \\u2028\\u202e\\u061c\\ud800 é\t\u4e2d"
    assert third.endswith("[INF] next")
    assert log.lost == 0


def test_lines_as_json_are_documents(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Log.of(ServerOptions(log_file=path, log_format="json"))
    log.error('a "b"\n\x1b[2J\ud800é')
    log.close()
    (line,) = path.read_text().splitlines()
    document = json.loads(line)
    assert (document["level"], document["pid"], document["message"]) == ("error", os.getpid(), 'a "b"\n\x1b[2J\ud800é')
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", document["time"])
    assert line.isascii() and line.isprintable()


@pytest.mark.parametrize("network", ["udp", "tcp", "unix"])
def test_lines_go_to_syslog_with_their_priority(network: str, tmp_path: Path) -> None:
    kind = socket.SOCK_STREAM if network == "tcp" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_UNIX if network == "unix" else socket.AF_INET, kind) as receiver:
        receiver.settimeout(20)
        receiver.bind(str(tmp_path / "log") if network == "unix" else ("127.0.0.1", 0))
        if network == "tcp":
            receiver.listen()
        url = f"unix:{tmp_path}/log" if network == "unix" else f"{network}://127.0.0.1:{receiver.getsockname()[1]}"
        log = Log.of(ServerOptions(syslog=True, remote_syslog=url))
        log.error("first\nsecond")
        log.info("ready")
        expected = [f"<27>nats-server[{os.getpid()}]: first\\nsecond", f"<29>nats-server[{os.getpid()}]: ready"]
        if network == "tcp":
            connection, _ = receiver.accept()
            log.configure(ServerOptions())
            with connection, connection.makefile("r") as lines:
                assert lines.read() == "\n".join(expected) + "\n"
        else:
            assert [receiver.recv(1000).decode() for _ in expected] == expected
            log.configure(ServerOptions())
        log.close()


def test_a_syslog_that_does_not_read_loses_whole_lines_and_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "RETRY_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        receiver.settimeout(0.05)
        log = Log.of(ServerOptions(remote_syslog=f"tcp://127.0.0.1:{receiver.getsockname()[1]}"))
        with receiver.accept()[0] as reader, reader.makefile("rb") as arrived:
            while log.lost < 3:
                log.info("x" * 10_000)
            lines = [arrived.readline() for _ in range(10)]
            log.info("end")
            while not lines[-1].endswith(b": end\n"):
                lines.append(arrived.readline())
            assert len(set(lines)) == 2
        for _ in range(100):  # it starts again
            log.info("again")
            with suppress(TimeoutError), receiver.accept()[0] as reader, reader.makefile("rb") as arrived:
                log.info("again")
                assert arrived.readline().endswith(b": again\n")
                break
        else:
            pytest.fail("the connection is not opened again")
        log.configure(ServerOptions())


def test_a_syslog_of_this_machine_that_does_not_read_holds_up_nothing(tmp_path: Path) -> None:
    log = None
    for _ in range(2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(str(tmp_path / "log"))
            log = log or Log.of(ServerOptions(remote_syslog=f"unix:{tmp_path}/log"))
            log.info("first")  # the second receiver has started after the first one's end
            while log.lost < 3:
                log.info("x" * 10_000)
            assert receiver.recv(100).endswith(b": first")
        (tmp_path / "log").unlink()
        log.lost = 0
    assert log is not None
    log.configure(ServerOptions())


def test_a_pipe_as_log_file_is_never_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device or address"):
        Log(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    log = Log(pipe)
    while not log.lost:
        log.info("x" * 1000)
    log.close()
    os.close(reader)


def test_a_rotation_writes_through_no_link_that_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").write_text("untouched")
    rename = Path.rename

    def planted(path: Path, aside: Path) -> None:
        rename(path, aside)
        path.symlink_to(tmp_path / "other")

    monkeypatch.setattr(Path, "rename", planted)
    log = Log(tmp_path / "log", size_limit=100)
    for _ in range(3):
        log.info("x" * 60)
    log.close()
    assert (tmp_path / "other").read_text() == "untouched"


def test_pid_and_ports_files_are_written_through_no_link_and_no_pipe(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (tmp_path / "other").write_text("untouched")
    pid.symlink_to(tmp_path / "other")
    (tmp_path / f"pid.{os.getpid()}.tmp").symlink_to(tmp_path / "other")
    os.mkfifo(tmp_path / f"nats-server_{os.getpid()}.ports.{os.getpid()}.tmp")
    write_pid_file(pid)
    ports = write_ports_file(tmp_path, {"nats": ["nats://127.0.0.1:4222"]})
    assert (tmp_path / "other").read_text() == "untouched" and not pid.is_symlink()
    assert int(pid.read_text()) == os.getpid() and json.loads(ports.read_text()) == {"nats": ["nats://127.0.0.1:4222"]}


def test_a_syslog_that_cannot_be_reached_is_an_error_at_the_start_and_a_line_at_a_reload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = ServerOptions(remote_syslog=f"unix:{tmp_path}/none")
    with pytest.raises(OSError):
        Log.of(away)
    log = Log(with_time=False)
    log.configure(away)
    assert "error connecting to syslog" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["host:514", "http://host", "udp://", "unix:"])
def test_an_address_of_syslog_is_checked(url: str) -> None:
    with pytest.raises(ValueError, match="expected udp://HOST:PORT"):
        parse_syslog_url(url)


def test_lines_in_the_journal_have_a_priority_and_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "journal").open("w+") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        found = os.fstat(stderr.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        Log().warn("careful")
        Log.of(ServerOptions(log_format="json")).info("ready")
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino + 1}")
        Log(with_time=False).info("elsewhere")
        first, second, third = (tmp_path / "journal").read_text().splitlines()
    assert first == "<4>[WRN] careful" and third == f"[{os.getpid()}] [INF] elsewhere"
    assert second.startswith('<5>{"time": ')


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
