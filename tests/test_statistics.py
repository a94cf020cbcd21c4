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
    assert (counters.target_forwards.tolist(), int(counters.draft_forwards)) == ([3], 7)
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
        "target_forwards_by_width": {1: 3},
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


HIT, HEDGE, MISS = "hits_main", "hits_hedge", "misses"


def overlapped(statistics: Statistics, *rows: dict, width: int) -> Statistics:
    """Counts a round with branches; a row says what is not zero of it, None that it has ended."""
    names = ("trunk", "accepted", "emitted", "drafted", "rolled_back", "trimmed", "branches")
    names += (HIT, HEDGE, MISS, "hedge_drafted", "kept", "dropped")
    alive = jnp.array([row is not None for row in rows])
    # Whatever is said of rows that have ended does not count.
    amounts = {
        name: jnp.array([(row or {name: 9}).get(name, 0) for row in rows], jnp.int32) for name in names
    }
    emitted = jnp.where(alive, amounts.pop("emitted"), 0)
    verdict = jnp.array([(row or {"verdict": 1}).get("verdict", -1) for row in rows])[:, None]
    amounts["verdicts"] = (jnp.arange(3)[None] == verdict).astype(jnp.int32)
    first = (amounts.pop("trunk"), amounts.pop("accepted"), emitted)
    return statistics.count(alive, *first, jnp.int32(4), width, **amounts)


def test_rounds_with_branches_counted_by_hand():
    """Four draft steps and three branches; with the main head, a trunk of m has m + 1 tested tokens."""
    statistics = Statistics.create(2, 4, (1, 4))
    # After the prompt nothing is drafted: row 0 hits with its first token, row 1 misses and loses all four.
    statistics = overlapped(
        statistics,
        {"trunk": 1, "accepted": 1, "emitted": 1, "drafted": 4, "branches": 3, HIT: 1, "hedge_drafted": 8,
         "kept": 1, "dropped": 2, "verdict": 1},
        {"trunk": 1, "emitted": 1, "drafted": 4, "rolled_back": 4, "branches": 3, MISS: 1,
         "hedge_drafted": 8},
        width=0,
    )  # fmt: skip
    # Row 0: a trunk of one, refused at once, and a hedge for it; the head (rolled back) and the head start
    # (trimmed) are lost. Row 1 has ended.
    statistics = overlapped(
        statistics,
        {"trunk": 2, "emitted": 1, "drafted": 4, "rolled_back": 2, "trimmed": 2, "branches": 3, HEDGE: 1,
         "hedge_drafted": 8, "kept": 3, "verdict": 2},
        None,
        width=1,
    )  # fmt: skip
    # Row 0: three trunk tokens and the main head, all accepted.
    statistics = overlapped(
        statistics,
        {"trunk": 4, "accepted": 4, "emitted": 4, "drafted": 4, "branches": 2, HIT: 1, "hedge_drafted": 4},
        None,
        width=1,
    )  # fmt: skip
    host = statistics.host()
    assert host.rounds.tolist() == [3, 1] and host.target_forwards.tolist() == [1, 2]
    figures = summary(host)
    assert (figures["tokens"], figures["drafted"], figures["draft_forwards"]) == (7, 16, 12)
    assert figures["target_forwards_by_width"] == {1: 1, 4: 2}
    assert figures["tested_by_position"] == [4, 1, 1, 1]
    assert figures["accepted_by_position"] == [2, 1, 1, 1] and figures["acceptance"] == 5 / 7
    assert (figures["rolled_back"], figures["rollback"]) == (6, 6 / 16)
    assert (figures["trimmed"], figures["trim"]) == (2, 2 / 16)
    assert (figures[HIT], figures[HEDGE], figures[MISS], figures["hit_rate"]) == (2, 1, 1, 3 / 4)
    assert (figures["branches"], figures["hedge_drafted"]) == (11, 28)
    assert (figures["kept"], figures["dropped"], figures["verdicts"]) == (4, 2, [0, 1, 1])


def test_what_is_counted_by_name_replaces_what_serial_rounds_imply():
    statistics = Statistics.create(1, 2)
    one, two = jnp.array([1]), jnp.array([2])
    statistics = statistics.count(one > 0, two, one, two, jnp.int32(2), rolled_back=0 * one, drafted=2 * two)
    assert (int(statistics.drafted[0]), int(statistics.rolled_back[0])) == (4, 0)


def test_figures_of_branches_are_left_out_without_branches():
    assert not {HIT, "hit_rate", "trim", "verdicts"} & set(summary(rounds(1, 2, ([1], [2], [1], [2], 2))))


def test_figures_are_plain_numbers():
    statistics = Statistics.create(1, 4, (1, 4))
    row = {"trunk": 1, "accepted": 1, "emitted": 1, "drafted": 4, "branches": 3, HIT: 1}
    for counters in (rounds(2, 2, ([1, 1], [2, 2], [1, 2], [2, 3], 2)), overlapped(statistics, row, width=0)):
        for value in summary(counters).values():
            many = [*value, *value.values()] if isinstance(value, dict) else value
            for one in many if isinstance(many, list) else [many]:
                assert type(one) in (int, float)


def test_counters_start_at_zero_each_in_its_own_buffer():
    statistics = Statistics.create(2, 3, (1, 4))
    leaves = [getattr(statistics, name) for name in statistics.__dataclass_fields__]
    assert not any(np.asarray(leaf).any() for leaf in leaves if leaf is not statistics.widths)
    assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == len(leaves)
