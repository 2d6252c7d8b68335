"""Steps of random programs that make, change, empty and read streams."""

from __future__ import annotations

import json
from typing import Any

from tests.support.program_chance import FILTERS, HOUR, LATER, LEAVES, PAST, Chance
from tests.support.twins import STREAMS, Step


class StreamSteps(Chance):
    """Steps with streams."""

    def stream_fields(self, name: str) -> dict[str, Any]:
        """Return random fields of a stream configuration."""
        own = name.lower()
        return self.chosen(
            retention=(0.4, ("interest", "workqueue")),
            storage=(0.3, ("memory",)),
            max_msgs=(0.2, (1, 5, 12)),
            max_bytes=(0.12, (300, 2000)),
            max_msgs_per_subject=(0.25, (1, 2, 4)),
            max_msg_size=(0.08, (60, 100)),
            max_age=(0.15, (HOUR, 30 * HOUR)),
            max_consumers=(0.05, (1, 2)),
            discard=(0.25, ("new",)),
            discard_new_per_subject=(0.1, (True,)),
            duplicate_window=(0.2, (HOUR // 60, HOUR)),
            no_ack=(0.03, (True,)),
            first_seq=(0.1, (5, 100)),
            allow_direct=(0.7, (True,)),
            allow_rollup_hdrs=(0.5, (True,)),
            deny_delete=(0.08, (True,)),
            deny_purge=(0.06, (True,)),
            allow_msg_ttl=(0.4, (True,)),
            subject_delete_marker_ttl=(0.12, (HOUR,)),
            allow_msg_counter=(0.07, (True,)),
            allow_atomic=(0.4, (True,)),
            allow_batched=(0.3, (True,)),
            allow_msg_schedules=(0.25, (True,)),
            compression=(0.1, ("s2",)),
            persist_mode=(0.05, ("async",)),
            description=(0.05, ("about",)),
            metadata=(0.05, ({"k": "v"},)),
            subject_transform=(
                0.1,
                (
                    {"src": f"{own}.x.*", "dest": own + ".y.{{wildcard(1)}}"},
                    {"src": f"{own}.>", "dest": f"{own}.>"},
                    {"src": f"{own}.x", "dest": f"{own}.y"},
                    {"src": f"{own}.*", "dest": own + ".{{partition(3,1)}}"},
                ),
            ),
            republish=(
                0.2,
                (
                    {"src": ">", "dest": "again.>"},
                    {"src": f"{own}.x", "dest": f"again.{own}"},
                    {"src": f"{own}.*", "dest": "again.{{wildcard(1)}}", "headers_only": True},
                    {"dest": "again.>"},
                ),
            ),
            consumer_limits=(0.06, ({"max_ack_pending": 3}, {"inactive_threshold": HOUR}, {})),
            sealed=(0.01, (True,)),
        )

    def create(self, name: str) -> Step:
        """Return the creation of a stream."""
        fields = self.stream_fields(name)
        own = name.lower()
        subjects = self.rng.choice(
            ([f"{own}.>"], [f"{own}.>"], [f"{own}.x", f"{own}.x.*", f"{own}.y"], [f"{own}.>", "o.>"])
        )
        body: dict[str, Any] = {"name": name, "subjects": subjects, **fields}
        self.note(name, fields)
        if self.upstreams and self.rng.random() < 0.5:
            body.update(self.upstream(name))
            if "mirror" in body:
                del body["subjects"]
        return Step("ask", f"$JS.API.STREAM.CREATE.{name}", json.dumps(body).encode())

    def upstream(self, name: str) -> dict[str, Any]:
        """Return a mirror or sources."""
        others = [other for other in STREAMS[:3] if other != name]
        origin = self.rng.choice(others)
        own = origin.lower()
        chosen = {
            "name": origin,
            **self.chosen(
                opt_start_seq=(0.2, (1, 3)),
                filter_subject=(0.3, (f"{own}.x", f"{own}.x.*", f"{own}.>")),
                subject_transforms=(0.1, ([{"src": f"{own}.>", "dest": "moved.>"}],)),
            ),
        }
        if "subject_transforms" in chosen:
            chosen.pop("filter_subject", None)
        return {"mirror": chosen} if self.rng.random() < 0.4 else {"sources": [chosen]}

    def update(self, name: str) -> Step:
        """Return an update of a stream."""
        fields = self.stream_fields(name)
        keys = self.rng.sample(sorted(fields), min(len(fields), self.rng.randint(1, 2)))
        patch = {key: fields[key] for key in keys}
        patch |= self.chosen(
            max_msgs=(0.1, (-1, 3)),
            max_msgs_per_subject=(0.1, (-1, 1)),
            max_bytes=(0.05, (-1, 250)),
            subjects=(0.1, ([f"{name.lower()}.>"], [f"{name.lower()}.x", f"{name.lower()}.x.1"])),
            discard=(0.1, ("old", "new")),
            republish=(0.03, (None,)),
            subject_transform=(0.05, (None,)),
            retention=(0.05, ("limits", "interest")),
        )
        self.note(name, patch)
        return Step("update", f"$JS.API.STREAM.UPDATE.{name}", patch=patch)

    def purge(self, name: str) -> Step:
        """Return a purge in any form."""
        body = self.chosen(
            filter=(0.5, [f"{name.lower()}.{leaf}" for leaf in FILTERS]),
            seq=(0.3, (1, 4, 9, 100)),
            keep=(0.3, (0, 1, 2, 5)),
        )
        return Step("ask", f"$JS.API.STREAM.PURGE.{name}", json.dumps(body).encode() if body else b"")

    def delete_message(self, name: str) -> Step:
        """Return the deletion of a message."""
        body: dict[str, Any] = {"seq": self.sequence(), **self.chosen(no_erase=(0.5, (True, False)))}
        return Step("ask", f"$JS.API.STREAM.MSG.DELETE.{name}", json.dumps(body).encode())

    def get(self, name: str) -> Step:
        """Return a request for a stored message or several."""
        own = name.lower()
        subject = f"{own}.{self.rng.choice(LEAVES)}"
        wild = f"{own}.{self.rng.choice(FILTERS)}"
        body: dict[str, Any] = self.rng.choice(
            (
                {"seq": self.sequence()},
                {"last_by_subj": self.rng.choice((subject, wild))},
                {"seq": self.sequence(), "next_by_subj": self.rng.choice((subject, wild))},
                {"next_by_subj": wild},
                {"start_time": self.rng.choice((PAST, LATER))},
                {"start_time": PAST, "next_by_subj": wild},
            )
        )
        if self.rng.random() < 0.1:
            body.update(no_hdr=True)
        if self.rng.random() < 0.3:
            return Step("ask", f"$JS.API.STREAM.MSG.GET.{name}", json.dumps(body).encode())
        if self.rng.random() < 0.25:
            return Step("ask", f"$JS.API.DIRECT.GET.{name}.{subject}")
        if self.rng.random() < 0.4:
            body = {**body, "batch": self.rng.choice((1, 3, 100)), **self.chosen(max_bytes=(0.3, (1, 150, 1000)))}
        elif self.rng.random() < 0.4:
            body = {
                "multi_last": self.rng.sample(
                    [f"{own}.{leaf}" for leaf in (*LEAVES, *FILTERS)], self.rng.randint(1, 3)
                ),
                **self.chosen(
                    batch=(0.4, (1, 2, 10)),
                    up_to_seq=(0.3, (1, 5, 20)),
                    up_to_time=(0.1, (PAST, LATER)),
                    max_bytes=(0.2, (1, 150)),
                    seq=(0.1, (1, 4)),
                    no_hdr=(0.1, (True,)),
                ),
            }
        return Step("ask", f"$JS.API.DIRECT.GET.{name}", json.dumps(body).encode())
