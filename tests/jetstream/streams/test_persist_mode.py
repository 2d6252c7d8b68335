"""persist_mode async: acks do not wait for the sync, which follows within a second."""

from tests.support.jet import Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import DiskFault, SimDisk


def syncs(jet: Jet, seconds: float = 0) -> int:
    """Publish, see the ack, let time pass, and return how many files of messages were synced meanwhile."""
    synced: list[str] = []

    def watch(call: str, path: str) -> DiskFault | None:
        if call == "sync" and path.endswith(".seg"):
            synced.append(path)
        return None

    jet.machine.disk.plan = watch
    assert jet.wire.request("s.a", b"x")["stream"] == "S"
    jet.advance(seconds)
    return len(synced)


def last_seq(machine: Machine) -> int:
    info = ok(Jet(machine).api("STREAM.INFO.S"))
    return int(info["state"]["last_seq"])


def test_an_ack_comes_before_the_sync_and_the_sync_within_a_second() -> None:
    jet = Jet()
    jet.stream(persist_mode="async")
    jet.publish("first")
    assert syncs(jet) == 0
    assert syncs(jet, seconds=1.5) == 1


def test_without_it_an_ack_waits_for_the_sync() -> None:
    jet = Jet()
    jet.stream()
    jet.publish("first")
    assert syncs(jet) == 1


def test_what_was_acknowledged_outlives_the_process() -> None:
    jet = Jet()
    jet.stream(persist_mode="async")
    jet.publish(*"abc")
    assert last_seq(jet.machine.restarted()) == 3


def test_a_second_after_the_ack_it_outlives_the_machine() -> None:
    jet = Jet()
    jet.stream(persist_mode="async")
    jet.publish(*"abc")
    jet.advance(1.5)
    assert last_seq(jet.machine.restarted(SimDisk.power_loss)) == 3
