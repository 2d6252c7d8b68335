"""Stream templates of one account: streams made when the first message for them arrives, and the TEMPLATE verbs.

Theory of operation. A template is kept by the store as a stream without messages, under a key that no stream can have
(`<account>/templates/<name>`); its metadata is the template's configuration. Its streams are not listed twice: those
are the streams with its name as `template_owner`. Each template has handlers on its subjects. A message
on a subject that has its stream already is that stream's; the first one makes the stream and is stored in it as
sequence 1. At `max_streams`, or where the account refuses one more stream, the message is dropped: taken, never
acknowledged, and logged once. Source: docs/compatibility.md#stream-templates.

Servers have had no STREAM.TEMPLATE verbs since 2.14; the specification shows them. Servers that had templates wrote `_`
for each `.` of the subject in the names of their streams: ORDERS.eu.new became ORDERS_eu_new. The specification shows a
template CLIENTS on CLIENT.* with the stream CLIENTS_acme: if the template's name continues the literal head of its
subject, it replaces that head.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api import stream_config as rules
from natsctl.api.advisories import ActionType
from natsctl.api.answers import (
    NAMES_PAGE,
    StreamTemplateCreateAnswer,
    StreamTemplateDeleteAnswer,
    StreamTemplateInfo,
    StreamTemplateInfoAnswer,
    StreamTemplateNamesAnswer,
)
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode, recast
from natsctl.api.errors import ErrCode
from natsctl.api.requests import PagedRequest, StreamTemplateConfig
from natsctl.api.stream import StreamConfig
from natsctl.api.subjects import MAX_NAME_BYTES, is_literal, is_too_long
from natsctl.jetstream import api_level
from natsctl.jetstream.endpoints.requests import ApiRequest, EndpointFunction, Outcome, require
from natsctl.store.errors import StoreError
from natsctl.store.steps import finish

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Subscription
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.engine_options import DurableChange
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.stream import StreamStore


def stream_name(template: str, pattern: str, subject: str) -> str:
    """Return the name of the stream for a `subject` that matches `pattern`, one of the template's subjects."""
    head = _literal_head(pattern)
    if head and template != head and template.startswith(head) and subject.startswith(head + "."):
        subject = template + subject[len(head) :]
    return subject.replace(".", "_").replace("/", "_").replace("\\", "_")


def _literal_head(pattern: str) -> str:
    """Return the tokens before the first wildcard, or ""."""
    head: list[str] = []
    for token in pattern.split("."):
        if token in ("*", ">"):
            return ".".join(head)
        head.append(token)
    return ""


FOLDER: Final = "templates"
"""Second part of the store's keys of templates; the name of a stream has no `/`."""

MAX_TEMPLATES: Final = 1000
"""Templates of one account: each message on a new subject is compared with them."""

_decode: Final = msgspec.json.Decoder(StreamTemplateConfig).decode


