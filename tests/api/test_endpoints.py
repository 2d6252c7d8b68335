"""The table of API verbs: subjects are built and routed by it."""

import pytest

from natsctl.api import endpoints
from natsctl.api.endpoints import ENDPOINTS, find
from natsctl.api.errors import UsageError


@pytest.mark.parametrize("endpoint", ENDPOINTS.values(), ids=lambda e: e.name)
def test_a_subject_built_for_a_verb_routes_to_it(endpoint: endpoints.ApiEndpoint) -> None:
    names = [f"N{index}" for index in range(len(endpoint.args))]
    assert find(endpoint.subject(*names)) == (endpoint, names)
    if endpoint.tail:
        assert find(endpoint.subject(*names, "a.b.>")) == (endpoint, [*names, "a", "b", ">"])
    if endpoint.args:
        with pytest.raises(UsageError):
            endpoint.subject("a.b", *names[1:])
        with pytest.raises(UsageError):
            endpoint.subject(*names, "x", "y")


def test_every_verb_of_the_reference_is_there() -> None:
    own = {"STREAM.BLOCKS"}
    assert len(ENDPOINTS.keys() - own) == 35
    assert {e.name for e in ENDPOINTS.values() if e.cluster} == {
        "STREAM.LEADER.STEPDOWN",
        "STREAM.PEER.REMOVE",
        "STREAM.PEER.EVACUATE",
        "STREAM.CANCEL_MOVE",
        "CONSUMER.LEADER.STEPDOWN",
        "CONSUMER.PEER.REMOVE",
        "CONSUMER.PEER.EVACUATE",
    }


@pytest.mark.parametrize(
    ("subject", "name", "tokens"),
    [
        ("$JS.API.INFO", "INFO", []),
        ("$JS.API.CONSUMER.CREATE.S", "CONSUMER.CREATE", ["S"]),
        ("$JS.API.CONSUMER.CREATE.S.C.a.b", "CONSUMER.CREATE", ["S", "C", "a", "b"]),
        ("$JS.API.CONSUMER.DURABLE.CREATE.S.C", "CONSUMER.DURABLE.CREATE", ["S", "C"]),
        ("$JS.hub.API.STREAM.NAMES", "STREAM.NAMES", []),
        ("$JS.API.API.STREAM.NAMES", None, []),
        ("$JS.NEXT.S.C", "CONSUMER.MSG.NEXT", ["S", "C"]),
        ("$JS.API.STREAM.INFO.API", "STREAM.INFO", ["API"]),
    ],
)
def test_a_request_subject_is_routed(subject: str, name: str | None, tokens: list[str]) -> None:
    found = find(subject)
    assert (found and (found[0].name, found[1])) == (name and (name, tokens))


NO_VERBS = (
    "", "$JS", "$JS.API", "$JS.API.", "$JS.API.STREAM", "$JS.API.STREAM.INFO", "$JS.API.STREAM.INFO.S.x",
    "$JS.API.STREAM.INFO..", "$JS.API.STREAM.NAMES.S", "$JS.API.UNKNOWN.S", "$JS.NEXT.S", "ORDERS.new",
    "$SYS.API.INFO",
)  # fmt: skip


@pytest.mark.parametrize("subject", NO_VERBS)
def test_what_is_no_verb_is_not_routed(subject: str) -> None:
    assert find(subject) is None


def test_a_pattern_shows_what_a_permission_needs() -> None:
    assert endpoints.STREAM_INFO.pattern == "$JS.API.STREAM.INFO.*"
    assert endpoints.DIRECT_GET.pattern == "$JS.API.DIRECT.GET.*.>"
    assert endpoints.STREAM_NAMES.pattern == "$JS.API.STREAM.NAMES"


def test_a_domain_prefix_is_put_in_front() -> None:
    assert endpoints.STREAM_INFO.subject("S", prefix="$JS.hub.API") == "$JS.hub.API.STREAM.INFO.S"
