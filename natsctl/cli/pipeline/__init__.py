"""`natsctl pipeline`: streams through Spark's declarative pipelines."""

from natsctl.cli.framework.verbs import verb

VERBS = (
    verb(
        "init",
        "pipeline.projects.init",
        "cli.pipeline.answers:Initialised",
        "natsctl pipeline init shop --stream ORDERS",
    ),
    verb(
        "validate, check",
        "pipeline.projects.validate",
        "cli.pipeline.answers:Checked",
        "natsctl pipeline validate shop",
    ),
    verb(
        "run",
        "pipeline.runs.run",
        "cli.pipeline.answers:Happened*|cli.pipeline.answers:Started",
        "natsctl pipeline run shop --once",
        "natsctl pipeline run shop --interval 30s --detach",
        "natsctl pipeline run shop --once --full-refresh messages --force",
    ),
    verb(
        "status, info",
        "pipeline.status.status",
        "cli.pipeline.answers:Status",
        "natsctl pipeline status shop",
        "natsctl pipeline status --checkpoint /data/checkpoints/orders",
    ),
    verb("ls, list", "pipeline.status.ls", "cli.pipeline.answers:Known[]"),
    verb("logs, log", "pipeline.status.logs", "cli.pipeline.answers:Happened*"),
    verb("stop", "pipeline.runs.stop", "cli.pipeline.answers:Stopped", "natsctl pipeline stop shop"),
)
