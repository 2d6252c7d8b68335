"""What a pipeline, or any query with a checkpoint, is at: its run, its flows, how far behind they are."""

from __future__ import annotations

from natsctl.spark.pipeline.project import Project
from natsctl.spark.pipeline.run_record import RunRecord, is_running, read_record


def run_state(project: Project) -> tuple[str, int, RunRecord | None]:
    """Whether a pipeline is running, failed, stopped or new; the process, 0 unless it runs; what its run wrote."""
    record = read_record(project)
    if record is None:
        return "new", 0, None
    if is_running(project):
        return "running", record.pid, record
    return ("failed" if record.state == "failed" else "stopped"), 0, record
