"""Accounts without JetStream of their own that use another server's, over a leaf node, as if it were here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.jetstream.engine import Engine
    from natsctl.server.options import ServerOptions
    from natsctl.server.process.log import Log


def map_default_domains(options: ServerOptions, broker: Broker, engine: Engine | None, log: Log) -> None:
    """Send what accounts ask of JetStream to the domains that options name for them."""
    if not options.default_js_domain:
        return
    from natsctl.jetstream.domain import map_default_domain

    log.warn("The option `default_js_domain` is a temporary backwards compatibility measure and will be removed")
    for name, domain in options.default_js_domain:
        if engine is not None and name in engine.accounts:
            log.warn(f'Skipping Default Domain "{domain}", set for JetStream enabled account "{name}"')
        elif domain:
            map_default_domain(broker.account(name), domain)
