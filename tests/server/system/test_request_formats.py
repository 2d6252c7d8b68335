"""Bodies of requests: what they say, and the reference's texts for what does not read."""

from __future__ import annotations

import random

import pytest

from natsctl.api.strict import DecodeError
from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.server.monitor.connz import ConnzOptions
from natsctl.server.monitor.healthz import HealthzOptions
from natsctl.server.monitor.jsz import JszOptions
from natsctl.server.system_answers import RequestFormat, ServerFilter
from natsctl.testing.clock import VirtualClock

CONNZ = RequestFormat("ConnzEventOptions", "ConnzOptions", ConnzOptions)
JSZ = RequestFormat("JszEventOptions", "JSzOptions", JszOptions)
VARZ = RequestFormat("VarzEventOptions")


@pytest.fixture
def broker() -> Broker:
    options = BrokerOptions(server_name="nats-one", host="10.0.0.1", domain="hub", tags=["az:1", "fast"])
    return Broker(VirtualClock(), random.Random(1), options)


def test_options_and_filter_are_read_from_one_object_whatever_the_case_of_its_keys() -> None:
    wanted, options = CONNZ.read(b'{"LIMIT": 5, "state": 1, "acc": "A", "Server_Name": "n", "tags": ["x"], "new": []}')
    assert (options.limit, options.state, options.acc) == (5, 1, "A")
    assert (wanted.server_name, wanted.tags) == ("n", ["x"])


def test_keys_with_dashes_are_read() -> None:
    _, options = RequestFormat("HealthzEventOptions", "HealthzOptions", HealthzOptions).read(
        b'{"js-enabled-only": true}'
    )
    assert options.js_enabled_only


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"limit": null}'])
def test_what_says_nothing_asks_for_nothing(body: bytes) -> None:
    assert CONNZ.read(body) == (ServerFilter(), ConnzOptions())


@pytest.mark.parametrize(
    ("form", "body", "text"),
    [
        (VARZ, b"{", "syntax error at character 2: "),
        (VARZ, b"x", "syntax error at character 1: "),
        (VARZ, b"{} {}", "syntax error: 2 JSON values instead of one"),
        (VARZ, b"[]", "json: cannot unmarshal array into Go value of type server.VarzEventOptions"),
        (
            VARZ,
            b'{"server_name":1}',
            "json: cannot unmarshal number into Go struct field VarzEventOptions.EventFilterOptions.server_name of "
            "type string",
        ),
        (
            VARZ,
            b'{"tags":1}',
            "json: cannot unmarshal number into Go struct field VarzEventOptions.EventFilterOptions.tags of type "
            "[]string",
        ),
        (
            CONNZ,
            b'{"limit":"x"}',
            "json: cannot unmarshal string into Go struct field ConnzEventOptions.ConnzOptions.limit of type int",
        ),
        (
            JSZ,
            b'{"limit":1.5}',
            "json: cannot unmarshal number 1.5 into Go struct field JszEventOptions.JSzOptions.limit of type int",
        ),
    ],
)
def test_faults_are_told_as_the_reference_tells_them(form: RequestFormat, body: bytes, text: str) -> None:
    with pytest.raises(DecodeError) as told:
        form.read(body)
    assert str(told.value) == text or (text.startswith("syntax error at ") and str(told.value).startswith(text))


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        (b"{}", True),
        (b'{"server_name": "one"}', True),
        (b'{"server_name": "one", "exact_match": true}', False),
        (b'{"server_name": "nats-one", "exact_match": true}', True),
        (b'{"server_name": "two"}', False),
        (b'{"host": "10.0"}', True),
        (b'{"cluster": "c"}', False),
        (b'{"cluster": "c", "exact_match": true}', False),
        (b'{"tags": ["FAST", "az:1"]}', True),
        (b'{"tags": ["fast", "slow"]}', False),
        (b'{"domain": "hub"}', True),
        (b'{"domain": "hu"}', False),
    ],
)
def test_a_filter_says_which_servers_are_meant(broker: Broker, body: bytes, meant: bool) -> None:
    wanted, _ = VARZ.read(body)
    assert wanted.excludes(broker) is not meant
