"""`natsctl bench service`: requests and answers."""

from natsctl.cli.bench import REPORT
from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "request, req",
        "bench.core:request",
        answer=REPORT,
        examples=("natsctl bench service request test.service --msgs 10000 --clients 2",),
    ),
    Verb("serve", "bench.core:serve", answer=REPORT, examples=("natsctl bench service serve test.service",)),
)
