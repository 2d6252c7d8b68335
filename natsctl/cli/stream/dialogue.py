"""The questions of `stream add`, in order, without those that flags answer.

Source: docs/compatibility.md#questions-of-stream-add-and-consumer-add.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from natsctl.api.subjects import is_valid_name, is_valid_subject
from natsctl.api.times import parse_time
from natsctl.api.units import format_duration
from natsctl.cli.framework.flags import WHOLE, Config, Flag, Given
from natsctl.cli.framework.prompts import Question, asset_name, prompt, prompt_confirm
from natsctl.cli.stream.create import STREAM_FLAGS
from natsctl.client.asset_config import window_of

_LOOSE_TIME = re.compile(r"(\d{4})[:-](\d{2})[:-](\d{2})[ T](\d{2}:\d{2}:\d{2})")


def read_start_time(text: str) -> str:
    """Return the wire form of `2026:01:31 12:00:00` (or with dashes), which is UTC, or of an RFC 3339 time.

    Return "" for an empty text.
    """
    if not text:
        return ""
    loose = _LOOSE_TIME.fullmatch(text)
    moment = f"{loose[1]}-{loose[2]}-{loose[3]}T{loose[4]}Z" if loose else text
    parse_time(moment)
    return moment


def read_subject(text: str) -> str:
    """Return a subject, which may have wildcards; "" for an empty text. Raises ValueError."""
    if text and not is_valid_subject(text):
        raise ValueError(f"{text!r} is not a subject: tokens between dots, none of them empty, > only as the last one")
    return text


def read_name(text: str) -> str:
    """Return a name of a stream, consumer or domain. Raises ValueError."""
    if not is_valid_name(text):
        raise ValueError("a name has no blanks, and none of . * > \\ /")
    return text


@dataclass(frozen=True, slots=True)
class _Dialogue:
    """Questions about one origin; their help names the field in the JSON of the flag."""

    flag: str

    def help(self, meaning: str, field: str) -> str:
        """Return the help that `?` shows."""
        return f"""{meaning}. Settable using {self.flag} '{{"name": …, "{field}": …}}'"""

    def agrees(self, text: str, meaning: str, field: str) -> bool:
        """Return whether the user says yes; enter means no."""
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
        """Return the value of the user's answer."""
        return prompt(Question(text, self.help(meaning, field), default, read, required))


def prompt_mirror(name: str) -> Config:
    """Return the mirror of that name, with the user's changes."""
    dialogue = _Dialogue("--mirror")
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
    """Return the source of that name, with the user's changes."""
    dialogue = _Dialogue("--source")
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


def _durable(dialogue: _Dialogue, of: str) -> dict[str, str]:
    name = dialogue.asks(
        f"Durable consumer name{of}", "The consumer to copy through", "consumer", read=read_name, required=True
    )
    subject = dialogue.asks(
        f"Delivery subject{of}", "The delivery subject of that consumer", "consumer", read=read_subject, required=True
    )
    return {"name": name, "deliver_subject": subject}


def _start_sequence(dialogue: _Dialogue, source: Config, text: str) -> bool:
    """Return whether a sequence above 0 was given."""
    meaning = "The first message to copy, 0 for no particular one"
    seq = int(dialogue.asks(text, meaning, "opt_start_seq", read=WHOLE.read, default="0"))
    if seq > 0:
        source["opt_start_seq"] = seq
    return seq > 0


def _start_time(dialogue: _Dialogue, source: Config, text: str) -> None:
    moment = dialogue.asks(
        text, "The time of the first message to copy, in UTC", "opt_start_time", read=read_start_time
    )
    if moment:
        source["opt_start_time"] = moment


def _filters(dialogue: _Dialogue, source: Config, text: str) -> None:
    """Ask for filters and their destinations; a single one without a destination is a plain filter."""
    transforms: list[dict[str, Any]] = []
    while subject := dialogue.asks(text, "The subjects to copy", "filter_subject", read=read_subject):
        becomes = dialogue.asks("Subject transform destination", "The subjects that they become", "subject_transforms")
        transforms.append({"src": subject, "dest": becomes})
    if len(transforms) == 1 and not transforms[0]["dest"]:
        source["filter_subject"] = transforms[0]["src"]
    elif transforms:
        source["subject_transforms"] = transforms


def _import(dialogue: _Dialogue, source: Config, what: str) -> None:
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


