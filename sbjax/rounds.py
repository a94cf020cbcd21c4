"""The round: propose, verify, settle, retain, commit. Every method is a policy of it."""

import jax
import jax.numpy as jnp

from sbjax import hrad
from sbjax.branching import Branches, propose, reachable
from sbjax.checking import Checked, Question, check
from sbjax.commit import commit
from sbjax.drafting import Chain, draft_chain, no_chain
from sbjax.engine import Engine, State
from sbjax.indexing import at, span
from sbjax.language_model import Params
from sbjax.lookahead_round import lookahead_round
from sbjax.lookup import looked_up
from sbjax.methods.lookahead import Lookahead
from sbjax.outcomes import Settled, retain, settle, with_head, without_bonus
from sbjax.verification import Outcome, SharedNoise, Trunk, shared_noise, verify


def one_round(engine: Engine, params: dict[str, Params], state: State) -> State:
    """One round of all rows.

    Args:
      engine: the static part.
      params: ``{"target": ..., "draft": ...}``, and "predictor" where the method reads features.
      state: the run so far; finished rows stay as they are.

    Returns:
      The run after the round.
    """
    if engine.method.overlapped:
        return overlapped_round(engine, params, state)
    if isinstance(engine.method, Lookahead):
        return lookahead_round(engine, params, state)
    return serial_round(engine, params, state)


def serial_round(engine: Engine, params: dict[str, Params], state: State) -> State:
    """Drafts a trunk, checks it in one target forward, commits what stands; see ``one_round``."""
    shared = round_noise(engine, state, engine.trunk_limit + 1)
    if engine.method.draft_length:
        chain = draft_chain(engine, params["draft"], state, shared and shared.rows)
    elif engine.trunk_limit:
        chain = looked_up(engine, state)
    else:
        chain = no_chain(state)
    trunk = chain.trunk
    checked, cache = check(
        engine, params["target"], question(state, trunk), state.target, shared, state.sampling
    )
    if engine.rule == "match":
        outcome, noise = checked.outcome, chain.noise
    else:
        outcome, noise = verify(
            engine.rule, checked.logits, trunk, state.text_hash, chain.noise, state.sampling
        )
    after, emitted = commit(state.replace(target=cache, noise=noise), trunk.tokens, outcome, checked)
    counted = state.statistics.count(
        state.alive, trunk.length, outcome.accepted, emitted, chain.forwards, checked.width
    )
    return after.replace(
        draft=_draft_cache(state, chain, outcome),
        memory=engine.method.adapt(state.memory, trunk.length, outcome.accepted, state.alive),
        statistics=counted,
    )


def round_noise(engine: Engine, state: State, positions: int) -> SharedNoise | None:
    """The shared noise of ``positions`` behind the text, made once for draft, branches and target."""
    if engine.rule != "match":
        return None
    places = span(state.length, positions)
    return shared_noise(state.noise, places, engine.vocab_size, state.sampling)


def question(state: State, trunk: Trunk) -> Question:
    """What the target is asked in a round: nothing of finished rows."""
    pending = at(state.text, state.length - 1)[:, None]
    tokens = jnp.concatenate([pending, trunk.tokens], 1)
    return Question(tokens, jnp.where(state.alive, trunk.length, 0), state.length)


def _draft_cache(state: State, chain: Chain, outcome: Outcome):
    """The draft keeps what it processed of the accepted text: rollback is this length."""
    if chain.cache is None:
        return None
    kept = jnp.minimum(state.length + outcome.accepted, chain.processed)
    return chain.cache.with_length(jnp.where(state.alive, kept, state.draft.length))


def overlapped_round(engine: Engine, params: dict[str, Params], state: State) -> State:
    """Branches are drafted while the trunk is checked, neither knowing of the other; see ``one_round``."""
    state, branches, checked, outcome = draft_and_check(engine, params, state)
    logits = hrad.target_logits(engine, params, checked.features, outcome)
    return finish_overlapped(engine, params.get("predictor"), state, branches, checked, outcome, logits)


