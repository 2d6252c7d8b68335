"""kill -9 on the real server; the long form is `python -m tests.support.kill_loop --kills 100`, and with `--flows`."""

from pathlib import Path

import pytest

from bench import full_disk
from tests.support.kill_loop import FlowLoop, KillLoop


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kills", "key"),
    [
        pytest.param(2, "", id="plain"),
        pytest.param(5, "", id="plain-often", marks=pytest.mark.live),
        pytest.param(5, "key: secret", id="encrypted", marks=pytest.mark.live),
    ],
)
async def test_nothing_acknowledged_is_lost_altered_or_reordered_by_kills(tmp_path: Path, kills: int, key: str) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(f"jetstream {{ {key} }}\n")
    summary = await KillLoop(tmp_path, kills, 20200120, "-c", str(config)).run()
    assert summary.broken == 0, summary.render()
    assert summary["kills"] == kills
    assert summary["acked"] > 100 * kills
    assert summary["double_acked"] > 20 * kills
    assert summary["stored"] >= summary["acked"]


@pytest.mark.live
@pytest.mark.timeout(600)
async def test_mirrors_sources_queues_and_interest_lose_and_double_nothing(tmp_path: Path) -> None:
    summary = await FlowLoop(tmp_path, kills=3, seed=20261121).run()
    assert summary.broken == 0, summary.render()
    assert min(summary["mirrored"], summary["sourced"], summary["worked"]) > 300, summary.render()


@pytest.mark.live
@pytest.mark.timeout(600)
@pytest.mark.parametrize("key", ["", "key: secret"], ids=["plain", "encrypted"])
def test_a_full_disk_breaks_no_promise_and_service_resumes(key: str) -> None:
    counts, wrong = full_disk.soak("tmpfs", key, 3, 20261128)
    if not counts and not wrong:
        pytest.skip("no file system can be mounted here")
    assert (wrong, counts["cycles"], counts["kills"], counts["stops"]) == ([], 3, 1, 1)
