"""The second name of a server's JetStream: `$JS.<domain>.API`, as mappings of what clients publish.

Source: nats-server, the mapping table of a domain. Verbs that are not in it have no responder under the domain's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.subject_transform import SubjectMapping
from natsctl.api.subjects import API_PREFIX, domain_prefix
from natsctl.broker.imports.mappings import PatternMapping

if TYPE_CHECKING:
    from natsctl.broker.account import Account

_NOUNS: Final = ("STREAM", "CONSUMER", "DIRECT", "META", "SERVER", "ACCOUNT")
_BUCKETS: Final = ("$KV", "$OBJ")


def map_domain(account: Account, domain: str) -> None:
    """Map the domain's API prefix to the account's JetStream."""
    _map(account, domain_prefix(domain), API_PREFIX, f"{domain_prefix(domain)}.", "")


def map_default_domain(account: Account, domain: str) -> None:
    """Map the plain API prefix of an account without JetStream to another server's domain."""
    _map(account, API_PREFIX, domain_prefix(domain), "", f"{domain_prefix(domain)}.")


def _map(account: Account, source: str, target: str, source_space: str, target_space: str) -> None:
    account.map_subject(SubjectMapping.compile(f"{source}.INFO", f"{target}.INFO"))
    for noun in _NOUNS:
        account.map_subject(PatternMapping(f"{source}.{noun}.>", f"{target}.{noun}.>"))
    for bucket in _BUCKETS:
        account.map_subject(PatternMapping(f"{source_space}{bucket}.>", f"{target_space}{bucket}.>"))
