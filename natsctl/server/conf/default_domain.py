"""The key `default_js_domain`: whose JetStream is another server's, reached over a leaf node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from natsctl.api.subjects import domain_prefix, is_valid_subject
from natsctl.broker.account import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT
from natsctl.server.conf.values import block_of, text_of

if TYPE_CHECKING:
    from natsctl.server.conf.syntax import Item
    from natsctl.server.options import ServerOptions

KEY = "default_js_domain"


def default_domains(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with the domain of each account that is named; raises ConfError."""
    found = tuple((account, text_of(value)) for account, value in block_of(item).items())
    return replace(options, default_js_domain=found)


def domain_complaints(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with default domains, in nats-server's words."""
    accounts = {config.name: config for config in options.accounts}
    for name, domain in options.default_js_domain:
        config = accounts.get(name)
        if options.operator is not None:
            yield KEY, f"{KEY}: not available with operators in natsctl server"
        elif config is not None and config.jetstream is not None and domain:
            yield KEY, f'{KEY} contains account name "{name}" with enabled JetStream'
        elif config is None and name not in (GLOBAL_ACCOUNT, SYSTEM_ACCOUNT):
            yield KEY, f'in non operator mode, `{KEY}` references non existing account "{name}"'
        if name == (options.system_account or SYSTEM_ACCOUNT):
            yield KEY, f'system account "{name}" can not be in {KEY}'
        if domain and not is_valid_subject(f"{domain_prefix(domain)}.>"):
            yield KEY, f'{KEY} contains account "{name}" with invalid domain name "{domain}"'
