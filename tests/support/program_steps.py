"""Random programs for `tests.support.twins`: streams, consumers, publishes, pulls, acks, in every form.

A program knows nothing about what its steps will bring: names come from small pools, so that most steps meet something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.support.program_chance import CONSUMERS, TARGETS
from tests.support.program_consumers import ConsumerSteps
from tests.support.program_publishes import PublishSteps
from tests.support.program_streams import StreamSteps
from tests.support.twins import Step


class Maker(StreamSteps, PublishSteps, ConsumerSteps):
    """A program in the making."""

    def program(self, length: int) -> list[Step]:
        """Return a program."""
        for target in TARGETS[:2]:
            self.steps.append(Step("listen", target, inbox=target))
        self.steps.append(Step("listen", "again.>", inbox="again"))
        for name in self.streams:
            self.steps.append(self.create(name))
        for name in self.streams:
            self.steps += [self.say(name), self.consume(name, self.rng.choice(CONSUMERS))]
        while len(self.steps) < length:
            self.steps.append(self.step())
        return self.steps

    def step(self) -> Step:
        """Return one more step."""
        name = self.rng.choice(self.streams)
        makers = [make for make, weight in WEIGHTS.items() for _ in range(weight)]
        return self.rng.choice(makers)(self, name)

    def destroy(self, name: str) -> Step:
        """Return the end of a stream, or its creation once more."""
        if self.rng.random() < 0.3:
            return Step("ask", f"$JS.API.STREAM.DELETE.{name}")
        return self.create(name)


WEIGHTS: Final[dict[Callable[[Maker, str], Step], int]] = {
    Maker.say: 12,
    Maker.flood: 4,
    Maker.atomic: 4,
    Maker.fast: 3,
    Maker.pull: 14,
    Maker.ack: 16,
    Maker.get: 6,
    Maker.new_consumer: 6,
    Maker.update_consumer: 4,
    Maker.manage: 6,
    Maker.delete_message: 4,
    Maker.purge: 3,
    Maker.update: 4,
    Maker.listen: 1,
    Maker.destroy: 1,
}
