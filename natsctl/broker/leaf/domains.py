"""What of JetStream crosses a leaf node connection, by the domains of both sides. Source: nats-server, leafnode.go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from natsctl.broker.leaf.leafs import Leafs
    from natsctl.broker.leaf.link import LeafLink

CLIENTS_API: Final = ("$JS.API.>", "$KV.>", "$OBJ.>")
"""Subjects that stay on each side: the other one's are reached by the name of its domain."""
SERVERS_API: Final = ("$JSC.>", "$NRG.>", *CLIENTS_API)


def keep_domains_apart(leafs: Leafs, link: LeafLink) -> None:
    """Hold a link, whose other side is known, to the rules that its domain asks for."""
    broker, log = leafs.broker, leafs.log
    local, remote = broker.options.domain, link.remote_domain
    is_system = link.account is broker.system_account
    undivided = leafs.options.undivided
    if link.account.name in undivided and not is_system:
        return
    if undivided and is_system:
        log.info(
            f'{link.label} - Not extending remote JetStream domain "{remote}" due to presence of empty default domain'
        )
    elif local == remote and (local or broker.options.jetstream):
        if is_system:
            log.warn(
                f'{link.label} - JetStream domain "{remote}" is not extended to {_decorated(link)}: '
                "JetStream of this server is one node; give each server a domain of its own"
            )
        else:
            link.rules.forbid_both(CLIENTS_API)
        return
    if is_system:
        log.info(f"{link.label} - System account connected from {_decorated(link)}")
        log.info(f"{link.label} - JetStream not extended, domains differ")
        link.rules.forbid_both(SERVERS_API)
    else:
        log.info(f'{link.label} - JetStream using domains: local "{local}", remote "{remote}"')
        link.rules.forbid_both(CLIENTS_API)
    if local and broker.options.jetstream:
        # Two servers of one name would send each other what is for themselves.
        link.rules.send.forbid([f"$JS.{local}.API.>"])


def _decorated(link: LeafLink) -> str:
    return f"{link.remote_server}/{link.remote_cluster}" if link.remote_cluster else link.remote_server
