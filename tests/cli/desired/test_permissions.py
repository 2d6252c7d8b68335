"""Documents by who may do only a part: what is not needed for their own streams is not asked of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import NatsctlError
from natsctl.cli.main import run as run_main
from natsctl.desired.apply.replacement import Replacement
from natsctl.testing.process import Kind, ServerProcess
from tests.support.permission_table.document import REPLACING

CONFIGS = Path(__file__).parents[3] / "examples" / "configs"
ORDERS = str(CONFIGS / "orders.yaml")
PASSWORDS = {
    "admin": "change-me-0",
    "orders-admin": "change-me-1",
    "viewer": "change-me-2",
    "shop": "change-me-3",
    "replacer": "x",
}
KINDS = ["natsctl", "reference"]
As = Callable[..., tuple[int, str, str]]


REPLACER = (
    f'{{ user: replacer, password: x, permissions: {{ publish: {json.dumps([*REPLACING])}, subscribe: "_INBOX.>" }} }}'
)


@pytest.fixture(params=KINDS)
def by(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[As]:
    """Runs a command as a user of the example of permissions, or one who may replace ORDERS."""
    kind: Kind = request.param
    config = tmp_path / "nats.conf"
    text = (CONFIGS / "permissions.conf").read_text().replace("store_dir: /data/jetstream,", "")
    config.write_text(text.replace("users: [", f"users: [ {REPLACER}", 1))
    with ServerProcess(tmp_path / "server", kind, "-c", str(config)) as server:

        def run(user: str, *words: str) -> tuple[int, str, str]:
            capsys.readouterr()
            code = run_main(["-s", server.url, "--user", user, "--password", PASSWORDS[user], *words])
            return (code, *capsys.readouterr())

        yield run


def test_each_does_what_it_may(by: As) -> None:
    assert by("viewer", "plan", "-f", ORDERS)[0] == 10
    refused = by("viewer", "apply", "-f", ORDERS)
    assert (refused[0], "$JS.API.STREAM.CREATE.ORDERS" in refused[2]) == (6, True)
    made = by("orders-admin", "apply", "-f", ORDERS)
    assert made[0] == 0, made[2]
    assert by("orders-admin", "plan", "-f", ORDERS)[0] == 0
    code, exported, told = by("viewer", "export")
    assert (code, "name: DISPATCH" in exported) == (0, True), told
    assert by("viewer", "plan", "-f", ORDERS, "--prune")[0] == 0
    assert by("shop", "plan", "-f", ORDERS)[0] == 6
    assert by("orders-admin", "destroy", "-f", ORDERS, "--yes")[0] == 0


def test_who_may_replace_a_stream_needs_what_the_page_says(
    by: As, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "set.json"
    words = ("apply", "-f", str(path), "--allow-replace", "--keep-messages", "--yes")

    def wanted(storage: str) -> None:
        consumers = {"C": {"ack_policy": "explicit"}}
        stream = {"subjects": ["ORDERS.>"], "storage": storage, "consumers": consumers}
        path.write_text(json.dumps({"owner": "test", "streams": {"ORDERS": stream}}))

    async def fails(*arguments: Any) -> None:
        raise NatsctlError("out of order")

    async def nothing(*arguments: Any) -> None:
        """Leave all as it is, as a process does that is killed."""

    wanted("file")
    assert by("admin", "apply", "-f", str(path))[0] == 0
    assert by("admin", "pub", "ORDERS.new", "{{Random 9000 9000}}", "--count", "40", "--jetstream")[0] == 0
    wanted("memory")
    done = by("replacer", *words)
    assert done[0] == 0, done[2]
    wanted("file")
    with monkeypatch.context() as patched:
        patched.setattr(Replacement, "_take_back", nothing)
        patched.setattr("natsctl.desired.apply.replacement.finish", fails)
        assert by("replacer", *words)[0] == 1
    finished = by("replacer", *words)
    assert (finished[0], "finished with 40 messages" in finished[2]) == (0, True), finished
