"""`natsctl bench js get`: messages read one by one, or many with one request."""

from natsctl.cli.bench import REPORT
from natsctl.cli.verbs import Verb

VERBS = (
    Verb("sync", "bench.reading:get_sync", answer=REPORT, examples=("natsctl bench js get sync --msgs 10000",)),
    Verb("batch", "bench.reading:get_batch", answer=REPORT, examples=("natsctl bench js get batch --msgs 10000",)),
)
