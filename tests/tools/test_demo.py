"""tools/demo.py on a tiny pair: what it shows, and that a difference is an error."""

import demo
import pytest
from command_line.comparison import Comparison, Side, first_difference

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture
def arguments(tiny_pair) -> list[str]:
    pair = ["--target", f"{tiny_pair}/target", "--draft", f"{tiny_pair}/draft"]
    return [*pair, "--max-new-tokens", "6", "--repeats", "2", "--draft-length", "2"]


def test_the_texts_are_the_same_and_both_times_are_there(arguments, capsys):
    assert demo.main(arguments) == 0
    out = capsys.readouterr().out
    assert out.count("The text is the same, token for token.") == 2
    assert "tokens a second" in out and "def fibonacci" in out


def test_the_slower_side_is_called_slower_and_a_difference_fails(capsys):
    summary = {"tokens": 4, "rounds": 4, "drafted": 0, "mean_accepted_length": 1.0}
    fast = {**summary, "rounds": 2, "mean_accepted_length": 2.0}
    compared = Comparison(0.0, 2, Side([[1, 2]], summary, [1.0, 1.0]), Side([[1, 3]], fast, [2.0, 2.0]), [""])
    said = demo.verdict(compared)
    assert "SLOWER than (0.50 times as fast as)" in said and "gives 2.00 tokens and costs 4.00 steps" in said
    assert "THE TEXT DIFFERS: prompt 0 from token 1 on." in said


def test_first_difference():
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 2], [1, 3]) == 1
    assert first_difference([1, 2], [1]) == 1
