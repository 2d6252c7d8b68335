"""Leaders and copies of consumers: `natsctl consumer cluster step-down`, `balance` and `evacuate`."""

from __future__ import annotations

from natsctl.api.errors import NatsctlError
from natsctl.cli import leadership
from natsctl.cli.consumer.listing import FILTERS, ConsumerFlags, list_consumers, show_info, test_of
from natsctl.cli.framework.flags import Force, Given, Json, StreamName, flagged
from natsctl.cli.framework.resolve import pick_stream
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.leadership import MoveWait, Peer, Preferred, Wait, balance_leaders
from natsctl.client.leaders import ClusterAsset


def step_down(
    session: Session,
    chosen: ConsumerFlags,
    preferred: Preferred = "",
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make the leader of a consumer step down, and wait for a new one."""
    asset = ClusterAsset(*chosen.pick(session))
    if not leadership.step_down(session, asset, preferred, wait, json):
        return
    answer = session.run(lambda manager: manager.consumer_info(asset.stream, asset.consumer))
    show_info(answer, json, state_only=True)


@flagged(tuple(flag for flag in FILTERS if flag.name != "--api-level"))
def balance(
    session: Session,
    given: Given,
    stream: StreamName = None,
    wait: Wait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Spread the leaders of a stream's consumers evenly over the servers that have copies."""
    where = pick_stream(session, stream)
    test = test_of(given)
    infos = {
        ClusterAsset(where, consumer.raw["name"]): consumer.raw
        for consumer in list_consumers(session, where)
        if test(consumer.raw)
    }
    if infos and not any("cluster" in info for info in infos.values()):
        raise NatsctlError(
            f"the Consumers of {where} are not clustered",
            hint="leaders change among the servers of a cluster only",
        )
    balance_leaders(session, infos, wait, json, f"consumer on {where}", {"stream": where, "consumers": len(infos)})


def evacuate(
    session: Session,
    chosen: ConsumerFlags,
    peer: Peer = None,
    wait: MoveWait = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Move a consumer away from a server, to another server that has its stream."""
    asset = ClusterAsset(*chosen.pick(session))
    leadership.evacuate(session, asset, peer, wait, force, json)


VERBS = (
    verb(
        "step-down, stepdown, sd, elect, down, d",
        step_down,
        "ConsumerInfoAnswer",
        "natsctl con cluster step-down ORDERS NEW --preferred n2 -f",
    ),
    verb("balance", balance, "cli.leadership:LeaderBalance", "natsctl con cluster balance ORDERS --dry-run"),
    verb("evacuate", evacuate, "ConsumerEvacuatePeerAnswer", "natsctl con cluster evacuate ORDERS NEW n3"),
)
