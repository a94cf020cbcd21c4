"""Generates with the pair inside the package, plain and speculatively: same text, both times.

Exit codes: 0 the texts are the same token for token, 1 they differ or something failed, 130 interrupted.
"""

import argparse
import statistics
import sys

from command_line import flags
from command_line.exits import guarded

PROMPTS = (
    "class Stack:\n    def __init__(self):\n        self._items = []\n\n    def push(self, item):\n",
    "class TestList(unittest.TestCase):\n    def test_append(self):\n",
    "def fibonacci(n):\n    if n < 2:\n        return",
)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    # Imported late so that --help is quick.
    from command_line.comparison import compare
    from command_line.tables import make_console

    import sbjax

    console = make_console()

    def work() -> int:
        if options.target is None:
            target, draft = sbjax.load_default_pair()
        else:
            target, draft = sbjax.load(options.target), sbjax.load(options.draft)
        console.print(f"target: {_size(target)}, draft: {_size(draft)}; compiling and measuring")
        compared = compare(
            target,
            draft,
            sbjax.SpS(draft_length=options.draft_length),
            list(PROMPTS),
            temperatures=(0.0, 0.8),
            max_new_tokens=options.max_new_tokens,
            repeats=options.repeats,
        )
        return report(compared, options.draft_length, console)

    return guarded("demo", work)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", metavar="FOLDER", help="another target than the package's; needs --draft")
    parser.add_argument("--draft", metavar="FOLDER", help="another draft than the package's; needs --target")
    parser.add_argument(
        "--draft-length", type=flags.positive, default=4, metavar="G", help="default: %(default)s"
    )
    parser.add_argument(
        "--max-new-tokens", type=flags.positive, default=80, metavar="N", help="default: %(default)s"
    )
    parser.add_argument(
        "--repeats",
        type=flags.positive,
        default=5,
        metavar="N",
        help="timed runs a side (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if (options.target is None) != (options.draft is None):
        parser.error("--target and --draft only go together")
    return options


def _size(model) -> str:
    import jax

    return f"{sum(leaf.size for leaf in jax.tree.leaves(model.params)) / 1e6:.2f} million parameters"


def report(compared, draft_length: int, console) -> int:
    """Prints texts, equality, statistics and times; returns the exit code."""
    from command_line.tables import statistics_table

    for each in compared:
        for prompt, text in zip(PROMPTS, each.texts, strict=True):
            console.rule(f"temperature {each.temperature}", align="left", characters="-")
            console.print(prompt, style="dim", end="", markup=False)
            console.print(text, markup=False)
        console.rule(characters="-")
        sides = {"plain": each.plain.figures(), f"SpS({draft_length})": each.speculative.figures()}
        title = (
            f"temperature {each.temperature}, {len(PROMPTS)} prompts, seconds: median of {each.repeats} runs"
        )
        console.print(statistics_table(title, sides))
        console.print(verdict(each), soft_wrap=True)
    return 0 if all(each.first_difference is None for each in compared) else 1


def verdict(each) -> str:
    """What a table means: whether the texts are the same, which side is quicker and why."""
    plain, fast = each.plain, each.speculative
    same = "The text is the same, token for token."
    if each.first_difference is not None:
        same = f"THE TEXT DIFFERS: {each.first_difference}."
    ratio = statistics.median(each.ratios)
    cost = (fast.median / fast.summary["rounds"]) / (plain.median / plain.summary["rounds"])
    gain = fast.summary["mean_accepted_length"]
    quicker = f"{ratio:.2f} times as fast as" if ratio >= 1 else f"SLOWER than ({ratio:.2f} times as fast as)"
    return (
        f"{same}\nSpeculative decoding is {quicker} plain decoding here: a round gives {gain:.2f} tokens and "
        f"costs {cost:.2f} steps of plain decoding.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
