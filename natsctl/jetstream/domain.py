"""The second name of a server's JetStream: `$JS.<domain>.API`, as mappings of what clients publish.

Source: nats-server, the mapping table of a domain. Verbs that are not in it have no responder under the domain's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.subject_transform import SubjectMapping
from natsctl.api.subjects import API_PREFIX, domain_prefix
from natsctl.broker.imports.mappings import SpaceMapping

if TYPE_CHECKING:
    from natsctl.broker.account import Account

_NOUNS: Final = ("STREAM", "CONSUMER", "DIRECT", "META", "SERVER", "ACCOUNT")
_BUCKETS: Final = ("$KV", "$OBJ")


def map_domain(account: Account, domain: str) -> None:
    """Map the domain's API prefix to the account's JetStream."""
    prefix = domain_prefix(domain)
    account.map_subject(SubjectMapping.compile(f"{prefix}.INFO", f"{API_PREFIX}.INFO"))
    for noun in _NOUNS:
        account.map_subject(SpaceMapping(f"{prefix}.{noun}", f"{API_PREFIX}.{noun}"))
    for space in _BUCKETS:
        account.map_subject(SpaceMapping(f"{prefix}.{space}", space))


def map_default_domain(account: Account, domain: str) -> None:
    """Map the plain API prefix of an account without JetStream to another server's domain."""
    prefix = domain_prefix(domain)
    account.map_subject(SubjectMapping.compile(f"{API_PREFIX}.INFO", f"{prefix}.INFO"))
    for noun in _NOUNS:
        account.map_subject(SpaceMapping(f"{API_PREFIX}.{noun}", f"{prefix}.{noun}"))
    for space in _BUCKETS:
        account.map_subject(SpaceMapping(space, f"{prefix}.{space}"))
