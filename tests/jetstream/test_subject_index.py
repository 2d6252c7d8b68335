"""The claims of streams agree with a look at all of them."""

import random

import pytest

from natsctl.api.stream import StorageType, StreamConfig
from natsctl.api.subjects import overlaps
from natsctl.jetstream.subject_index import SubjectIndex


def drawn(rng: random.Random) -> str:
    tokens = [rng.choice(("a", "b", "c", "*")) for _ in range(rng.randint(1, 4))]
    return ".".join([*tokens, ">"] if rng.random() < 0.3 else tokens)


@pytest.mark.parametrize("seed", range(20))
def test_overlaps_and_sums_are_those_of_all_streams(seed: int) -> None:
    rng = random.Random(seed)
    claims, configs = SubjectIndex(), dict[str, StreamConfig]()
    for step in range(300):
        name = f"S{rng.randint(0, 12)}"
        if rng.random() < 0.3:
            claims.drop(name)
            configs.pop(name, None)
        else:
            subjects = [drawn(rng) for _ in range(rng.randint(0, 3))]
            storage = rng.choice(list(StorageType))
            config = StreamConfig(name=name, subjects=subjects, storage=storage, max_bytes=rng.choice((-1, 0, 7, step)))
            claims.put(config)
            configs[name] = config
        wanted = [drawn(rng), drawn(rng)]
        expected = {
            name for name, c in configs.items() if any(overlaps(own, other) for own in c.subjects for other in wanted)
        }
        assert set(claims.overlapping(wanted)) == expected
        for storage in StorageType:
            sizes = [max(c.max_bytes, 0) for c in configs.values() if c.storage is storage]
            assert claims.reserved[storage] == sum(sizes)
    for name in list(configs):
        claims.drop(name)
    assert not claims._root.next and not any(claims.reserved.values())
