"""The way of a message on a subject: streams, consumers, copies, subscribers, and the user's permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from natsctl.api.consumer import ConsumerInfo
from natsctl.api.consumer_config import filters_of
from natsctl.api.errors import UNAVAILABLE_CODES, ApiResponseError, NatsctlError, NotAuthorisedError, UsageError
from natsctl.api.stream import StreamInfo, StreamSource, SubjectTransform
from natsctl.api.subject_transform import SubjectMapping, TransformError
from natsctl.api.subjects import has_wildcard, is_valid_subject, matches, overlaps
from natsctl.api.units import plural
from natsctl.client.account import user_info
from natsctl.client.buckets import KV, OBJECTS, kind_of
from natsctl.client.explain.evidence import permitted
from natsctl.client.explain.explanation import Cause, Explanation, is_selected, listed, near_misses
from natsctl.client.manager import Manager
from natsctl.client.system.system_account import System, in_system_account

MAX_STREAMS: Final = 20
"""Max storing streams with consumers that are listed."""
MAX_SUBSCRIBERS: Final = 1_000


class StreamRoute(msgspec.Struct):
    """A stream that stores a subject, or copies it from another stream."""

    stream: str
    stored_as: str
    how: str
    consumers: list[str]
    bucket: str = ""


class SubjectExplanation(Explanation, kw_only=True):
    """The explanation of a subject: who stores it, who copies or republishes it, and who is subscribed."""

    streams: list[StreamRoute]
    republished: list[str]
    subscribers: list[str] | None = None
    """Connections with a subscription; None: only the system account sees them."""


async def explain_subject(manager: Manager, subject: str) -> SubjectExplanation:
    """Explain where messages on a subject go.

    Raises UsageError for an invalid subject, NotAuthorisedError if the user may see neither streams nor permissions.
    """
    if not is_valid_subject(subject):
        raise UsageError(f"{subject!r} is not a valid subject")
    user, subscribers = await asyncio.gather(user_info(manager), _subscribers(manager, subject))
    unknown: list[str] = []
    streams: list[StreamInfo] = []
    unavailable = ""
    try:
        streams = [answer.value for answer in await manager.stream_list()]
    except NotAuthorisedError as refusal:
        if not user:
            raise
        unknown.append(f"the streams: {refusal}")
    except ApiResponseError as failure:
        if failure.err_code not in UNAVAILABLE_CODES:
            raise
        unavailable = str(failure)
    hidden = bool(unknown)
    routes, republished = await _routes(manager, streams, subject, unknown)
    causes = list(_refusals(subject, user.get("permissions") or {}))
    fine = ["this user may publish and subscribe to it"] if user and not causes else []
    direct = [route for route in routes if route.how == "subject"]
    facts = [_described(route) for route in routes] + republished
    is_pattern = has_wildcard(subject)
    if not direct and not hidden:
        causes.append(_unstored(subject, streams, unavailable))
    elif len(direct) > 1 and not is_pattern:
        evidence = [f"{route.stream} stores it as {route.stored_as}" for route in direct]
        causes.append(Cause("several streams store the subject: a publisher gets several acks", evidence))
    if direct and not any(route.consumers for route in routes):
        fine.append("no consumer selects it: it is stored, and read by nobody")
    if subscribers is not None:
        fine.append(
            f"{plural(len(subscribers), 'connection')} subscribed" + (f": {listed(subscribers)}" if subscribers else "")
        )
    if causes:
        verdict = causes[0].text
    elif len(direct) > 1:
        verdict = f"{plural(len(direct), 'stream')} store subjects of it: {listed([route.stream for route in direct])}"
    elif direct:
        verdict = _verdict(direct[0], subject)
    else:
        verdict = "this user may publish and subscribe to it, and may not see which streams store it"
    if subscribers is None:
        unknown.append("who is subscribed: only a user of the system account sees it")
    if not user:
        unknown.append("this user's permissions: the server does not report them")
    return SubjectExplanation(
        f"Subject {subject}", verdict, causes, fine, unknown, facts,
        streams=routes, republished=republished, subscribers=subscribers,
    )  # fmt: skip


def _verdict(route: StreamRoute, subject: str) -> str:
    readers = (
        f"{plural(len(route.consumers), 'consumer')} get it" if len(route.consumers) != 1 else "1 consumer gets it"
    )
    renamed = f" as {route.stored_as}" if route.stored_as != subject else ""
    meaning = f" ({route.bucket})" if route.bucket else ""
    return f"stream {route.stream} stores it{renamed}{meaning}, {readers}"


def _described(route: StreamRoute) -> str:
    text = f"stream {route.stream} stores it as {route.stored_as}"
    if route.how != "subject":
        text += f" ({route.how})"
    if route.bucket:
        text += f": {route.bucket}"
    return f"{text}; consumers: {listed(route.consumers) or 'none'}"


async def _routes(
    manager: Manager, streams: Sequence[StreamInfo], subject: str, unknown: list[str]
) -> tuple[list[StreamRoute], list[str]]:
    """Return the streams that store a subject or copy it, and its republications."""
    routes: dict[str, StreamRoute] = {}
    republished: list[str] = []
    for info in streams:
        if any(overlaps(pattern, subject) for pattern in info.config.subjects or ()):
            stored = _mapped([info.config.subject_transform] if info.config.subject_transform else [], subject)
            routes[info.config.name] = StreamRoute(info.config.name, stored, "subject", [], _bucket(info, stored))
    added = True
    while added:  # a mirror of a mirror is found in the next round
        added = False
        for info in streams:
            origin = next((source for source in _origins(info) if source.name in routes), None)
            if origin is None or info.config.name in routes:
                continue
            stored = _copied(origin, routes[origin.name].stored_as)
            if stored:
                how = f"{'mirror' if info.config.mirror else 'source'} of {origin.name}"
                routes[info.config.name] = StreamRoute(info.config.name, stored, how, [], _bucket(info, stored))
                added = True
    by_name = {info.config.name: info for info in streams}
    chosen = list(routes.values())[:MAX_STREAMS]
    listings = await asyncio.gather(*(_consumers(manager, by_name[route.stream], unknown) for route in chosen))
    for route, consumers in zip(chosen, listings, strict=True):
        names = [item.name for item in consumers if is_selected(filters_of(item.config), route.stored_as)]
        route.consumers = names
    for route in routes.values():
        rule = by_name[route.stream].config.republish
        if rule is not None and overlaps(rule.src or ">", route.stored_as):
            target = _mapping(rule.src, rule.dest, route.stored_as)
            republished.append(f"stream {route.stream} republishes it to {target or rule.dest}")
    republished += [f"{text} to it" for text in _sent_to(streams, subject)]
    return list(routes.values()), republished


def _sent_to(streams: Sequence[StreamInfo], subject: str) -> Iterator[str]:
    for info in streams:
        rule = info.config.republish
        if rule is not None and overlaps(_pattern_of(rule.dest), subject):
            yield f"stream {info.config.name} republishes {rule.src or '>'}"


def _pattern_of(target: str) -> str:
    """Return the pattern of the subjects that a transform makes."""
    return ".".join("*" if "{{" in token or "$" in token else token for token in target.split("."))


async def _consumers(manager: Manager, info: StreamInfo, unknown: list[str]) -> list[ConsumerInfo]:
    name = info.config.name
    if not info.state.consumer_count:
        return []
    answers = await permitted(manager.consumer_list(name), [], unknown, f"the consumers of {name}")
    return [answer.value for answer in answers]


def _origins(info: StreamInfo) -> list[StreamSource]:
    origins = [info.config.mirror, *(info.config.sources or ())]
    return [origin for origin in origins if origin is not None and origin.external is None]


def _copied(origin: StreamSource, stored: str) -> str:
    """Return the subject that a copy has, "" if the origin's filters leave it out."""
    if origin.filter_subject and not overlaps(origin.filter_subject, stored):
        return ""
    transforms = list(origin.subject_transforms or ())
    if transforms and not any(overlaps(rule.src or ">", stored) for rule in transforms):
        return ""
    return _mapped(transforms, stored)


