"""What happened in a run, counted inside the compiled loop."""

import chex
import jax
import jax.numpy as jnp
import numpy as np


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Statistics:
    """Counters of a run. ``G`` is the longest trunk of the method.

    Attributes:
      rounds: ``[B]`` int32, rounds in which the row was alive; each is one target forward.
      emitted: ``[B]`` int32, tokens that became text; never past a stop token or the limit.
      drafted: ``[B]`` int32, tokens drafted.
      tested: ``[B, G]`` int32, how often the trunk token at each position was reached by the test.
      accepted: ``[B, G]`` int32, how often it was accepted; ``accepted / tested`` is the acceptance.
      rolled_back: ``[B]`` int32, trunk tokens refused by the target, or behind a refused one.
      target_forwards: ``[]`` int32, forwards of the target over the whole batch.
      draft_forwards: ``[]`` int32, forwards of the draft over the whole batch.
    """

    rounds: jax.Array
    emitted: jax.Array
    drafted: jax.Array
    tested: jax.Array
    accepted: jax.Array
    rolled_back: jax.Array
    target_forwards: jax.Array
    draft_forwards: jax.Array

    @classmethod
    def create(cls, rows: int, draft_length: int) -> "Statistics":
        """All counters at zero."""
        shapes = {
            "tested": (rows, draft_length),
            "accepted": (rows, draft_length),
            "target_forwards": (),
            "draft_forwards": (),
        }
        # A buffer for each: the state is donated, and one buffer cannot be donated twice.
        return cls(**{f: jnp.zeros(shapes.get(f, (rows,)), jnp.int32) for f in cls.__dataclass_fields__})

    def count(self, alive, trunk, accepted, emitted, draft_forwards) -> "Statistics":
        """Adds one round.

        Args:
          alive: ``[B]`` bool, rows that were running.
          trunk: ``[B]`` int32, length of the trunk.
          accepted: ``[B]`` int32, how many trunk tokens the target agreed to.
          emitted: ``[B]`` int32, how many tokens became text.
          draft_forwards: ``[]`` int32, forwards of the draft in this round.
        """
        index = jnp.arange(self.tested.shape[1], dtype=jnp.int32)[None]
        trunk = jnp.where(alive, trunk, 0)
        accepted = jnp.where(alive, accepted, 0)
        # Nothing counts as tested or accepted behind the end of the text.
        inside = index < jnp.minimum(trunk, emitted)[:, None]
        return self.replace(
            rounds=self.rounds + alive.astype(jnp.int32),
            emitted=self.emitted + emitted,
            drafted=self.drafted + trunk,
            tested=self.tested + (inside & (index <= accepted[:, None])).astype(jnp.int32),
            accepted=self.accepted + (inside & (index < accepted[:, None])).astype(jnp.int32),
            rolled_back=self.rolled_back + trunk - accepted,
            target_forwards=self.target_forwards + 1,
            draft_forwards=self.draft_forwards + draft_forwards,
        )

    def host(self) -> "Statistics":
        """The counters as numpy arrays."""
        return jax.tree.map(np.asarray, self)


def summary(statistics: Statistics) -> dict[str, float | int | list]:
    """The figures of a run over all its rows, as plain numbers.

    ``mean_accepted_length`` is tokens a round with the bonus token, ``acceptance`` accepted over
    tested (not over drafted), ``rollback`` rolled back over drafted.
    """
    host = statistics.host()
    tested, accepted = host.tested.sum(0), host.accepted.sum(0)
    rounds, drafted = int(host.rounds.sum()), int(host.drafted.sum())
    return {
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
        "target_forwards": int(host.target_forwards),
        "draft_forwards": int(host.draft_forwards),
    }


def _ratio(part, whole) -> float:
    return float(part) / float(whole) if whole else 0.0
