"""What a verification means for the branches: the survivor, the next line, and how much of it is trunk."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sbjax.branch_cache import SuffixCache, adopt
from sbjax.branching import Branches, reachable
from sbjax.cache import KVCache, after
from sbjax.engine import Engine, State
from sbjax.indexing import at
from sbjax.line import Drawn, Line
from sbjax.verification import Outcome, Trunk


class Settled(NamedTuple):
    """The draft's side of a round's end.

    Attributes:
      hit: ``[B]`` bool, a branch matched the outcome.
      survivor: ``[B]`` int32, which one; 0 after a miss.
      line: what is drafted behind the new text; nothing after a miss. Its trunk is not chosen yet.
      cache: the draft's cache with the survivor's tokens.
    """

    hit: jax.Array
    survivor: jax.Array
    line: Line
    cache: KVCache


def settle(engine: Engine, state: State, branches: Branches, outcome: Outcome) -> Settled:
    """Finds the branch with the outcome's fork and head, and keeps what it drafted.

    Args:
      engine: the static part.
      state: the run before the round.
      branches: what was drafted during it.
      outcome: what the target decided.
    """
    same = (branches.fork == outcome.accepted[:, None]) & (branches.head == outcome.token[:, None])
    found = same & branches.live
    hit, survivor = found.any(1), jnp.argmax(found, 1).astype(jnp.int32)
    drawn = jax.tree.map(lambda leaf: at(leaf, survivor), branches.behind)
    length = jnp.where(hit, at(branches.length, survivor), 0)
    line = Line(drawn=drawn, length=length, trunk=jnp.zeros_like(length))
    return Settled(hit, survivor, line, _adopt(engine, state, branches, outcome, survivor, line))


def _adopt(
    engine: Engine, state: State, branches: Branches, outcome: Outcome, survivor, line: Line
) -> KVCache:
    """The survivor's keys and values behind the text it builds on.

    After a miss branch 0 is written: its first token is the pending one that a row without a line had not
    read, everything else lies behind the new length.
    """
    suffix = SuffixCache(
        prefix=None,
        visible=None,
        keys=tuple(at(leaf, survivor) for leaf in branches.suffix_keys),
        values=tuple(at(leaf, survivor) for leaf in branches.suffix_values),
        length=None,
    )
    start = after(at(branches.base, survivor), branches.behind.tokens.min(2), branches.head)
    kept = state.length + outcome.accepted + 1
    length = jnp.where(
        reachable(engine, state), kept + line.length - 1, jnp.minimum(state.draft.length, kept - 1)
    )
    cache = adopt(state.draft, suffix, start)
    return cache.with_length(jnp.where(state.alive, length, state.draft.length))


def retain(engine: Engine, line: Line, room: jax.Array, verdict: jax.Array) -> Line:
    """Chooses the next trunk.

    Args:
      engine: the static part.
      line: what is drafted.
      room: ``[B]`` int32, tokens that the row may still emit.
      verdict: ``[B]`` int32, H-RAD's; 1 everywhere without it.

    Returns:
      The line with its trunk: one token less than the row may emit at most, since the target adds one.
    """
    wanted = jax.vmap(engine.method.retain)(line.drawn.confidence, line.length, verdict)
    bound = jnp.minimum(line.length - 1, room - 1)
    return line.replace(trunk=jnp.maximum(jnp.minimum(wanted, bound), 0).astype(jnp.int32))


def with_head(line: Line, branches: Branches) -> Trunk:
    """The trunk and the main head as one block, for the rules that test tokens one by one.

    A row without a line has a head only since this round's first draft step.
    """
    fresh = ~line.hit & branches.live[:, 0]
    length = jnp.where(line.hit, line.trunk + 1, fresh.astype(jnp.int32))
    drawn: Drawn = line.drawn
    tokens = drawn.tokens.at[:, 0].set(jnp.where(fresh, branches.head[:, 0], drawn.tokens[:, 0]))
    first = jnp.where(fresh[:, None], branches.head_law, drawn.laws[:, 0])
    return Trunk(tokens, length, drawn.laws.at[:, 0].set(first))


def without_bonus(outcome: Outcome, block: Trunk) -> Outcome:
    """The outcome of a block whose last token is the main head: if all was accepted, the head is emitted."""
    whole = (outcome.accepted == block.length) & (block.length > 0)
    accepted = jnp.where(whole, block.length - 1, outcome.accepted)
    head = at(block.tokens, jnp.maximum(block.length - 1, 0))
    return Outcome(accepted, jnp.where(whole, head, outcome.token))
