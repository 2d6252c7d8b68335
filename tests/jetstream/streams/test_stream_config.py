"""Creating, changing and listing streams."""

from typing import Any

from tests.support.jet import Jet, ok


def create(jet: Jet, **config: Any) -> Any:
    return jet.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config})


def update(jet: Jet, **config: Any) -> Any:
    return jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **config})


def test_no_answer_to_a_create_before_it_is_durable(jet: Jet) -> None:
    sid = jet.wire.subscribe("inbox")
    jet.machine.hold_commits = True
    jet.wire.publish("$JS.API.STREAM.CREATE.S", b'{"name":"S"}', "inbox")
    assert jet.wire.take(sid) == []
    jet.machine.release_commits()
    assert len(jet.wire.take(sid)) == 1


# Update


def test_an_update_survives_a_restart(jet: Jet) -> None:
    ok(create(jet))
    changed = ok(update(jet, description="changed", max_msgs=7))
    again = Jet(jet.machine.restarted())
    info = again.api("STREAM.INFO.S")
    assert (info["config"], info["created"]) == (changed["config"], changed["created"])


# Looking


def test_lists_come_in_pages(jet: Jet) -> None:
    for number in range(260):
        jet.stream(f"N{number:03d}", f"n.{number}", storage="memory")
    first, second = jet.api("STREAM.LIST"), jet.api("STREAM.LIST", {"offset": 256})
    assert (first["total"], first["limit"], len(first["streams"])) == (260, 256, 256)
    assert [s["config"]["name"] for s in second["streams"]] == ["N256", "N257", "N258", "N259"]


def test_only_info_names_the_leader(jet: Jet) -> None:
    created = ok(create(jet))
    assert jet.api("STREAM.INFO.S")["cluster"] == {"leader": jet.machine.broker.server_name}
    assert "cluster" not in created
    assert "cluster" not in jet.api("STREAM.LIST")["streams"][0]
