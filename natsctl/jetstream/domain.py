"""The second name of a server's JetStream: `$JS.<domain>.API`, as mappings of what clients publish.

Source: nats-server, the mapping table of a domain. Verbs that are not in it have no responder under the domain's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.subject_transform import SubjectMapping
from natsctl.api.subjects import API_PREFIX, domain_prefix

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
    pairs = [(f"{source}.INFO", f"{target}.INFO")]
    pairs += [(f"{source}.{noun}.>", f"{target}.{noun}.>") for noun in _NOUNS]
    pairs += [(f"{source_space}{bucket}.>", f"{target_space}{bucket}.>") for bucket in _BUCKETS]
    for src, dest in pairs:
        account.map_subject(SubjectMapping.compile(src, dest, literal=False))
