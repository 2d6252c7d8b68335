from pathlib import Path

import pytest

from natsctl.server.options import ServerOptions, TlsOptions
from natsctl.server.process.flags import USAGE, FlagError, parse_command_line


def options(*argv: str) -> ServerOptions:
    command_line = parse_command_line(argv)
    assert command_line.action == "run"
    return command_line.options


def test_without_flags_the_server_listens_where_nats_servers_do_without_jetstream() -> None:
    assert options() == ServerOptions(host="0.0.0.0", port=4222, jetstream=False)


@pytest.mark.parametrize("flag", ["-a", "--addr", "-net", "--net"])
def test_every_spelling_of_the_address(flag: str) -> None:
    assert options(flag, "127.0.0.1").host == "127.0.0.1"


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
    assert options("--auth", "t").token == "t"
    assert options("-P", "pid", "--ports_file_dir", "d", "-l", "log").pid_file == Path("pid")


@pytest.mark.parametrize(
    ("text", "policy"), [("always", "always"), ("never", "never"), ("1s", 1_000_000_000), ("2m", 120_000_000_000)]
)
def test_sync_policies(text: str, policy: str | int) -> None:
    assert options("--sync", text).sync == policy


def test_the_format_of_snapshots() -> None:
    assert options().archive_version == 2
    assert options("--archive_version", "1").archive_version == 1


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
        (["--nonsense"], "flag provided but not defined: -nonsense"),
        (["start"], "unrecognized command"),
        (["-p", "70000"], "invalid port 70000"),
        (["--sync", "sometimes"], "expected always, never or a duration"),
        (["--sync", "0s"], "expected always, never or a duration"),
        (["--auth", "t", "--user", "u", "--pass", "p"], "both a token"),
        (["--user", "u"], "--user needs --pass"),
        (["--pass", "p"], "--pass needs --user"),
        (["--tls"], "TLS needs --tlscert and --tlskey"),
        (["--tlscert", "c"], "--tlscert needs --tls"),
        (["--tlsverify", "--tlscert", "c", "--tlskey", "k"], "--tlsverify needs --tlscacert"),
        (["-n", "two words"], "cannot contain spaces"),
    ],
)
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


def test_the_help_names_every_supported_setting() -> None:
    for flag in ("--addr", "--port", "--server_name", "--store_dir", "--sync", "--log", "--auth", "--pid"):
        assert flag in USAGE


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


def test_a_configuration_file_can_be_checked_alone(tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text("port: 4300\n")
    assert parse_command_line(["-t", "-c", str(file)]).action == "check"
