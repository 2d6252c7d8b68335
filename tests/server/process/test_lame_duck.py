import pytest

from natsctl.server.process.process import pause_and_batch


@pytest.mark.parametrize(
    ("duration_s", "clients", "pause_s", "batch"),
    [(110.0, 10, 1.0, 1), (110.0, 1100, 0.1, 1), (110.0, 0, 1.0, 1), (0.0, 4, 0.25, 1), (1.0, 10_000, 0.001, 10)],
)
def test_clients_are_spread_over_the_duration(duration_s: float, clients: int, pause_s: float, batch: int) -> None:
    assert pause_and_batch(duration_s, clients) == (pytest.approx(pause_s), batch)
