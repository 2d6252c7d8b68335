"""`natsctl service` as a script runs it, against the service that it can run itself."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager

import pytest

from natsctl.client.requests import end_tasks
from natsctl.client.services import EchoService
from natsctl.testing.process import ServerProcess
from tests.client.conftest import beside
from tests.support.commands import Run
from tests.support.servers import managing

pytestmark = pytest.mark.ours("services are clients")


@contextlib.asynccontextmanager
async def listening(url: str, services: Sequence[EchoService]) -> AsyncIterator[None]:
    async with managing(url) as manager:
        ready = [asyncio.Event() for _ in services]
        runs = (
            one.run(manager.connection, event.set, lambda message: None)
            for one, event in zip(services, ready, strict=True)
        )
        tasks = [asyncio.create_task(run) for run in runs]
        try:
            await asyncio.gather(*(event.wait() for event in ready))
            yield
        finally:
            await end_tasks(tasks)


def running(url: str, *services: EchoService) -> AbstractContextManager[None]:
    """The services, on a connection and a thread of their own."""
    return beside(listening(url, services))


@pytest.fixture
def echo(natsctl: Run, shared_server: ServerProcess) -> Iterator[EchoService]:
    service = EchoService("demo", (("Kind", "echo"),))
    with running(shared_server.url, service):
        yield service


@pytest.mark.both
def test_services_are_listed_as_they_describe_themselves(natsctl: Run, echo: EchoService) -> None:
    (found,) = natsctl("service", "ls", "-j").json
    assert (found["name"], found["id"], found["type"]) == ("demo", echo.info.id, "io.nats.micro.v1.info_response")
    assert found["endpoints"][0]["subject"] == "demo.echo"
    assert natsctl("micro", "ls", "-n").out == "demo\n"
    assert natsctl("service", "list", "demo", "-n", "-j").json == ["demo"]
    assert echo.info.id in natsctl("service", "ls").out


def test_every_instance_of_a_service_is_told_apart(natsctl: Run, shared_server: ServerProcess) -> None:
    one, two = EchoService("demo"), EchoService("demo")
    with running(shared_server.url, one, two):
        document = natsctl("service", "info", "demo", "-j").json
        found = document["instances"]
        assert {"info": document["info"], "stats": document["stats"]} == found[0]
        assert [instance["info"]["id"] for instance in found] == sorted((one.info.id, two.info.id))
        assert [instance["stats"]["id"] for instance in found] == sorted((one.info.id, two.info.id))
        (alone,) = natsctl("service", "info", "demo", two.info.id, "-j").json["instances"]
        assert alone["info"]["id"] == two.info.id
        assert natsctl("service", "ls", "-n").out == "demo\n"
        assert len(natsctl("service", "ping", "demo", "-j").json) == 2


def test_information_is_of_the_endpoints_that_match(natsctl: Run, echo: EchoService) -> None:
    shown = natsctl("service", "info", "demo")
    assert "Subject: demo.echo" in shown.out
    assert "Endpoint echo:" in natsctl("service", "info", "demo", "-e", "^ec").out
    assert "Endpoint echo:" not in natsctl("service", "info", "demo", "-e", "other").out
    assert natsctl("service", "info", "demo", "-e", "other", "-j").json["stats"]["endpoints"] == []
    assert natsctl("service", "info", "demo", "-e", "(").code == 2


@pytest.mark.both
def test_a_request_reaches_the_endpoint_and_is_counted(natsctl: Run, echo: EchoService) -> None:
    done = natsctl("service", "request", "demo", "echo", "hello", "-j")
    assert done.code == 0, done.err
    assert (done.json["text"], done.json["headers"]) == ("hello", {"Kind": ["echo"]})
    assert done.json["rtt"] > 0
    assert natsctl("service", "req", "demo", "echo", "-r", stdin=b"from stdin").out == "from stdin\n\n\n"
    many = natsctl("service", "req", "demo", "echo", "{{Count}}", "--count", "3", "-j")
    assert [one["text"] for one in many.lines] == ["1", "2", "3"]
    (stats,) = natsctl("service", "stats", "demo", "-j").json
    assert stats["endpoints"][0]["num_requests"] == 5
    assert stats["endpoints"][0]["average_processing_time"] > 0
    row = next(line for line in natsctl("service", "stats", "demo").out.splitlines() if "echo" in line)
    assert row.split("│")[3].strip() == "5"


def test_an_endpoint_that_is_not_there_is_not_found(natsctl: Run, echo: EchoService) -> None:
    done = natsctl("service", "request", "demo", "ecko", "x", "-j")
    assert (done.code, done.out) == (3, "")
    assert "echo" in done.error["hint"]


@pytest.mark.both
@pytest.mark.parametrize(
    "words", [("ls",), ("ping",), ("info", "demo"), ("stats", "demo"), ("request", "demo", "echo", "x")], ids=" ".join
)
def test_nobody_who_answers_is_told_at_once(natsctl: Run, words: tuple[str, ...]) -> None:
    done = natsctl("service", *words, "-j")
    assert (done.code, done.out) == (5, "")
    assert done.error["hint"]
    assert done.error["subject"].startswith("$SRV.")


def test_a_dry_run_shows_where_a_request_would_go(natsctl: Run, echo: EchoService) -> None:
    done = natsctl("service", "request", "demo", "echo", "hello", "--dry-run", "-j")
    assert done.json["requests"][0]["subject"] == "demo.echo"
    assert natsctl("service", "stats", "demo", "-j").json[0]["endpoints"][0]["num_requests"] == 0


def test_serving_ends_with_ctrl_c_and_tells_what_it_has_answered(natsctl: Run, begun: Run) -> None:
    process = begun("service", "serve", "mine")
    assert "serving mine" in process.stderr.readline()
    assert natsctl("service", "request", "mine", "echo", "abc", "-r").out == "abc\n\n\n"
    assert 'Request of 3 bytes on "mine.echo"' in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert natsctl("service", "ls").code == 5
