"""The questions of `stream add`, in order, unless a flag answers one.

Source: docs/compatibility.md#questions-of-stream-add-and-consumer-add.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from natsctl.api.subjects import is_valid_name, is_valid_subject
from natsctl.api.times import parse_time
from natsctl.api.units import format_duration
from natsctl.cli.assets import FlagDialogue
from natsctl.cli.framework.flags import WHOLE, Config, Given
from natsctl.cli.framework.prompts import Question, asset_name, prompt, prompt_confirm
from natsctl.cli.stream.create import STREAM_FLAGS
from natsctl.client.asset_config import window_of

_LOOSE_TIME = re.compile(r"(\d{4})[:-](\d{2})[:-](\d{2})[ T](\d{2}:\d{2}:\d{2})")


def read_start_time(text: str) -> str:
    """Return the wire form of `2026:01:31 12:00:00` (or with dashes) in UTC, or of an RFC 3339 time.

    Return "" for an empty text.
    """
    if not text:
        return ""
    loose = _LOOSE_TIME.fullmatch(text)
    moment = f"{loose[1]}-{loose[2]}-{loose[3]}T{loose[4]}Z" if loose else text
    parse_time(moment)
    return moment


def read_subject(text: str) -> str:
    if text and not is_valid_subject(text):
        raise ValueError(f"{text!r} is not a subject: tokens between dots, none of them empty, > only as the last one")
    return text


def read_name(text: str) -> str:
    if not is_valid_name(text):
        raise ValueError("a name has no blanks, and none of . * > \\ /")
    return text


@dataclass(frozen=True, slots=True)
class _OriginDialogue:
    """Questions about one origin; their help names the field in the JSON of the flag."""

    flag: str

    def help(self, meaning: str, field: str) -> str:
        return f"""{meaning}. Settable using {self.flag} '{{"name": …, "{field}": …}}'"""

    def agrees(self, text: str, meaning: str, field: str) -> bool:
        return prompt_confirm(text, False, self.help(meaning, field))

    def asks(
        self,
        text: str,
        meaning: str,
        field: str,
        *,
        read: Callable[[str], Any] = str,
        default: str = "",
        required: bool = False,
    ) -> Any:
        return prompt(Question(text, self.help(meaning, field), default, read, required))


def prompt_mirror(name: str) -> Config:
    dialogue = _OriginDialogue("--mirror")
    source: Config = {"name": name}
    if dialogue.agrees("Configure a custom durable consumer", "Copy through an existing consumer", "consumer"):
        source["consumer"] = _durable(dialogue, "")
    elif dialogue.agrees("Adjust mirror start", "Start with a later message", "opt_start_seq") and not _start_sequence(
        dialogue, source, "Mirror Start Sequence"
    ):
        _start_time(dialogue, source, "Mirror Start Time (YYYY:MM:DD HH:MM:SS)")
    if dialogue.agrees(
        "Adjust mirror filter and transform", "Copy some subjects only, or rename them", "subject_transforms"
    ):
        _filters(dialogue, source, "Filter mirror by subject (enter to finish)")
    _import(dialogue, source, "mirror")
    return source


def prompt_source(name: str) -> Config:
    dialogue = _OriginDialogue("--source")
    source: Config = {"name": name}
    durable = f"Configure a custom durable consumer for source {name}"
    if dialogue.agrees(durable, "Copy through an existing consumer", "consumer"):
        source["consumer"] = _durable(dialogue, f" for source {name}")
    elif dialogue.agrees(f"Adjust source {name} start", "Start with a later message", "opt_start_seq"):
        _start_sequence(dialogue, source, f"{name} Start Sequence")
        _start_time(dialogue, source, f"{name} Start Time (YYYY:MM:DD HH:MM:SS)")
    adjust = f"Adjust source {name} filter and transform"
    if dialogue.agrees(adjust, "Copy some subjects only, or rename them", "subject_transforms"):
        _filters(dialogue, source, f"Filter {name} by subject (enter to finish)")
    _import(dialogue, source, f"source {name}")
    return source


def _durable(dialogue: _OriginDialogue, of: str) -> dict[str, str]:
    name = dialogue.asks(
        f"Durable consumer name{of}", "The consumer to copy through", "consumer", read=read_name, required=True
    )
    subject = dialogue.asks(
        f"Delivery subject{of}", "The delivery subject of that consumer", "consumer", read=read_subject, required=True
    )
    return {"name": name, "deliver_subject": subject}


def _start_sequence(dialogue: _OriginDialogue, source: Config, text: str) -> bool:
    """Return whether a sequence above 0 was given."""
    meaning = "The first message to copy, 0 for no particular one"
    seq = int(dialogue.asks(text, meaning, "opt_start_seq", read=WHOLE.read, default="0"))
    if seq > 0:
        source["opt_start_seq"] = seq
    return seq > 0


def _start_time(dialogue: _OriginDialogue, source: Config, text: str) -> None:
    moment = dialogue.asks(
        text, "The time of the first message to copy, in UTC", "opt_start_time", read=read_start_time
    )
    if moment:
        source["opt_start_time"] = moment


def _filters(dialogue: _OriginDialogue, source: Config, text: str) -> None:
    """Ask for filters and their destinations; a single one without a destination is a plain filter."""
    transforms: list[dict[str, Any]] = []
    while subject := dialogue.asks(text, "The subjects to copy", "filter_subject", read=read_subject):
        becomes = dialogue.asks("Subject transform destination", "The subjects that they become", "subject_transforms")
        transforms.append({"src": subject, "dest": becomes})
    if len(transforms) == 1 and not transforms[0]["dest"]:
        source["filter_subject"] = transforms[0]["src"]
    elif transforms:
        source["subject_transforms"] = transforms


def _import(dialogue: _OriginDialogue, source: Config, what: str) -> None:
    elsewhere = "The stream is not in this account and domain"
    if dialogue.agrees(f"Import {what} from a different JetStream domain", elsewhere, "external"):
        domain = dialogue.asks(
            "Foreign JetStream domain name", "The name of its domain", "external", read=read_name, required=True
        )
        deliver = dialogue.asks(
            "Delivery prefix", "The prefix under which its messages are delivered", "external", read=read_subject
        )
        source["external"] = {"api": f"$JS.{domain}.API", "deliver": deliver}
    elif dialogue.agrees(f"Import {what} from a different account", elsewhere, "external"):
        api = dialogue.asks(
            "Foreign account API prefix",
            "The prefix under which its API is imported",
            "external",
            read=read_subject,
            required=True,
        )
        deliver = dialogue.asks(
            "Foreign account delivery prefix",
            "The prefix under which its messages are delivered",
            "external",
            read=read_subject,
            required=True,
        )
        source["external"] = {"api": api, "deliver": deliver}


REQUIRED_MAX_BYTES = "256MB"
"""Offered limit if the account requires a limit of bytes."""
RETENTIONS = (("Limits", "limits"), ("Interest", "interest"), ("Work Queue", "workqueue"))


def prompt_stream_name() -> str:
    help = "The name that the stream will have. Settable as the first argument"
    return str(prompt(Question("Stream Name", help, required=True, read=asset_name)))


def prompt_stream(config: Config, given: Given, max_bytes_required: bool) -> None:
    dialogue = FlagDialogue(STREAM_FLAGS, config, given)
    if not (config.get("mirror") or config.get("sources")):
        dialogue.ask("--subjects", "Subjects", check=_check_subjects, required=True)
    dialogue.ask("--storage", "Storage", "file", (("file", "file"), ("memory", "memory")))
    dialogue.ask("--replicas", "Replication", "1", check=_check_replicas)
    dialogue.ask("--retention", "Retention Policy", "limits", RETENTIONS)
    dialogue.ask("--discard", "Discard Policy", "old", (("New", "new"), ("Old", "old")))
    dialogue.ask("--max-msgs", "Stream Messages Limit", "-1")
    if config.get("subjects"):
        dialogue.ask("--max-msgs-per-subject", "Per Subject Messages Limit", "-1")
    if max_bytes_required:
        dialogue.ask("--max-bytes", "Total Stream Size", REQUIRED_MAX_BYTES, check=_check_max_bytes)
    else:
        dialogue.ask("--max-bytes", "Total Stream Size", "-1")
    dialogue.ask("--max-age", "Message TTL", "-1")
    dialogue.ask("--max-msg-size", "Max Message Size", "-1")
    if not config.get("mirror"):
        window_ns = window_of(int(config.get("max_age") or 0))
        dialogue.ask("--dupe-window", "Duplicate tracking time window", format_duration(window_ns))
    dialogue.confirm("--allow-rollup", "Allow message Roll-ups")
    dialogue.confirm("--deny-delete", "Allow message deletion", True, inverted=True)
    dialogue.confirm("--deny-purge", "Allow purging subjects or the entire stream", True, inverted=True)
    mirror = config.get("mirror")
    if mirror and mirror.keys() == {"name"}:
        config["mirror"] = prompt_mirror(mirror["name"])
    if config.get("sources"):
        config["sources"] = [
            prompt_source(source["name"]) if source.keys() == {"name"} else source for source in config["sources"]
        ]


def _check_subjects(subjects: list[str]) -> None:
    for subject in subjects:
        read_subject(subject)


def _check_replicas(number: int) -> None:
    if number < 1:
        raise ValueError("expected at least 1")


def _check_max_bytes(size: int) -> None:
    if size <= 0:
        raise ValueError("MaxBytes is required per Account Settings")
