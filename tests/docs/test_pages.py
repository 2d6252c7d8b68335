"""How-to pages are run: their commands, the files that they show, and what is printed."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from natsctl.cli.main import run as run_main
from natsctl.server.conf import config
from natsctl.server.conf.syntax import load_text
from natsctl.server.instance import ServerThread
from natsctl.server.options import ServerOptions
from natsctl.testing.jetstream import JetStreamServer
from natsctl.testing.process import Kind, ServerProcess
from tests.support.servers import quiet_ports

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
STATUS = re.compile(r"# exit status (\d+)$")


class Block(NamedTuple):
    """A fenced block: its language, the file that its title names, and its text."""

    language: str
    name: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*match) for match in BLOCK.findall(page.read_text(encoding="utf-8"))]


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def assert_shown(expected: str, printed: str, after: str) -> None:
    """Check that the lines of `expected`, in which `…` stands for anything, were printed in that order."""
    lines = iter(squeezed(printed))
    for line in squeezed(expected):
        pattern = ".*".join(re.escape(part) for part in line.split("…"))
        assert any(re.fullmatch(pattern, found) for found in lines), f"{line!r} is missing after {after}:\n{printed}"


def follow(found: Iterable[Block], folder: Path, run: Callable[[str], str | None]) -> list[str]:
    """Do what blocks of a page say in a folder, and return the lines of which `run` gives what they printed."""
    done: list[str] = []
    printed = ""
    for block in found:
        if block.name and (ROOT / block.name).exists():
            continue  # a part of the clone, which is quoted
        if block.name and block.language == "text":
            assert_shown(block.text, (folder / block.name).read_text(), block.name)
        elif block.name:
            (folder / block.name).parent.mkdir(exist_ok=True)
            (folder / block.name).write_text(block.text)
        elif block.language == "text" and done:
            assert_shown(block.text, printed, done[-1])
        elif block.language in ("console", "sh"):
            texts = [(line, run(line)) for line in block.text.replace("\\\n", " ").splitlines()]
            printed = "".join(text or "" for _, text in texts)
            done += [line for line, text in texts if text is not None]
    return done


def run_line(line: str, capsys: pytest.CaptureFixture[str], servers: Mapping[str, str]) -> str:
    """Run one command and return all that it printed; its exit status is 0, or that of its comment."""
    status = STATUS.search(line)
    words = shlex.split(line, comments=True)[1:]
    capsys.readouterr()
    ended = run_main([servers.get(word, word) for word in words])
    out, err = capsys.readouterr()
    assert ended == (int(status[1]) if status else 0), f"{line}\n{out}{err}"
    return out + err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JetStreamServer]:
    with JetStreamServer() as running:
        monkeypatch.setenv("NATS_URL", running.url)
        yield running


@pytest.mark.docs
def test_a_deployment_is_audited_as_the_page_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accounts = "SYS { users: [{ user: s, password: p }] }, ORDERS { jetstream: on, users: [{ user: o, password: p }] }"
    text = f"accounts {{ {accounts} }}, system_account: SYS, jetstream {{ store_dir: '{folder / 'store'}' }}"
    with ServerThread(config.apply(load_text(text, {}), ServerOptions(host="127.0.0.1", port=-1, sync="never"))) as one:
        login = one.url.replace("nats://", "nats://o:p@")
        run_line(f"natsctl -s {login} stream add ORDERS --subjects ORDERS.* --defaults", capsys, {})
        system = one.url.replace("nats://", "nats://s:p@")
        run_line(f"natsctl context add system -s {system}", capsys, {})
        page = DOCS / "how-to" / "audit-a-deployment.md"
        ours = lines_of(page)
        done = follow(blocks(page), folder, lambda line: run_line(line, capsys, {}) if line in ours else None)
        assert len(done) == 13


@pytest.mark.docs
@pytest.mark.parametrize("kind", ["natsctl", "reference"])
def test_operators_and_users_are_made_as_the_page_says(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: Kind
) -> None:
    page = DOCS / "how-to" / "operators-and-users.md"
    lines = lines_of(page)
    (conf,) = [block for block in blocks(page) if block.name]
    Path(conf.name).write_text(conf.text.replace("ACME.jwt", "home/nats/nsc/stores/ACME/ACME.jwt"))
    start = next(at for at, line in enumerate(lines) if line.startswith("natsctl server run"))
    for line in lines[:start]:
        run_line(line, capsys, {})
    with ServerProcess(folder / "store", kind, "-c", conf.name) as one:
        for line in lines[start + 1 :]:
            run_line(line, capsys, {"nats://localhost:4222": one.url})
    assert len(lines) == 26


@pytest.mark.docs
def test_a_service_decides_about_logins_as_the_page_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = ROOT / "examples"
    text = (examples / "configs" / "auth-callout.conf").read_text()
    (folder / "auth-callout.conf").write_text(text.replace("store_dir: /data/jetstream, ", ""))
    lines = lines_of(DOCS / "how-to" / "auth-callout.md")
    with ServerProcess(folder / "server", "natsctl", "-c", "auth-callout.conf") as server:
        program, seed = examples / "auth-callout" / "service.py", examples / "configs" / "auth-callout-issuer.seed"
        service = subprocess.Popen([sys.executable, program, server.url, seed], stdout=subprocess.PIPE, text=True)
        try:
            assert service.stdout is not None and service.stdout.readline() == "ready\n"
            at = server.url.removeprefix("nats://")
            logins = (f"nats://alice:{password}@" for password in ("wonderland", "wrong"))
            servers = {f"{login}127.0.0.1:4222": f"{login}{at}" for login in logins}
            for line in lines[1:]:
                run_line(line, capsys, servers)
        finally:
            service.kill()
            service.communicate()
    assert len(lines) == 3


@pytest.mark.docs
@pytest.mark.parametrize(("kept", "number"), [(r"^(?!.*(mirror|--deliver|migrate))", 7), ("migrate", 4)])
def test_streams_move_and_migrate_as_the_page_says(
    folder: Path, capsys: pytest.CaptureFixture[str], kept: str, number: int
) -> None:
    with JetStreamServer() as old, JetStreamServer() as new, JetStreamServer() as test:
        servers = {"nats://old:4222": old.url, "nats://new:4222": new.url, "nats://test:4222": test.url}
        _make_orders(servers, capsys, "-s nats://old:4222")
        lines = [line for line in lines_of(DOCS / "how-to" / "move-streams.md") if re.search(kept, line)]
        printed = [run_line(line, capsys, servers).replace("\n", " ") for line in lines]
        assert len(lines) == number
        if kept == "migrate":
            assert f"1 stream with 3 messages moved to {new.url}" in printed[2]
            assert f"1 stream with 3 messages made at {test.url}" in printed[3]


@pytest.mark.docs
def test_a_stream_moves_by_a_mirror_as_the_page_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = quiet_ports(1)
    hub = f"leafnodes {{ listen: '127.0.0.1:{port}' }}"
    spoke = f"leafnodes {{ remotes: [{{ url: 'nats-leaf://127.0.0.1:{port}' }}] }}"
    with _domain("old", hub, folder) as old, _domain("new", spoke, folder) as new:
        servers = {"nats://old:4222": old.url, "nats://new:4222": new.url}
        _make_orders(servers, capsys, "-s nats://old:4222")
        lines = [line for line in lines_of(DOCS / "how-to" / "move-streams.md") if "migrate" not in line]
        create, look, promote, consume = lines[4:8]
        run_line(create, capsys, servers)
        deadline = time.monotonic() + 60
        while "Messages: 3" not in " ".join((shown := run_line(look, capsys, servers)).split()):
            assert time.monotonic() < deadline, shown
        run_line(promote, capsys, servers)
        run_line(consume, capsys, servers)
        delivered = run_line("natsctl -s nats://new:4222 consumer next ORDERS NEW", capsys, servers)
    assert "order 2" in delivered


def lines_of(page: Path) -> list[str]:
    text = "".join(block.text for block in blocks(page) if block.language == "console")
    return [line for line in text.splitlines() if line.startswith("natsctl ")]


def _domain(name: str, leafnodes: str, folder: Path) -> ServerThread:
    text = f"server_name: {name}\njetstream {{ domain: {name}, store_dir: '{folder / name}' }}\n{leafnodes}\n"
    return ServerThread(config.apply(load_text(text, {}), ServerOptions(host="127.0.0.1", port=-1, sync="never")))


def _make_orders(servers: Mapping[str, str], capsys: pytest.CaptureFixture[str], flags: str = "") -> None:
    for line in (
        f"natsctl {flags} stream add ORDERS --subjects ORDERS.* --defaults",
        f"natsctl {flags} publish ORDERS.new 'order {{{{Count}}}}' --templates --count 3",
    ):
        run_line(line, capsys, servers)


@pytest.mark.docs
def test_the_programs_of_the_python_api_work(here: JetStreamServer, capsys: pytest.CaptureFixture[str]) -> None:
    programs = [block.text for block in blocks(DOCS / "python-api.md") if block.language == "python"]
    assert len(programs) == 1
    for text in programs:
        exec(compile(text, "python-api.md", "exec"), {})
    assert capsys.readouterr().out == "1 1 ['ORDERS.*']\n"


def test_what_a_page_quotes_of_a_file_is_in_the_file() -> None:
    quoted = [
        (page.name, block)
        for page in DOCS.rglob("*.md")
        for block in blocks(page)
        if block.name and (ROOT / block.name).exists()
    ]
    assert len(quoted) >= 8
    assert [page for page, block in quoted if block.text not in (ROOT / block.name).read_text()] == []


def test_each_fenced_block_begins_as_the_site_can_read() -> None:
    """Another attribute than `title` makes the site print the block, and all up to the next one, as running text."""
    begins = [
        (page.name, line) for page in DOCS.rglob("*.md") for line in re.findall(r"^```(.+)$", page.read_text(), re.M)
    ]
    assert [(page, line) for page, line in begins if not re.fullmatch(r'\w+(?: title="[^"]+")?', line)] == []
