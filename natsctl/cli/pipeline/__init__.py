"""`natsctl pipeline`: streams through Spark's declarative pipelines."""

from natsctl.cli.framework.verbs import Verb

VERBS = (
    Verb(
        "init",
        "pipeline.projects.init",
        answer="cli.pipeline.answers:Initialised",
        examples=("natsctl pipeline init shop --stream ORDERS",),
    ),
    Verb(
        "validate, check",
        "pipeline.projects.validate",
        answer="cli.pipeline.answers:Checked",
        examples=("natsctl pipeline validate shop",),
    ),
    Verb(
        "run",
        "pipeline.runs.run",
        answer="cli.pipeline.answers:Happened*|cli.pipeline.answers:Started",
        examples=(
            "natsctl pipeline run shop --once",
            "natsctl pipeline run shop --interval 30s --detach",
            "natsctl pipeline run shop --once --full-refresh messages --force",
        ),
    ),
    Verb(
        "status, info",
        "pipeline.status.status",
        answer="cli.pipeline.answers:Status",
        examples=("natsctl pipeline status shop", "natsctl pipeline status --checkpoint /data/checkpoints/orders"),
    ),
    Verb("ls, list", "pipeline.status.ls", answer="cli.pipeline.answers:Known[]"),
    Verb("logs, log", "pipeline.status.logs", answer="cli.pipeline.answers:Happened*"),
    Verb("stop", "pipeline.runs.stop", answer="cli.pipeline.answers:Stopped", examples=("natsctl pipeline stop shop",)),
)
