"""`natsctl bench`: what a server can do, measured by clients that load it."""

from natsctl.cli.verbs import Verb

REPORT = "client.bench.report:Report"

VERBS = (
    Verb(
        "pub",
        "bench.core:pub",
        answer=REPORT,
        examples=("natsctl bench pub test.load --msgs 1000000 --size 512B --clients 2",),
    ),
    Verb("sub", "bench.core:sub", answer=REPORT, examples=("natsctl bench sub test.load --msgs 1000000",)),
    Verb("service", "bench.service", "Requests, and a service that answers them"),
    Verb("js", "bench.js", "Publish to streams, read from them"),
    Verb("kv", "bench.kv", "Put into buckets, get from them"),
)
