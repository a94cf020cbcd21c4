r"""Generates text with a Hugging Face checkpoint, plain or speculatively.

Examples:
  python tools/generate.py --config configs/demo.toml "def fibonacci(n):"
  python tools/generate.py --target checkpoints/target --draft checkpoints/draft --draft-length 4 \
      --chat --temperature 0.8 --seed 1 --stream "Write quicksort in Python."
  python tools/generate.py --config configs/demo.toml --method SpecBranch --draft-length auto --branches 8 \
      "class Stack:"
  python tools/generate.py --target checkpoints/target --draft checkpoints/draft --batch 4 \
      --prompt-file prompts.jsonl --field prompt --json answers.jsonl
"""

import argparse
import sys
from pathlib import Path

from command_line import flags
from command_line.exits import guarded


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    # Imported late so that --help is quick.
    from command_line.continuations import run

    return guarded("generate", lambda: run(options), memory="a smaller --batch")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Texts go to stdout, all else to stderr. Ctrl-C ends the run and prints what is there.\n"
        "A text depends on target, prompt, seed and the prompt's place in the list, not on the draft,\n"
        "the draft length or --batch.\n"
        "A directory in the environment variable JAX_COMPILATION_CACHE_DIR makes later starts quicker.\n"
        "Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage, 130 interrupted.",
    )
    flags.add_models(parser)
    flags.add_method(parser)
    parser.add_argument(
        "--rule",
        choices=("match", "token", "block"),
        default="match",
        help="how drafted tokens are tested: by noise that draft and target share (gives the text of plain "
        "decoding with the same seed), by rejection sampling, or by block verification (the same law)",
    )
    _add_prompts(parser)
    _add_sampling(parser)
    _add_output(parser)
    options = parser.parse_args(arguments)
    if not options.prompts and not options.prompt_file:
        parser.error("there is no prompt: give some as arguments, or --prompt-file")
    if options.stream and str(options.json) == "-":
        parser.error("--stream and --json - would both write to stdout")
    if options.system is not None and not options.chat:
        parser.error("--system only goes with --chat")
    return options


def _add_prompts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("prompts")
    group.add_argument("prompts", nargs="*", metavar="PROMPT", help="a text to continue")
    group.add_argument(
        "--prompt-file",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a text file is one prompt, a .jsonl file one a line, - one on stdin; may be repeated",
    )
    group.add_argument(
        "--field",
        metavar="NAME",
        help="of a .jsonl file (default: prompt, question, turns, messages or text)",
    )
    group.add_argument("--limit", type=flags.positive, metavar="N", help="only the first N prompts")
    group.add_argument("--chat", action="store_true", help="texts are messages of a user")
    group.add_argument("--system", metavar="TEXT", help="with --chat: the system's message")


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling (defaults: the config's, then the checkpoint's)")
    group.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    group.add_argument("--top-k", type=int, metavar="K", help="only the K most probable tokens; 0 is off")
    group.add_argument("--top-p", type=float, metavar="P", help="only tokens that hold P of the probability")
    group.add_argument("--seed", type=int, default=0, help="of all chance (default: %(default)s)")
    group.add_argument("--samples", type=flags.positive, default=1, metavar="N", help="texts a prompt")
    group.add_argument("--max-new-tokens", type=flags.positive, metavar="N", help="tokens at most")
    group.add_argument(
        "--stop", action="append", metavar="TEXT", help="a string that ends a text; repeatable"
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        type=flags.assignment,
        metavar="NAME=VALUE",
        help="another setting of a generation_config.json, e.g. --set repetition_penalty=1.0",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("running and output")
    group.add_argument("--batch", type=flags.positive, default=1, metavar="B", help="prompts at a time")
    group.add_argument("--log-probs", action="store_true", help="log-probabilities, each token's in --json")
    group.add_argument("--stream", action="store_true", help="print text as it comes")
    group.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="append a JSON line a continuation, as soon as it is there; - for stdout instead of texts",
    )
    group.add_argument("--quiet", action="store_true", help="no progress bar and no statistics")


if __name__ == "__main__":
    sys.exit(main())
