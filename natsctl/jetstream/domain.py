"""The second name of a server's JetStream: `$JS.<domain>.API`, as mappings of what clients publish.

Source: reference, the mapping table of a domain. Verbs that are not in it have no responder under the domain's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.subject_transform import SubjectMapping
from natsctl.api.subjects import API_PREFIX, domain_prefix

if TYPE_CHECKING:
    from natsctl.broker.account import Account

_VERBS: Final = ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>")
_BUCKETS: Final = ("$KV.>", "$OBJ.>")


def map_domain(account: Account, domain: str) -> None:
    """Let clients of an account reach its JetStream by the name of its domain."""
    prefix = domain_prefix(domain)
    for verb in _VERBS:
        account.map_subject(SubjectMapping.compile(f"{prefix}.{verb}", f"{API_PREFIX}.{verb}"))
    for space in _BUCKETS:
        account.map_subject(SubjectMapping.compile(f"{prefix}.{space}", space))
