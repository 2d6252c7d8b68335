"""The STREAM.TEMPLATE verbs. Servers have had none since 2.14; the specification shows them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from natsctl.api.answers import (
    NAMES_PAGE,
    StreamTemplateCreateAnswer,
    StreamTemplateDeleteAnswer,
    StreamTemplateInfoAnswer,
    StreamTemplateNamesAnswer,
)
from natsctl.api.catalogue import error
from natsctl.api.codec import recast
from natsctl.api.err_codes import ErrCode
from natsctl.api.requests import PagedRequest, StreamTemplateConfig
from natsctl.jetstream.endpoints.requests import ApiRequest, EndpointFunction, Outcome

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount


def create(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.TEMPLATE.CREATE."""
    config = request.decoded(StreamTemplateConfig)
    if config.name != request.tokens[0]:
        return error(ErrCode.TEMPLATE_NAME_NOT_MATCH_SUBJECT)
    if "/" in config.name or "\\" in config.name:
        return error(ErrCode.STREAM_TEMPLATE_CREATE, err="template name can not contain path separators")
    refusal = js.templates.refuse(config)
    if refusal is not None:
        return refusal
    template = js.templates.create(config)
    answer = recast(template.info(), StreamTemplateCreateAnswer)
    return request.answer_when_durable(template.store, answer, partial(js.templates.forget, template))


def names(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.TEMPLATE.NAMES."""
    found = js.templates.names()
    offset = min(max(request.decoded(PagedRequest).offset, 0), len(found))
    page = found[offset : offset + NAMES_PAGE]
    return StreamTemplateNamesAnswer(total=len(found), offset=offset, limit=NAMES_PAGE, streams=page or None)


def info(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.TEMPLATE.INFO."""
    template = js.templates.get(request.tokens[0])
    return (
        error(ErrCode.STREAM_TEMPLATE_NOT_FOUND)
        if template is None
        else recast(template.info(), StreamTemplateInfoAnswer)
    )


def delete(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.TEMPLATE.DELETE: the template goes, and every stream that it made."""
    template = js.templates.get(request.tokens[0])
    if template is None:
        return error(ErrCode.STREAM_TEMPLATE_NOT_FOUND)
    return request.answer_when_all_durable(js.templates.remove(template), StreamTemplateDeleteAnswer(success=True))


HANDLERS: Final[dict[str, EndpointFunction]] = {
    "STREAM.TEMPLATE.CREATE": create,
    "STREAM.TEMPLATE.NAMES": names,
    "STREAM.TEMPLATE.INFO": info,
    "STREAM.TEMPLATE.DELETE": delete,
}
