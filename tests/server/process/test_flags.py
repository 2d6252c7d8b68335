"""Flags of the command line, and signals to running servers."""

import os
import signal
from pathlib import Path

import pytest

from natsctl.server.options import ServerOptions, TlsOptions
from natsctl.server.process import process
from natsctl.server.process.flags import FlagError, FlagSpec, parse_command_line, parse_flags
from natsctl.server.process.serving import pause_and_batch


def options(*argv: str) -> ServerOptions:
    command_line = parse_command_line(argv)
    assert command_line.action == "run"
    return command_line.options


def test_without_flags_the_server_listens_where_nats_servers_do_without_jetstream() -> None:
    assert options() == ServerOptions(host="0.0.0.0", port=4222, jetstream=False)


@pytest.mark.parametrize("spelling", [["-sd", "D"], ["-sd=D"], ["--store_dir", "D"], ["--store_dir=D"]])
def test_the_store_lives_in_the_jetstream_folder_of_the_named_one(spelling: list[str]) -> None:
    given = options("-js", *spelling)
    assert given.jetstream
    assert not options(*spelling).jetstream  # the folder alone asks for nothing
    assert given.store_path == Path("D/jetstream")


def test_the_command_lines_of_the_clients_suites() -> None:
    given = options("-p", "-1", "-js", "-sd=/tmp/x", "--user", "u", "--pass", "p", "-DV", "-n", "here", "-T=false")
    assert (given.port, given.user, given.password, given.server_name) == (-1, "u", "p", "here")
    assert (given.debug, given.trace, given.log_time) == (True, True, False)
    assert options("--auth", "t", "-net", "127.0.0.1").token == "t"
    assert [options("--sync", text).sync for text in ("always", "never", "2m")] == ["always", "never", 120_000_000_000]
    assert (options().archive_version, options("--archive_version", "1").archive_version) == (2, 1)
    assert options("-P", "pid", "--ports_file_dir", "d", "-l", "log").pid_file == Path("pid")


def test_tls_files() -> None:
    assert options("--tls", "--tlscert", "c", "--tlskey", "k").tls == TlsOptions(Path("c"), Path("k"))
    verified = options("--tlsverify", "--tlscert", "c", "--tlskey", "k", "--tlscacert", "ca").tls
    assert verified == TlsOptions(Path("c"), Path("k"), Path("ca"), verify=True)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--profile", "8222"], "--profile: natsctl server has no Go profiler"),
        (["-m", "8222", "-ms", "8223"], "can't specify both HTTP and HTTPs ports"),
        (["-m", "70000"], "-m: invalid port 70000"),
        (["--archive_version", "3"], "--archive_version: expected 1 or 2, got 3"),
        (["--cluster", "nats://0.0.0.0:6222"], "natsctl cluster run starts a cluster of nats-servers"),
        (["-routes=nats://h:6222"], "natsctl cluster run starts a cluster of nats-servers"),
        (["--nonsense"], "flag provided but not defined: -nonsense"), (["start"], "unrecognized command"),
        (["-p", "70000"], "invalid port 70000"), (["--sync", "sometimes"], "expected always, never or a duration"),
        (["--sync", "0s"], "expected always, never or a duration"),
        (["--auth", "t", "--user", "u", "--pass", "p"], "both a token"), (["--user", "u"], "--user needs --pass"),
        (["--pass", "p"], "--pass needs --user"), (["--tls"], "TLS needs --tlscert and --tlskey"),
        (["--tlscert", "c"], "--tlscert needs --tls"),
        (["--tlsverify", "--tlscert", "c", "--tlskey", "k"], "--tlsverify needs --tlscacert"),
        (["-n", "two words"], "cannot contain spaces"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_not_available_is_refused_by_name(argv: list[str], reason: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse_command_line(argv)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "action"),
    [(["-v"], "version"), (["--version"], "version"), (["version"], "version"), (["-h"], "help"), (["help"], "help")],
)
def test_version_and_help_are_asked_for(argv: list[str], action: str) -> None:
    assert parse_command_line(argv).action == action


def test_flags_win_over_the_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text('port: 4300\nhttp: 8300\nserver_name: of_file\njetstream { domain: d, store_dir: "/s" }\n')
    given = options("-c", str(file), "-p", "4301", "-m", "-1")
    assert (given.port, given.http_port, given.server_name) == (4301, -1, "of_file")
    assert (given.jetstream, given.domain, given.store_dir) == (True, "d", Path("/s"))