def draft_and_check(
    engine: Engine, params: dict[str, Params], state: State
) -> tuple[State, Branches, Checked, Outcome]:
    """The first half of an overlapped round: all that the two models do.

    Returns:
      The run with the noise and the target's cache of behind it, the branches, what the target said, and
      the outcome.
    """
    method = engine.method
    shared = round_noise(engine, state, method.line_length + method.draft_length)
    branches, noise = propose(engine, params["draft"], state, shared and shared.rows)
    trunk = line_trunk(engine, state)
    checked, target = check(
        engine, params["target"], question(state, trunk), state.target, shared, state.sampling
    )
    outcome, noise = _decide(engine, state, branches, checked, noise)
    return state.replace(noise=noise, target=target), branches, checked, outcome


def line_trunk(engine: Engine, state: State) -> Trunk:
    """The part of the line that the target checks."""
    drawn, limit = state.line.drawn, engine.trunk_limit
    laws = None if drawn.laws is None else drawn.laws[:, :limit]
    return Trunk(drawn.tokens[:, :limit], state.line.trunk, laws)


def _decide(engine: Engine, state: State, branches: Branches, checked: Checked, noise):
    """The outcome of the round, and the noise."""
    if engine.rule == "match":
        return checked.outcome, noise
    block = with_head(state.line, branches)
    # There is no row behind the main head: nothing is emitted behind it.
    rows = jnp.pad(checked.logits, ((0, 0), (0, 1), (0, 0)))
    outcome, noise = verify(engine.rule, rows, block, state.text_hash, noise, state.sampling)
    return without_bonus(outcome, block), noise


def finish_overlapped(
    engine: Engine,
    predictor: Params | None,
    state: State,
    branches: Branches,
    checked: Checked,
    outcome: Outcome,
    logits: jax.Array | None,
) -> State:
    """What follows a verification: survivor, text, next trunk, counters.

    Args:
      engine: the static part.
      predictor: H-RAD's parameters, or None.
      state: the run, its target cache as the target left it.
      branches: what was drafted meanwhile.
      checked: what the target said.
      outcome: what was decided.
      logits: ``[B, 3]``, the target's part of H-RAD's verdict, or None.
    """
    settled = settle(engine, state, branches, outcome)
    trunk = line_trunk(engine, state)
    drawn, length = settled.line.drawn, settled.line.length
    verdict = hrad.decide(predictor, logits, drawn.confidence, length, engine.method.trust)
    after, emitted = commit(state, trunk.tokens, outcome, checked)
    line = retain(engine, settled.line, after.limit - after.length, verdict)
    counted = _count(engine, state, branches, checked, outcome, settled, emitted, line.trunk, verdict)
    return after.replace(draft=settled.cache, line=line, statistics=counted)


def _count(
    engine: Engine,
    state: State,
    branches: Branches,
    checked,
    outcome,
    settled: Settled,
    emitted,
    kept,
    verdict,
):
    """Adds an overlapped round to the statistics, whose docstring says what is what."""
    line, ran, steps = state.line, reachable(engine, state), engine.method.draft_length
    started = jnp.where(settled.survivor == 0, line.head_start, 0)
    fresh = (~line.hit).astype(jnp.int32)
    drawn = jnp.where(ran, at(branches.length, settled.survivor) - started + fresh, 0)
    headed = line.hit | ran
    main = headed & (outcome.accepted == line.trunk) & (outcome.token == branches.head[:, 0])
    lost = line.hit & ~main
    refused = jnp.where(lost, line.trunk + 1 - outcome.accepted, 0)
    others = jnp.maximum(branches.live.sum(1) - 1, 0)
    choices = jnp.arange(3, dtype=jnp.int32)[None]
    decided = (settled.line.length > 0)[:, None] & (choices == verdict[:, None])
    return state.statistics.count(
        state.alive,
        jnp.where(headed, line.trunk + 1, 0),
        outcome.accepted + main.astype(jnp.int32),
        emitted,
        jnp.int32(steps),
        checked.width,
        drafted=drawn,
        rolled_back=refused + jnp.where(settled.hit, 0, drawn),
        trimmed=jnp.where(lost, line.head_start, 0),
        hits_main=settled.hit & (settled.survivor == 0),
        hits_hedge=settled.hit & (settled.survivor > 0),
        misses=ran & ~settled.hit,
        branches=branches.live.sum(1),
        hedge_drafted=others * steps,
        verdicts=decided if engine.method.features else jnp.zeros_like(decided),
        kept=kept,
        dropped=jnp.maximum(settled.line.length - 1, 0) - kept,
    )