def _mapped(transforms: Sequence[SubjectTransform], subject: str) -> str:
    for rule in transforms:
        if (target := _mapping(rule.src, rule.dest, subject)) is not None:
            return target
    return subject


def _mapping(src: str, dest: str, subject: str) -> str | None:
    try:
        target = SubjectMapping.compile(src, dest).apply(subject.encode())
    except TransformError:
        return None
    return target.decode() if target is not None else None


def _bucket(info: StreamInfo, stored: str) -> str:
    kind = kind_of(info.config.name)
    if kind is None:
        return ""
    bucket = kind.bucket_of(info.config.name)
    if kind is KV:
        prefix = f"$KV.{bucket}."
        return f"key {stored.removeprefix(prefix)} of bucket {bucket}" if stored.startswith(prefix) else ""
    if stored.startswith(f"$O.{bucket}.C."):
        return f"part of the data of an object of bucket {bucket}"
    return f"the description of an object of bucket {bucket}" if kind is OBJECTS else ""


def _refusals(subject: str, permissions: Mapping[str, Any]) -> Iterator[Cause]:
    for verb, word in (("publish", "publish to"), ("subscribe", "subscribe to")):
        rules = permissions.get(verb)
        if not isinstance(rules, Mapping):
            continue
        allow, deny = (_subjects(rules.get(key)) for key in ("allow", "deny"))
        denied = [pattern for pattern in deny if matches(pattern, subject)]
        missing = rules.get("allow") is not None and not any(matches(pattern, subject) for pattern in allow)
        if denied or missing:
            evidence = [f"denied: {listed(denied)}"] if denied else [f"allowed are only: {listed(allow) or 'none'}"]
            yield Cause(f"this user may not {word} the subject", evidence, "natsctl account info")