def test_a_user_on_the_command_line_replaces_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text("authorization { users: [ {user: a, password: b} ] }\nno_auth_user: a\n")
    given = options("-c", str(file), "--user", "u", "--pass", "p")
    assert (given.user, given.users, given.no_auth_user) == ("u", (), "")


SPECS = {
    "p": FlagSpec("port", "int"), "port": FlagSpec("port", "int"), "js": FlagSpec("jetstream", "bool"),
    "T": FlagSpec("log_time", "bool"), "sd": FlagSpec("store_dir", "text"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-x"], "flag provided but not defined: -x"),
        (["-p"], "flag needs an argument: -p"),
        (["-p", "4k"], 'invalid value "4k" for flag -p: parse error'),
        (["-js=maybe"], 'invalid boolean value "maybe" for -js: parse error'),
        (["---p", "1"], "bad flag syntax: ---p"),
        (["-=1"], "bad flag syntax: -=1"),
    ],
)
def test_what_cannot_be_understood_is_named(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse_flags(argv, SPECS)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("argv", "values", "rest"),
    [
        *((argv.split(), {"port": -1}, []) for argv in ("-p -1", "--p -1", "-p=-1", "--port=-1", "-p 4222 -port -1")),
        (["-js", "-T=false", "true"], {"jetstream": True, "log_time": False}, ["true"]),
        (["-sd", "-js"], {"store_dir": "-js"}, []),
        (["-sd=a=b"], {"store_dir": "a=b"}, []),
        (["-js", "--", "-p", "1"], {"jetstream": True}, ["-p", "1"]),
        (["-js", "x", "-p", "1"], {"jetstream": True}, ["x", "-p", "1"]),
    ],
)
def test_flags_are_read_as_go_reads_them(argv: list[str], values: dict[str, object], rest: list[str]) -> None:
    given = parse_flags(argv, SPECS)
    assert (given.values, given.rest) == (values, rest)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: found.append((pid, number)))
    monkeypatch.setattr(process, "_running", lambda: iter((120, 121, 999)))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reload=5", [(5, signal.SIGHUP)]), ("stop=5", [(5, signal.SIGKILL)]), ("quit=5", [(5, signal.SIGINT)]),
        ("term=5", [(5, signal.SIGTERM)]), ("reopen=5", [(5, signal.SIGUSR1)]), ("ldm=5", [(5, signal.SIGUSR2)]),
        ("ldm=12*", [(120, signal.SIGUSR2), (121, signal.SIGUSR2)]),
        ("reload=*", [(120, signal.SIGHUP), (121, signal.SIGHUP), (999, signal.SIGHUP)]),
    ],
)  # fmt: skip
def test_each_command_is_a_signal(sent: list[tuple[int, int]], text: str, expected: list[tuple[int, int]]) -> None:
    process.send_signal(text)
    assert sent == expected


def test_a_pid_file_names_the_process(sent: list[tuple[int, int]], tmp_path: Path) -> None:
    (tmp_path / "pid").write_text("77\n")
    process.send_signal(f"reload={tmp_path / 'pid'}")
    assert sent == [(77, signal.SIGHUP)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("wake=5", 'unknown signal "wake"'),
        ("reload=/no/such/file", "invalid pid: /no/such/file"),
        ("reload=7*", "no natsctl server processes running"),
        ("reload", "multiple natsctl server processes running:\n120\n121\n999"),
    ],
)
def test_what_can_not_be_told_is_an_error(sent: list[tuple[int, int]], text: str, reason: str) -> None:
    with pytest.raises(FlagError) as caught:
        process.send_signal(text)
    assert str(caught.value) == reason
    assert sent == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("/venv/bin/python /venv/bin/natsctl server run -js", True), ("natsctl server run", True),
        ("python -m natsctl.server -p 4222", True), ("natsctl server run --signal reload", False),
        ("natsctl stream ls", False), ("vim natsctl", False), ("nats-server -js", False),
    ],
)  # fmt: skip
def test_servers_are_known_by_their_command_line(line: str, found: bool) -> None:
    assert process.is_server([word.encode() for word in line.split(" ")]) is found


@pytest.mark.parametrize(
    ("duration_s", "clients", "pause_s", "batch"),
    [(110.0, 10, 1.0, 1), (110.0, 1100, 0.1, 1), (110.0, 0, 1.0, 1), (0.0, 4, 0.25, 1), (1.0, 10_000, 0.001, 10)],
)
def test_clients_are_spread_over_the_duration(duration_s: float, clients: int, pause_s: float, batch: int) -> None:
    assert pause_and_batch(duration_s, clients) == (pytest.approx(pause_s), batch)
