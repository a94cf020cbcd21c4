"""Counters of hand-made rounds, and the figures made of them."""

import jax.numpy as jnp
import numpy as np

from sbjax import Statistics, summary


def rounds(rows: int, draft_length: int, *each) -> Statistics:
    """Counts rounds given as (alive, trunk, accepted, emitted, draft forwards)."""
    statistics = Statistics.create(rows, draft_length)
    for alive, trunk, accepted, emitted, forwards in each:
        arrays = (jnp.array(x, jnp.int32) for x in (trunk, accepted, emitted))
        statistics = statistics.count(jnp.array(alive, bool), *arrays, jnp.int32(forwards))
    return statistics.host()


def test_a_run_counted_by_hand():
    counters = rounds(
        3, 3,
        # row 0: refused at its second token; row 1: all accepted; row 2: nothing drafted
        ([1, 1, 1], [3, 3, 0], [1, 3, 0], [2, 4, 1], 3),
        # row 0: refused at once; row 1: ended by a stop token at its second token; row 2: has ended
        ([1, 1, 0], [3, 3, 0], [0, 3, 0], [1, 2, 0], 3),
        # row 0: accepts one of a short trunk; whatever is said of ended rows does not count
        ([1, 0, 0], [1, 3, 3], [1, 3, 2], [2, 0, 0], 1),
    )  # fmt: skip
    assert counters.rounds.tolist() == [3, 2, 1]
    assert counters.emitted.tolist() == [5, 6, 1]
    assert counters.drafted.tolist() == [7, 6, 0]
    assert counters.tested.tolist() == [[3, 1, 0], [2, 2, 1], [0, 0, 0]]
    assert counters.accepted.tolist() == [[2, 0, 0], [2, 2, 1], [0, 0, 0]]
    assert counters.rolled_back.tolist() == [5, 0, 0]
    assert (counters.target_forwards, counters.draft_forwards) == (3, 7)
    figures = summary(counters)
    assert figures == {
        "tokens": 12,
        "rounds": 6,
        "mean_accepted_length": 2.0,
        "drafted": 13,
        "accepted": 7,
        "acceptance": 7 / 9,
        "tested_by_position": [5, 3, 1],
        "accepted_by_position": [4, 2, 1],
        "acceptance_by_position": [4 / 5, 2 / 3, 1.0],
        "rolled_back": 5,
        "rollback": 5 / 13,
        "target_forwards": 3,
        "draft_forwards": 7,
    }


def test_nothing_is_counted_behind_a_stop_token():
    # Four of four accepted, but the second one ended the text (or the limit did).
    figures = summary(rounds(1, 4, ([1], [4], [4], [2], 4)))
    assert (figures["tokens"], figures["mean_accepted_length"], figures["accepted"]) == (2, 2.0, 2)
    assert figures["tested_by_position"] == [1, 1, 0, 0]


def test_a_refusal_behind_the_end_is_not_counted():
    # Refused at the fourth, but the text ended with the second.
    figures = summary(rounds(1, 4, ([1], [4], [3], [2], 4)))
    assert figures["tested_by_position"] == figures["accepted_by_position"] == [1, 1, 0, 0]


def test_a_row_that_breaks_off_counts_what_became_text():
    figures = summary(rounds(1, 4, ([1], [4], [3], [0], 4)))
    assert figures["tokens"] == figures["accepted"] == 0 and figures["rounds"] == 1


def test_plain_decoding_has_an_acceptance_of_nothing():
    figures = summary(rounds(2, 0, ([1, 1], [0, 0], [0, 0], [1, 1], 0), ([1, 0], [0, 0], [0, 0], [1, 0], 0)))
    assert figures["mean_accepted_length"] == 1 and figures["acceptance_by_position"] == []
    assert figures["acceptance"] == figures["rollback"] == 0 and figures["draft_forwards"] == 0


def test_figures_are_plain_numbers():
    for value in summary(rounds(2, 2, ([1, 1], [2, 2], [1, 2], [2, 3], 2))).values():
        for one in value if isinstance(value, list) else [value]:
            assert type(one) in (int, float)


def test_counters_start_at_zero_each_in_its_own_buffer():
    statistics = Statistics.create(2, 3)
    leaves = [getattr(statistics, name) for name in statistics.__dataclass_fields__]
    assert not any(np.asarray(leaf).any() for leaf in leaves)
    assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == len(leaves)
