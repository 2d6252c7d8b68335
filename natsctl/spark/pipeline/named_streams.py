"""The streams that a project names: whether they are there, and whether their options can be meant."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from natsctl.spark.pipeline.faults import Fault, PipelineFaults
from natsctl.spark.pipeline.own_settings import FILE, StreamSink, StreamView
from natsctl.spark.pipeline.project import Project
from natsctl.spark.source.connection.asking import Asking
from natsctl.spark.source.errors import OptionFault, StreamNotFound
from natsctl.spark.source.options.driver_settings import server_settings
from natsctl.spark.source.options.options import Options
from natsctl.spark.source.options.table import BATCH_READ, STREAM_READ, STREAM_WRITE


def check_streams(project: Project, server: Mapping[str, str]) -> tuple[StreamView, ...]:
    """Every stream that is a view, patterns resolved. Raises PipelineFaults for options and streams that are wrong.

    Needs the server and no Spark.
    """
    faults = list(_option_faults(project))
    asking = Asking(server_settings(Options(server, STREAM_READ), {}))
    try:
        names = asking(lambda api: api.stream_names())
        named: tuple[StreamView | StreamSink, ...] = (*project.own.streams, *project.own.sinks)
        for one in named:
            said = {key.lower(): value for key, value in one.options.items()}
            if not {"streampattern", "backup", "path", "servers", "context"} & said.keys():
                faults += _missing(asking, said.get("stream", one.name), one.line)
    finally:
        asking.close()
    if faults:
        raise PipelineFaults(faults)
    taken = {view.name for view in project.own.streams}
    matching = [name for name in names for pattern in project.own.patterns if fnmatchcase(name, pattern)]
    return (*project.own.streams, *(StreamView(name) for name in dict.fromkeys(matching) if name not in taken))


def _missing(asking: Asking, streams: str, line: int) -> list[Fault]:
    names = filter(None, (each.strip() for each in streams.split(",")))
    return [
        Fault(FILE, line, f"there is no stream {name!r}", f"natsctl stream add {name}")
        for name in names
        if not _exists(asking, name.removesuffix("$subjects"))
    ]


def _exists(asking: Asking, name: str) -> bool:
    try:
        asking(lambda api: api.stream_info(name))
    except StreamNotFound:
        return False
    return True


def _option_faults(project: Project) -> list[Fault]:
    found = []
    for view in project.own.streams:
        found += _refused(view.options, BATCH_READ if view.batch else STREAM_READ, view.line)
    for sink in project.own.sinks:
        found += _refused(sink.options, STREAM_WRITE, sink.line)
    return found


def _refused(options: Mapping[str, str], place: str, line: int) -> list[Fault]:
    try:
        Options(options, place)
    except OptionFault as failure:
        return [Fault(FILE, line, failure.text)]
    return []