class StreamTemplate:
    def __init__(self, js: JetStreamAccount, config: StreamTemplateConfig, store: StreamStore) -> None:
        self._js = js
        self._reported = ""
        self.config = config
        self.store = store
        self._subscriptions: list[Subscription] = [
            js.account.subscribe(subject.encode(), partial(self._on_message, subject))
            for subject in config.config.subjects
        ]

    def stop(self) -> None:
        for subscription in self._subscriptions:
            self._js.account.unsubscribe(subscription)

    def streams(self) -> list[str]:
        """Return the names of the streams that it made and that are still there, oldest first."""
        return list(self._js.templates.made.get(self.config.name, {}))

    def info(self) -> StreamTemplateInfo:
        return StreamTemplateInfo(config=self.config, streams=self.streams())

    def _on_message(
        self, pattern: str, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        if not is_literal(subject):
            return False
        try:
            text = subject.decode()
        except UnicodeDecodeError:
            return False
        name = stream_name(self.config.name, pattern, text)
        if name in self._js.streams:
            return False
        refusal = self._create_stream(name, text)
        if refusal is not None:
            self._log(f"template {self.config.name} can not make a stream for {text}: {refusal.description}")
            return None
        self._reported = ""
        self._js.streams[name].pipeline.publish(subject, reply, header, payload, origin)
        return None

    def _create_stream(self, name: str, subject: str) -> ApiError | None:
        if len(self._js.templates.made.get(self.config.name, ())) >= self.config.max_streams:
            return error(ErrCode.MAXIMUM_STREAMS_LIMIT)
        if is_too_long(name):
            return error(
                ErrCode.STREAM_INVALID_CONFIG, err=f"stream name is too long, maximum allowed is {MAX_NAME_BYTES}"
            )
        config = rules.copy(self.config.config)
        config.name, config.subjects, config.template_owner = name, [subject], self.config.name
        refusal = finish(self._js.refusing_stream(config))
        if refusal is not None:
            return refusal
        try:
            stream = self._js.create(config)
        except StoreError as fault:
            return error(ErrCode.STREAM_CREATE, err=str(fault))
        stream.store.on_durable(partial(self._created, stream))
        return None

    def _created(self, stream: Stream, fault: StoreError | None) -> None:
        if fault is None:
            stream.advise(ActionType.CREATE)
        else:
            self._js.forget(stream)

    def _log(self, text: str) -> None:
        """Log an obstacle, once until it is removed."""
        cause = text.rpartition(": ")[2]
        if cause != self._reported:
            self._reported = cause
            self._js.engine.notice(text)


class Templates:
    def __init__(self, js: JetStreamAccount) -> None:
        self._js = js
        self.by_name: dict[str, StreamTemplate] = {}
        self.made: dict[str, dict[str, None]] = {}
        """Names of owned streams by owner, in order of their making."""

    def stream_created(self, config: StreamConfig) -> None:
        if config.template_owner:
            self.made.setdefault(config.template_owner, {})[config.name] = None

    def stream_deleted(self, config: StreamConfig) -> None:
        if config.template_owner:
            self.made.get(config.template_owner, {}).pop(config.name, None)

    def refuse(self, config: StreamTemplateConfig) -> ApiError | None:
        """Return why a template is refused, or None with its stream configuration made complete."""
        if config.config.name:
            return _refused("template config name should be empty")
        if is_too_long(config.name):
            return _refused(f"template name is too long, maximum allowed is {MAX_NAME_BYTES}")
        if config.max_streams <= 0:
            return _refused("template max streams must be greater than zero")
        config.config.name = "_"
        api_level.stamp(config.config)
        refusal = rules.settle(self._js.draft(config.config))
        config.config.name = ""
        if refusal is not None:
            return refusal
        if not config.config.subjects or config.config.subjects == ["_"]:
            return _refused("template needs at least one subject")
        if config.name in self.by_name:
            return _refused(f'template with name "{config.name}" already exists')
        return _refused("too many templates") if len(self.by_name) >= MAX_TEMPLATES else None

    def create(self, config: StreamTemplateConfig) -> StreamTemplate:
        """Make a checked template; it is durable when its store's first commit ends. Raises StoreError."""
        key = f"{self._js.name}/{FOLDER}/{config.name}"
        store = self._js.engine.store.create(key, encode(config))
        template = self.by_name[config.name] = StreamTemplate(self._js, config, store)
        return template

    def adopt(self, store: StreamStore) -> None:
        """Start a template that the store recovered. Raises msgspec.MsgspecError."""
        config = _decode(store.meta)
        self.by_name[config.name] = StreamTemplate(self._js, config, store)

    def stop(self) -> None:
        """Unsubscribe every template and forget it; its stored configuration stays."""
        for template in self.by_name.values():
            template.stop()
        self.by_name = {}

    def forget(self, template: StreamTemplate) -> None:
        """Undo a creation that could not be made durable."""
        template.stop()
        self.by_name.pop(template.config.name, None)
        if template.store.key in self._js.engine.store.streams:
            self._js.engine.store.delete(template.store.key)

    def remove(self, template: StreamTemplate) -> list[DurableChange]:
        """Delete a template after its streams; `on_durable` of the returned objects calls back for each."""
        template.stop()
        leaving = [self._js.remove_and_advise(name) for name in template.streams()]
        del self.by_name[template.config.name]
        self.made.pop(template.config.name, None)
        leaving.append(self._js.engine.store.delete(template.store.key))
        return leaving


def _refused(text: str) -> ApiError:
    return error(ErrCode.STREAM_TEMPLATE_CREATE, err=text)


def create(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    config = request.decoded(StreamTemplateConfig)
    if config.name != request.tokens[0]:
        return error(ErrCode.TEMPLATE_NAME_NOT_MATCH_SUBJECT)
    if "/" in config.name or "\\" in config.name:
        return error(ErrCode.STREAM_TEMPLATE_CREATE, err="template name can not contain path separators")
    require(js.templates.refuse(config))
    template = js.templates.create(config)
    answer = recast(template.info(), StreamTemplateCreateAnswer)
    return request.answer_when_durable(template.store, answer, partial(js.templates.forget, template))


def names(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    found = sorted(js.templates.by_name)
    offset = min(max(request.decoded(PagedRequest).offset, 0), len(found))
    page = found[offset : offset + NAMES_PAGE]
    return StreamTemplateNamesAnswer(total=len(found), offset=offset, limit=NAMES_PAGE, streams=page or None)


def info(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    template = js.templates.by_name.get(request.tokens[0])
    if template is None:
        return error(ErrCode.STREAM_TEMPLATE_NOT_FOUND)
    return recast(template.info(), StreamTemplateInfoAnswer)


def delete(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.TEMPLATE.DELETE: the template goes, and every stream that it made."""
    template = js.templates.by_name.get(request.tokens[0])
    if template is None:
        return error(ErrCode.STREAM_TEMPLATE_NOT_FOUND)
    return request.answer_when_all_durable(js.templates.remove(template), StreamTemplateDeleteAnswer(success=True))


HANDLERS: Final[dict[str, EndpointFunction]] = {
    "STREAM.TEMPLATE.CREATE": create,
    "STREAM.TEMPLATE.NAMES": names,
    "STREAM.TEMPLATE.INFO": info,
    "STREAM.TEMPLATE.DELETE": delete,
}
