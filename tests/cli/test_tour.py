"""`natsctl tour` runs the whole ORDERS scenario, and fails when a step does."""

import json
import os
import re
from pathlib import Path

import pytest

from natsctl.cli.main import run as run_main
from natsctl.testing.process import ServerProcess
from tests.support.commands import Run


@pytest.mark.cpu(30)
@pytest.mark.timeout(300)
def test_the_tour_ends_well_on_the_embedded_server_and_keeps_its_store(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run_main(["tour", "--keep", str(tmp_path / "kept")])  # in this process, whose commands start at once
    out, err = capfd.readouterr()
    assert code == 0, out + err
    assert "The tour is finished" in err
    assert "[step 1 of 84]" in out
    assert re.search(r"\[step 84 of 84, about \d+ s left\]", out)
    assert '$ natsctl str add ORDERS --subjects "ORDERS.*"' in out
    assert json.loads((tmp_path / "kept" / "orders.json").read_text())["config"]["name"] == "ORDERS"
    assert list((tmp_path / "kept" / "store").rglob("*.seg"))


@pytest.mark.timeout(300)
@pytest.mark.reference
def test_the_tour_ends_well_on_the_reference(server: ServerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    code = run_main(["tour", "-s", server.url])  # in this process, whose commands start at once
    out, err = capfd.readouterr()
    assert code == 0, out + err


@pytest.mark.ours("the tour's own steps")
def test_a_failing_step_fails_the_tour(natsctl: Run) -> None:
    assert natsctl("str", "add", "ORDERS", "--subjects", "OTHER.*").code == 0
    done = natsctl("tour", "-s", os.environ["NATS_URL"])
    assert (done.code, "exit status 4" in done.err) == (1, True)
