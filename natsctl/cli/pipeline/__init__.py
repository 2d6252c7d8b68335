"""`natsctl pipeline`: streams through Spark's declarative pipelines."""

from typing import TYPE_CHECKING

from natsctl.cli.framework.verbs import Verb, lazy_modules

if TYPE_CHECKING:
    from natsctl.cli.pipeline import projects, runs, status
else:
    projects, runs, status = lazy_modules("natsctl.cli.pipeline", "projects runs status")

VERBS = (
    Verb(
        "init",
        projects.init,
        answer="cli.pipeline.answers:Initialised",
        examples=("natsctl pipeline init shop --stream ORDERS",),
    ),
    Verb(
        "validate, check",
        projects.validate,
        answer="cli.pipeline.answers:Checked",
        examples=("natsctl pipeline validate shop",),
    ),
    Verb(
        "run",
        runs.run,
        answer="cli.pipeline.answers:Happened*|cli.pipeline.answers:Started",
        examples=(
            "natsctl pipeline run shop --once",
            "natsctl pipeline run shop --interval 30s --detach",
            "natsctl pipeline run shop --once --full-refresh messages --force",
        ),
    ),
    Verb(
        "status, info",
        status.status,
        answer="cli.pipeline.answers:Status",
        examples=("natsctl pipeline status shop", "natsctl pipeline status --checkpoint /data/checkpoints/orders"),
    ),
    Verb("ls, list", status.ls, answer="cli.pipeline.answers:Known[]"),
    Verb("logs, log", status.logs, answer="cli.pipeline.answers:Happened*"),
    Verb("stop", runs.stop, answer="cli.pipeline.answers:Stopped", examples=("natsctl pipeline stop shop",)),
)
