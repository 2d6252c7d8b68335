"""The state of pipelines: `natsctl pipeline status`, `ls` and `logs`."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from natsctl.api.errors import UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, Names, Rounds, Watch, check_rounds
from natsctl.cli.framework.live import watch as keep_watching
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session
from natsctl.cli.pipeline.answers import ConsumerStatus, FlowStatus, Known, Status, StreamStatus
from natsctl.cli.pipeline.projects import Pipeline, chosen_project, known_pipelines, take_context

if TYPE_CHECKING:
    from natsctl.spark.pipeline.checkpoints import CheckpointProgress
    from natsctl.spark.pipeline.project import Project
    from natsctl.spark.pipeline.run_record import Event, FlowRecord


def status(
    session: Session,
    pipeline: Pipeline = "",
    checkpoint: Annotated[
        str,
        Option("--checkpoint", metavar="DIR", help="the checkpoint of any streaming query"),
    ] = "",
    watch: Watch = None,
    rounds: Rounds = 0,
    json: Json = False,
) -> None:
    """Show the state of each flow of a pipeline and its lag, without Spark.

    Sequences, messages and bytes of lag count messages on the server after the last finished batch: messages of all
    subjects, and bytes of average messages. A query with ackMode has the numbers of its durable consumer instead.
    """

    from natsctl.cli.render.spark_reports import render_status

    if checkpoint and pipeline:
        raise UsageError("--checkpoint is a query of its own: leave out the pipeline")
    check_rounds(watch, rounds)

    def look() -> Status:
        return _of_checkpoint(session, checkpoint) if checkpoint else _of_project(session, chosen_project(pipeline))

    if json:
        output.emit_json(look())
    elif watch:
        keep_watching(lambda: render_status(look()), watch, rounds=rounds)
    else:
        output.show_table(render_status(look()))


def _of_project(session: Session, project: Project) -> Status:
    from natsctl.spark.pipeline.checkpoints import pipeline_progress
    from natsctl.spark.pipeline.run_record import run_state

    take_context(session, project)
    state, pid, record = run_state(project)
    if project.checkpoints is None:
        raise UsageError(f"the checkpoints are in {project.storage}, which is not on this machine")
    progress = pipeline_progress(project.checkpoints)
    records = record.flows if record else {}
    flows = _flows(session, progress, records)
    there = {each.flow for each in progress}
    flows += [_flow_without_checkpoint(name, each) for name, each in records.items() if name not in there]
    return Status(
        pipeline=project.name,
        folder=str(project.folder),
        state=state,
        pid=pid,
        interval_s=record.interval_s if record else 0.0,
        updates=record.updates if record else 0,
        failed_updates=record.failed_updates if record else 0,
        updated=moment(record.updated_ns if record else 0),
        error=record.error if record else "",
        flows=flows,
    )


def _of_checkpoint(session: Session, checkpoint: str) -> Status:
    from natsctl.spark.files.file_formats import local_path
    from natsctl.spark.pipeline.checkpoints import read_progress
    from natsctl.spark.pipeline.project import PipelineNotFoundError

    folder = local_path(checkpoint)
    if folder is None:
        raise UsageError(f"--checkpoint {checkpoint}: only folders of this machine can be read")
    progress = read_progress(folder)
    if progress is None:
        raise PipelineNotFoundError(
            f"{folder} is not a checkpoint of a streaming query", hint="it has the folders offsets and commits"
        )
    flows = _flows(session, [progress], {})
    state = "new" if progress.batch < 0 else "stopped"
    return Status(Path(folder).name, str(folder.absolute()), state, 0, 0.0, 0, 0, moment(progress.done_ns), "", flows)


def _flows(session: Session, progress: list[CheckpointProgress], records: dict[str, FlowRecord]) -> list[FlowStatus]:
    from natsctl.cli.spark_work import server_options
    from natsctl.spark.pipeline.checkpoints import lags, waiting
    from natsctl.spark.pipeline.run_record import FlowRecord
    from natsctl.spark.session.failures import translated
    from natsctl.spark.source.errors import JetStreamSourceError

    behind, durables = {}, {}
    if any(each.streams or each.consumers for each in progress):
        try:
            behind = lags(server_options(session), progress)
            durables = waiting(server_options(session), progress)
        except JetStreamSourceError as failure:
            raise translated(failure) from failure
    flows = []
    for each in progress:
        run = records.get(each.flow, FlowRecord("UNUSED" if records else ""))
        streams = [
            StreamStatus(one.stream, one.seq, one.last_seq, one.sequences, one.messages, one.bytes, one.trouble)
            for one in behind.get(str(each.folder), ())
        ]
        consumers = [
            ConsumerStatus(
                stream=one.acked.stream,
                consumer=one.acked.consumer,
                taken=one.acked.taken,
                again=one.acked.again,
                pending=one.pending,
                ack_pending=one.ack_pending,
                redelivered=one.redelivered,
                trouble=one.trouble,
            )
            for one in durables.get(str(each.folder), ())
        ]
        flows.append(
            FlowStatus(
                flow=each.flow,
                target=each.target,
                state=run.state,
                updated=moment(each.done_ns),
                batch=each.batch,
                in_flight=each.begun > each.batch,
                streams=streams,
                error=run.error,
                consumers=consumers,
            )
        )
    return flows


def _flow_without_checkpoint(name: str, records: FlowRecord) -> FlowStatus:
    """Return a flow without a position in a stream, such as a materialized view."""
    return FlowStatus(name, name, records.state, moment(records.at_ns), -1, False, [], records.error, [])


def moment(ns: int) -> str:
    if not ns:
        return ""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ls(names: Names = False, json: Json = False) -> None:
    """List the pipelines that were made or run here."""

    from natsctl.cli.render.spark_reports import render_known
    from natsctl.spark.pipeline.project import PipelineError, PipelineNotFoundError, find_project
    from natsctl.spark.pipeline.run_record import run_state

    known = known_pipelines()
    if names:
        output.emit_json([*known]) if json else output.emit_names(known)
        return
    found = []
    for name, folder in known.items():
        try:
            state, pid, record = run_state(find_project(folder))
        except (PipelineNotFoundError, PipelineError):
            state, pid, record = "faulty", 0, None
        found.append(Known(name, str(folder), state, pid, moment(record.updated_ns if record else 0)))
    output.emit_json(found) if json else output.show_table(render_known(found))


def logs(
    pipeline: Pipeline = "",
    lines: Annotated[int, Option("--lines", "-n", metavar="N", help="the last N; 0 for all", min=0)] = 100,
    json: Json = False,
) -> None:
    """Show the events of the last detached run."""
    from natsctl.cli.pipeline.runs import event_document
    from natsctl.cli.render.spark_reports import event_line
    from natsctl.spark.pipeline.run_record import log_path

    for event in list(_events(log_path(chosen_project(pipeline))))[-lines:]:
        output.emit_json_line(event_document(event)) if json else output.emit(event_line(event))


def _events(path: Path) -> Iterator[Event]:
    """Return the events of a log; other lines, such as a failure of the command itself, become messages of events."""
    from natsctl.spark.pipeline.run_record import Event

    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        changed = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            said = json_format.loads(line)
            time = datetime.fromisoformat(said["time"])
            read = said.get("read", {})
            yield Event(time, said["flow"], said["state"], said["message"], said["error"], read=read)
        except (ValueError, KeyError, TypeError):
            yield Event(changed, "", "", line)
