"""Orders that can be done: what must come first does, what may not be is dropped, circles are told."""

from hypothesis import given
from hypothesis import strategies as st

from natsctl.desired.dependencies import ordered

edges = st.dictionaries(st.integers(0, 11), st.sets(st.integers(0, 11), max_size=4), max_size=12)


@given(edges, edges)
def test_every_order_can_be_done_and_leaves_out_only_circles(
    must: dict[int, set[int]], may: dict[int, set[int]]
) -> None:
    nodes = list(range(12))
    needs, circle = ordered(nodes, must, may)
    assert sorted(needs) == nodes
    done: set[int] = set()
    for node, first in needs.items():
        assert must.get(node, set()) - {node} <= first
        if node not in circle:
            assert first <= done
        done.add(node)
    stuck = set(circle)
    assert all(must.get(node, set()) & stuck for node in circle)


def test_a_wish_that_closes_a_circle_is_dropped() -> None:
    needs, circle = ordered(["a", "b"], {"a": {"b"}}, {"b": {"a"}})
    assert circle == []
    assert needs == {"b": set(), "a": {"b"}}
