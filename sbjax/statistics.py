"""What happened in a run, counted inside the compiled loop."""

import chex
import jax
import jax.numpy as jnp
import numpy as np


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Statistics:
    """Counters of a run.

    With overlap the main line is what goes on from round to round: the line itself, and what the
    surviving branch drafted behind it, or the main branch if none survived. The other branches' work is
    hedge work. Every token of the main line is accepted, rolled back, trimmed, or still there at the end.

    Attributes:
      rounds: ``[B]`` int32, rounds in which the row was alive; each is one target forward.
      emitted: ``[B]`` int32, tokens that became text; never past a stop token or the limit.
      drafted: ``[B]`` int32, tokens drafted on the main line.
      tested: ``[B, n]`` int32, how often the drafted token at each position was reached by the test. With
        overlap the main head is tested behind the trunk.
      accepted: ``[B, n]`` int32, how often it was accepted; ``accepted / tested`` is the acceptance.
      rolled_back: ``[B]`` int32, tokens refused by the target or behind a refused one, main heads
        included, and continuations lost on a miss.
      trimmed: ``[B]`` int32, tokens that retention kept from being verified and that were then lost.
      hits_main: ``[B]`` int32, rounds whose outcome was the main branch's.
      hits_hedge: ``[B]`` int32, rounds whose outcome was another branch's.
      misses: ``[B]`` int32, rounds with branches whose outcome was none of them.
      branches: ``[B]`` int32, branches drafted.
      hedge_drafted: ``[B]`` int32, tokens drafted by branches that did not go on.
      verdicts: ``[B, 3]`` int32, H-RAD's: nothing will be accepted, undecided, everything.
      kept: ``[B]`` int32, tokens that retention put into trunks.
      dropped: ``[B]`` int32, tokens that could have been in a trunk and that retention left out.
      target_forwards: ``[n]`` int32, forwards of the target over the whole batch, by width.
      widths: ``[n]`` int32, the widths: tokens a forward.
      draft_forwards: ``[]`` int32, forwards of the draft over the whole batch and all branches.
    """

    rounds: jax.Array
    emitted: jax.Array
    drafted: jax.Array
    tested: jax.Array
    accepted: jax.Array
    rolled_back: jax.Array
    trimmed: jax.Array
    hits_main: jax.Array
    hits_hedge: jax.Array
    misses: jax.Array
    branches: jax.Array
    hedge_drafted: jax.Array
    verdicts: jax.Array
    kept: jax.Array
    dropped: jax.Array
    target_forwards: jax.Array
    widths: jax.Array
    draft_forwards: jax.Array

    @classmethod
    def create(cls, rows: int, tested: int, widths: tuple[int, ...] = (1,)) -> "Statistics":
        """All counters at zero, for rounds that test so many positions with forwards of these widths."""
        shapes = {
            "tested": (rows, tested),
            "accepted": (rows, tested),
            "verdicts": (rows, 3),
            "target_forwards": (len(widths),),
            "draft_forwards": (),
        }
        # A buffer for each: the state is donated, and one buffer cannot be donated twice.
        zeros = {f: jnp.zeros(shapes.get(f, (rows,)), jnp.int32) for f in cls.__dataclass_fields__}
        return cls(**zeros | {"widths": jnp.array(widths, jnp.int32)})

    def count(
        self, alive, tested, accepted, emitted, draft_forwards, width=0, **others: jax.Array
    ) -> "Statistics":
        """Adds one round; one without a running row counts for nothing.

        Args:
          alive: ``[B]`` bool, rows that were running.
          tested: ``[B]`` int32, how many drafted tokens the target was asked about.
          accepted: ``[B]`` int32, how many of them it agreed to.
          emitted: ``[B]`` int32, how many tokens became text.
          draft_forwards: ``[]`` int32, forwards of the draft in this round.
          width: index of the target forward's width.
          **others: amounts ``[B]`` of other counters by name; without ``drafted`` and ``rolled_back``
            what was tested was drafted, and what was not accepted rolled back.
        """
        index = jnp.arange(self.tested.shape[1], dtype=jnp.int32)[None]
        tested = jnp.where(alive, tested, 0)
        accepted = jnp.where(alive, accepted, 0)
        ran = jnp.any(alive).astype(jnp.int32)
        amounts = {"drafted": tested, "rolled_back": tested - accepted, **others}
        # Nothing counts as tested or accepted behind the end of the text.
        inside = index < jnp.minimum(tested, emitted)[:, None]
        return self.replace(
            rounds=self.rounds + alive.astype(jnp.int32),
            emitted=self.emitted + emitted,
            tested=self.tested + (inside & (index <= accepted[:, None])).astype(jnp.int32),
            accepted=self.accepted + (inside & (index < accepted[:, None])).astype(jnp.int32),
            target_forwards=self.target_forwards.at[width].add(ran),
            draft_forwards=self.draft_forwards + ran * draft_forwards,
            **{name: getattr(self, name) + _of(alive, amount) for name, amount in amounts.items()},
        )

    def host(self) -> "Statistics":
        """The counters as numpy arrays."""
        return jax.tree.map(np.asarray, self)


def _of(alive: jax.Array, amount: jax.Array) -> jax.Array:
    """The amounts ``[B, ...]`` of the rows that were running."""
    return jnp.where(jnp.expand_dims(alive, tuple(range(1, amount.ndim))), amount.astype(jnp.int32), 0)


def summary(statistics: Statistics) -> dict[str, float | int | list]:
    """The figures of a run over all its rows, as plain numbers.

    ``mean_accepted_length`` is tokens a round with the bonus token, ``acceptance`` accepted over tested
    (not over drafted), ``rollback`` and ``trim`` rolled back and trimmed over drafted, ``hit_rate`` hits
    over rounds with branches. Figures of branches are left out where there were none.
    """
    host = statistics.host()
    tested, accepted = host.tested.sum(0), host.accepted.sum(0)
    rounds, drafted = int(host.rounds.sum()), int(host.drafted.sum())
    figures = {
        "tokens": int(host.emitted.sum()),
        "rounds": rounds,
        "mean_accepted_length": _ratio(host.emitted.sum(), rounds),
        "drafted": drafted,
        "accepted": int(accepted.sum()),
        "acceptance": _ratio(accepted.sum(), tested.sum()),
        "tested_by_position": tested.tolist(),
        "accepted_by_position": accepted.tolist(),
        "acceptance_by_position": [_ratio(a, t) for a, t in zip(accepted, tested, strict=True)],
        "rolled_back": int(host.rolled_back.sum()),
        "rollback": _ratio(host.rolled_back.sum(), drafted),
        "target_forwards": int(host.target_forwards.sum()),
        "target_forwards_by_width": dict(
            zip(host.widths.tolist(), host.target_forwards.tolist(), strict=True)
        ),
        "draft_forwards": int(host.draft_forwards),
    }
    return figures | (_branch_figures(host, drafted) if host.branches.any() else {})


def _branch_figures(host: Statistics, drafted: int) -> dict[str, float | int | list]:
    counts = ("trimmed", "hits_main", "hits_hedge", "misses", "branches", "hedge_drafted", "kept", "dropped")
    figures = {name: int(getattr(host, name).sum()) for name in counts}
    hits = figures["hits_main"] + figures["hits_hedge"]
    return figures | {
        "trim": _ratio(figures["trimmed"], drafted),
        "hit_rate": _ratio(hits, hits + figures["misses"]),
        "verdicts": host.verdicts.sum(0).tolist(),
    }


def _ratio(part, whole) -> float:
    return float(part) / float(whole) if whole else 0.0
