"""The shipped pair and its predictor: branches, cuts and verdicts leave the text as it is."""

import pytest

import sbjax

pytestmark = pytest.mark.usefixtures("quick_compile")


def test_branches_with_verdicts_give_the_text_of_plain_decoding():
    target, draft = sbjax.load_default_pair()
    prompts = ["def f(self):\n", "import os\n", "class Queue:\n    ", "    for x in range("]
    settings = {
        "temperature": [0.0, 0.7, 1.0, 1.0],
        "top_k": [0, 0, 0, 40],
        "top_p": [1.0, 1.0, 1.0, 0.9],
        "max_new_tokens": 32,
    }
    plain = sbjax.generate(target, prompts, **settings)
    branched = sbjax.generate(
        target,
        prompts,
        draft=draft,
        method=sbjax.SpecBranch(draft_length=4, branches=4, epsilon=0.4, features=4),
        predictor=sbjax.load_default_predictor(),
        **settings,
    )
    assert branched.texts == plain.texts
    assert branched.statistics["rounds"] < plain.statistics["rounds"]
    assert sum(branched.statistics["verdicts"]) > 0 and branched.statistics["hits_main"] > 0
