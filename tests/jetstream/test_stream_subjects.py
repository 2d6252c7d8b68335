"""The subjects and reservations of streams agree with a comparison of all of them."""

import random

import pytest

from natsctl.api.stream import StorageType, StreamConfig
from natsctl.api.subjects import overlaps
from natsctl.broker.deferred_work import LongWork
from natsctl.jetstream.account import StreamSubjects
from tests.support import tiers


def drawn(rng: random.Random) -> str:
    tokens = [rng.choice(("a", "b", "c", "*")) for _ in range(rng.randint(1, 4))]
    return ".".join([*tokens, ">"] if rng.random() < 0.3 else tokens)


@pytest.mark.parametrize("seed", tiers.seeds(4, 20))
def test_overlaps_and_sums_are_those_of_all_streams(seed: int) -> None:
    rng = random.Random(seed)
    subjects, configs = StreamSubjects(LongWork()), dict[str, StreamConfig]()
    for step in range(300):
        name = f"S{rng.randint(0, 12)}"
        if rng.random() < 0.3:
            subjects.drop(name)
            configs.pop(name, None)
        else:
            chosen = [drawn(rng) for _ in range(rng.randint(0, 3))]
            storage = rng.choice(list(StorageType))
            config = StreamConfig(name=name, subjects=chosen, storage=storage, max_bytes=rng.choice((-1, 0, 7, step)))
            subjects.put(config)
            configs[name] = config
        wanted = StreamConfig(name=name, subjects=[drawn(rng), drawn(rng)])
        others = [own for c in configs.values() if c.name != name for own in c.subjects]
        assert subjects.taken(wanted) is any(overlaps(own, other) for own in others for other in wanted.subjects)
        for storage in StorageType:
            sizes = [max(c.max_bytes, 0) for c in configs.values() if c.storage is storage]
            assert subjects.reserved[storage] == sum(sizes)
    for name in list(configs):
        subjects.drop(name)
    assert not subjects._index.count and not any(subjects.reserved.values())