FLAGS: dict[str, Flag] = {flag.name: flag for flag in STREAM_FLAGS}
REQUIRED_MAX_BYTES = "256MB"
"""Offered limit if the account requires a limit of bytes."""

Skip = Callable[[Config, Given], bool]


class Step(NamedTuple):
    """One question of the dialogue: its flag, and the condition for leaving it out."""

    flag: str
    text: str
    default: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    required: bool = False
    skip: Skip = lambda config, given: False


class Switch(NamedTuple):
    """One yes/no question: its flag; `inverted` if yes means that the flag is off."""

    flag: str
    text: str
    default: bool
    inverted: bool


def _copies(config: Config, given: Given) -> bool:
    return bool(config.get("mirror") or config.get("sources"))


def _no_subjects(config: Config, given: Given) -> bool:
    return not config.get("subjects")


def _mirrors(config: Config, given: Given) -> bool:
    return bool(config.get("mirror"))


RETENTIONS = (("Limits", "limits"), ("Interest", "interest"), ("Work Queue", "workqueue"))
STEPS: tuple[Step, ...] = (
    Step("--subjects", "Subjects", required=True, skip=_copies),
    Step("--storage", "Storage", "file", (("file", "file"), ("memory", "memory"))),
    Step("--replicas", "Replication", "1"),
    Step("--retention", "Retention Policy", "limits", RETENTIONS),
    Step("--discard", "Discard Policy", "old", (("New", "new"), ("Old", "old"))),
    Step("--max-msgs", "Stream Messages Limit", "-1"),
    Step("--max-msgs-per-subject", "Per Subject Messages Limit", "-1", skip=_no_subjects),
    Step("--max-bytes", "Total Stream Size", "-1"),
    Step("--max-age", "Message TTL", "-1"),
    Step("--max-msg-size", "Max Message Size", "-1"),
    Step("--dupe-window", "Duplicate tracking time window", skip=_mirrors),
)
SWITCHES: tuple[Switch, ...] = (
    Switch("--allow-rollup", "Allow message Roll-ups", False, False),
    Switch("--deny-delete", "Allow message deletion", True, True),
    Switch("--deny-purge", "Allow purging subjects or the entire stream", True, True),
)


def prompt_stream_name() -> str:
    """Return the name for a new stream."""
    help = "The name that the stream will have. Settable as the first argument"
    return str(prompt(Question("Stream Name", help, required=True, read=asset_name)))


def prompt_stream(config: Config, given: Given, max_bytes_required: bool) -> None:
    """Ask for everything that was not given, and add the answers to the configuration."""
    for step in STEPS:
        if step.flag not in given and not step.skip(config, given):
            flag = FLAGS[step.flag]
            flag.place(config, prompt(_question(step, flag, config, max_bytes_required)))
    for switch in SWITCHES:
        if switch.flag not in given:
            flag = FLAGS[switch.flag]
            answer = prompt_confirm(switch.text, switch.default, _help(flag))
            flag.place(config, answer is not switch.inverted)
    _prompt_origins(config)


def _prompt_origins(config: Config) -> None:
    """Ask about a mirror and sources that were given by name alone."""

    mirror = config.get("mirror")
    if mirror and mirror.keys() == {"name"}:
        config["mirror"] = prompt_mirror(mirror["name"])
    if config.get("sources"):
        config["sources"] = [
            prompt_source(source["name"]) if source.keys() == {"name"} else source for source in config["sources"]
        ]


def _question(step: Step, flag: Flag, config: Config, max_bytes_required: bool) -> Question:
    default = step.default
    if step.flag == "--dupe-window":
        default = format_duration(window_of(int(config.get("max_age") or 0)))
    if step.flag == "--max-bytes" and max_bytes_required:
        default = REQUIRED_MAX_BYTES

    def read(text: str) -> object:
        value = flag.kind.read(text)
        if step.flag == "--replicas" and value < 1:
            raise ValueError("expected at least 1")
        if step.flag == "--subjects":
            return [read_subject(subject) for subject in value]
        if step.flag == "--max-bytes" and max_bytes_required and value <= 0:
            raise ValueError("MaxBytes is required per Account Settings")
        return value

    return Question(step.text, _help(flag), default, read, step.required, step.choices)


def _help(flag: Flag) -> str:
    return f"{flag.help[0].upper()}{flag.help[1:]}. Settable using {flag.name}"