def _subjects(rules: object) -> list[str]:
    """Return the subjects of permission rules; a rule of a queue group has its name after a blank."""
    return [str(rule).partition(" ")[0] for rule in rules] if isinstance(rules, list) else []


def _unstored(subject: str, streams: Sequence[StreamInfo], unavailable: str) -> Cause:
    if subject.startswith("$JS."):
        text = "the subject belongs to JetStream's API: servers answer it, and no stream stores it"
        return Cause(text, [unavailable or "subjects below $JS are reserved"], f"natsctl request {subject!r} ''")
    text = "no stream stores the subject: a publisher gets no ack"
    if unavailable:
        return Cause(text, [unavailable], "log in as a user of an account with JetStream")
    subjects = {pattern: info.config.name for info in streams for pattern in info.config.subjects or ()}
    near = near_misses(subject, subjects)
    evidence = [f"near miss: {miss} (stream {subjects.get(miss.split(' ')[0], '')})" for miss in near]
    if not evidence:
        names = [info.config.name for info in streams]
        evidence.append(f"{plural(len(streams), 'stream')}: {listed(names) or 'none'}")
    for info in streams:
        rule = info.config.subject_transform
        if rule is not None and overlaps(_pattern_of(rule.dest), subject):
            evidence.append(f"stream {info.config.name} stores messages on {rule.src or '>'} under such a subject")
    evidence += [f"{text} to it" for text in _sent_to(streams, subject)]
    return Cause(text, evidence, f"natsctl stream add NAME --subjects {subject!r}")


async def _subscribers(manager: Manager, subject: str) -> list[str] | None:
    """Return the connections that are subscribed, None unless the user belongs to the system account."""
    if not await in_system_account(manager.connection):
        return None
    try:
        answers = await System(manager).ask("SUBSZ", {"subscriptions": True, "test": subject, "limit": MAX_SUBSCRIBERS})
    except NatsctlError:
        return None
    rows = [row for answer in answers for row in answer.data.get("subscriptions_list") or ()]
    return sorted({f"{row.get('account')} cid {row.get('cid')} on {row.get('subject')}" for row in rows})
