"""Steps of random programs with consumers: making and changing them, pulls, acks, subscriptions."""

from __future__ import annotations

import json
from typing import Any

from tests.support.program_chance import (
    ANSWERS,
    CONSUMERS,
    FILTERS,
    HOUR,
    LATER,
    PAST,
    SECOND,
    TARGETS,
    Chance,
)
from tests.support.twins import Step


class ConsumerSteps(Chance):
    """Steps with consumers."""

    def consumer_fields(self, name: str) -> dict[str, Any]:
        """Return random fields of a consumer configuration."""
        own = name.lower()
        filters = [f"{own}.{leaf}" for leaf in FILTERS]
        fields = self.chosen(
            deliver_policy=(0.4, ("last", "new", "by_start_sequence", "by_start_time", "last_per_subject", "all")),
            ack_policy=(0.9, ("explicit", "explicit", "explicit", "all", "none")),
            ack_wait=(0.2, (HOUR,)),
            max_deliver=(0.3, (1, 2, 3)),
            backoff=(0.08, ([HOUR], [HOUR, 2 * HOUR])),
            filter_subject=(0.4, filters),
            filter_subjects=(0.12, (filters[:2], [filters[2], filters[6]], [filters[0], filters[4]])),
            sample_freq=(0.1, ("100%", "100", "0")),
            max_waiting=(0.1, (1, 2)),
            max_ack_pending=(0.3, (1, 2, 5)),
            headers_only=(0.15, (True,)),
            max_batch=(0.1, (2, 5)),
            max_expires=(0.05, (100 * SECOND,)),
            max_bytes=(0.05, (400,)),
            inactive_threshold=(0.2, (HOUR,)),
            mem_storage=(0.1, (True,)),
            metadata=(0.05, ({"k": "v"},)),
            pause_until=(0.05, (LATER, PAST)),
            description=(0.05, ("about",)),
        )
        policy = fields.get("deliver_policy")
        if policy == "by_start_sequence":
            fields["opt_start_seq"] = self.rng.choice((1, 3, 8, 50))
        if policy == "by_start_time":
            fields["opt_start_time"] = self.rng.choice((PAST, LATER))
        if "filter_subject" in fields and self.rng.random() < 0.9:
            fields.pop("filter_subjects", None)
        if "backoff" in fields:
            fields["max_deliver"] = 5
        return fields | self.kind_fields()

    def kind_fields(self) -> dict[str, Any]:
        """Return what makes a consumer a push consumer, or one with priority groups."""
        kind = self.rng.random()
        if kind < 0.25:
            return {
                "deliver_subject": self.rng.choice(TARGETS),
                **self.chosen(
                    deliver_group=(0.15, ("g",)), flow_control=(0.15, (True,)), idle_heartbeat=(0.2, (HOUR,))
                ),
            }
        if kind < 0.4:
            return {
                "priority_groups": ["g"],
                "priority_policy": self.rng.choice(("overflow", "pinned_client", "prioritized")),
                **self.chosen(priority_timeout=(0.3, (HOUR,))),
            }
        return {}

    def consume(self, name: str, consumer: str) -> Step:
        """Return the creation of a consumer, or of one that is there."""
        fields = self.consumer_fields(name)
        fields["name"] = consumer
        if self.rng.random() < 0.6:
            fields["durable_name"] = consumer
        else:
            fields["inactive_threshold"] = HOUR
        body: dict[str, Any] = {"stream_name": name, "config": fields}
        if self.rng.random() < 0.2:
            body["action"] = self.rng.choice(("create", "update"))
        subject = f"$JS.API.CONSUMER.CREATE.{name}.{consumer}"
        if "filter_subject" in fields and self.rng.random() < 0.3:
            subject += "." + fields["filter_subject"]
        return Step("ask", subject, json.dumps(body).encode())

    def new_consumer(self, name: str) -> Step:
        """Return the creation of any consumer."""
        return self.consume(name, self.rng.choice(CONSUMERS))

    def update_consumer(self, name: str) -> Step:
        """Return an update of a consumer."""
        consumer = self.rng.choice(CONSUMERS)
        fields = self.consumer_fields(name)
        keys = self.rng.sample(sorted(fields), min(len(fields), self.rng.randint(1, 2)))
        return Step("reuse", f"$JS.API.CONSUMER.CREATE.{name}.{consumer}", patch={key: fields[key] for key in keys})

    def pull(self, name: str) -> Step:
        """Return a pull request."""
        consumer = self.rng.choice(CONSUMERS)
        body = self.chosen(
            batch=(0.8, (1, 2, 5, 20)),
            expires=(0.3, (60 * SECOND, 90 * SECOND)),
            no_wait=(0.6, (True,)),
            max_bytes=(0.1, (1, 150, 600)),
            idle_heartbeat=(0.05, (20 * SECOND,)),
            group=(0.2, ("g", "g", "h")),
            min_pending=(0.05, (1, 4)),
            min_ack_pending=(0.05, (1, 3)),
            priority=(0.05, (0, 1, 5, 10)),
            id=(0.02, ("wrong",)),
        )
        said = self.rng.choice((json.dumps(body), json.dumps(body), json.dumps(body), json.dumps(body), "", "3"))
        if said.startswith("{") and "no_wait" not in body and "expires" not in body and self.rng.random() < 0.7:
            said = json.dumps({**body, "no_wait": True})
        inbox = f"p{self.rng.randint(1, 99)}"
        return Step("ask", f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer}", said.encode(), inbox=inbox)

    def ack(self, _name: str) -> Step:
        """Return an answer to a delivered message."""
        return Step("ack", body=self.rng.choice(ANSWERS), number=self.rng.choice((0, 0, self.rng.randint(0, 50))))

    def manage(self, name: str) -> Step:
        """Return a request about a consumer, or a list."""
        consumer = self.rng.choice(CONSUMERS)
        own = name.lower()
        verb, body = self.rng.choice(
            (
                (f"CONSUMER.DELETE.{name}.{consumer}", {}),
                (f"CONSUMER.PAUSE.{name}.{consumer}", {"pause_until": LATER}),
                (f"CONSUMER.PAUSE.{name}.{consumer}", {}),
                (f"CONSUMER.PAUSE.{name}.{consumer}", {}),
                (f"CONSUMER.RESET.{name}.{consumer}", {}),
                (f"CONSUMER.RESET.{name}.{consumer}", {"seq": self.sequence()}),
                (f"CONSUMER.UNPIN.{name}.{consumer}", {"group": "g"}),
                (f"CONSUMER.LIST.{name}", {"offset": self.rng.randint(0, 3)}),
                ("STREAM.NAMES", {"subject": self.rng.choice((f"{own}.>", ">", "o.x", f"{own}.x"))}),
                ("STREAM.LIST", {"offset": self.rng.randint(0, 3)}),
                (
                    f"STREAM.INFO.{name}",
                    {"subjects_filter": f"{own}.{self.rng.choice(FILTERS)}", "offset": self.rng.randint(0, 3)},
                ),
            )
        )
        return Step("ask", f"$JS.API.{verb}", json.dumps(body).encode() if body else b"")

    def listen(self, _name: str) -> Step:
        """Return the beginning or the end of a subscription on a delivery subject."""
        target = self.rng.choice(TARGETS)
        return Step(self.rng.choice(("listen", "leave")), target, inbox=target)
