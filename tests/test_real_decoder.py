"""A decoder with attention, windows and rotary positions in the loop, compiled as users compile it."""

import jax
import numpy as np

from sbjax import (
    Autoregressive,
    DecoderModel,
    Lookahead,
    Model,
    SpecBranch,
    SpS,
    from_hf_config,
    generate,
)

VOCAB, NEW = 40, 24
CONFIG = {
    "model_type": "gemma3_text", "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "tie_word_embeddings": True,
    "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip


def test_speculation_gives_plain_decodings_text_and_a_perfect_draft_is_never_refused():
    model = DecoderModel(from_hf_config(CONFIG))
    # Sharper logits than an untrained model has, so that rounding does not decide.
    target, other = (Model(model, jax.tree.map(lambda x: 3 * x, model.init(seed))) for seed in (0, 1))
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, VOCAB, n).tolist() for n in range(1, 21)]  # around the window
    settings = {"temperature": [0.0, 1.0] * 10, "max_new_tokens": NEW}
    lookahead = Lookahead(window=4, ngram=3, guesses=3, pool=16)
    plain, drafted, perfect, looked, branched = (
        generate(target, prompts, draft=draft, method=method, **settings)
        for draft, method in (
            (None, Autoregressive()),
            (other, SpS(4)),
            (target, SpS(4)),
            (None, lookahead),
            (other, SpecBranch(4, branches=3, epsilon=0.2)),
        )
    )
    wanted = [each.tokens for each in plain.generations]
    assert [each.tokens for each in drafted.generations] == wanted
    assert [each.tokens for each in perfect.generations] == wanted
    assert [each.tokens for each in looked.generations] == wanted
    assert looked.statistics["accepted"] > 0
    # Branches reach over the window.
    assert [each.tokens for each in branched.generations] == wanted
    assert min(branched.statistics[name] for name in ("hits_main", "hits_hedge", "misses")) > 10
    assert 0 < drafted.statistics["acceptance"] < 1 == perfect.statistics["acceptance"]
    assert perfect.statistics["rounds"] == 20 * 5  # 24 tokens by five
    assert len({tuple(tokens) for tokens in wanted}) == 20
