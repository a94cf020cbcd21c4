#!/usr/bin/env python
r"""Trains H-RAD's predictor for a pair of models: how much of a drafted line is worth verifying.

First rounds are recorded: the pair generates behind prompts with SpecBranch, whole lines are verified, and
what the target accepted of each is noted. Then the predictor learns from the target's last layers and the
draft's confidences, and is measured on prompts that it was not trained on, beside the confidences alone,
the layers alone, and the most frequent class. An interrupted recording goes on when the same command is
given again.

Examples:
  python tools/train_hrad.py --config configs/demo.toml --out hrad
  python tools/train_hrad.py --target checkpoints/target --draft checkpoints/draft --chat \
      --prompt-file humaneval.jsonl --prompt-file gsm8k.jsonl --out checkpoints/hrad
  python tools/generate.py --target checkpoints/target --draft checkpoints/draft --method SpecBranch \
      --predictor checkpoints/hrad "Write quicksort in Python."
"""

import argparse
import json
import sys
from pathlib import Path

from command_line import flags
from command_line.exits import guarded


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    # Imported late so that --help is quick.
    from hrad_training.job import run
    from rich.console import Console

    def work() -> int:
        print(json.dumps(run(options, Console(stderr=True, quiet=options.quiet)), indent=2))
        return 0

    return guarded("train_hrad", work, memory="a smaller --rows")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="The report goes to stdout as JSON, all else to stderr. Ctrl-C ends the recording behind the\n"
        "batch in hand, a second one at once.\n"
        "Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage, 130 interrupted.",
    )
    flags.add_models(parser)
    _add_prompts(parser)
    _add_rounds(parser)
    _add_training(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="gets the predictor")
    group.add_argument("--overwrite", action="store_true", help="replace a predictor that is there")
    group.add_argument(
        "--work",
        type=Path,
        default=Path(".cache/train_hrad"),
        metavar="FOLDER",
        help="recorded rounds; delete it to record anew (default: %(default)s)",
    )
    group.add_argument("--quiet", action="store_true", help="no progress bars and no tables")
    options = parser.parse_args(arguments)
    if options.prompt_file and options.source:
        parser.error("--prompt-file and --source are two ways to give prompts; choose one")
    if not options.prompt_file and (options.chat or options.field):
        parser.error("--chat and --field only go with --prompt-file")
    return options


def _add_prompts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("prompts (default: slices of Python files of the standard library)")
    group.add_argument(
        "--prompt-file",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a .jsonl file has a prompt a line, any other file is one; may be repeated",
    )
    group.add_argument("--field", metavar="NAME", help="of a .jsonl file (default: prompt, question, ...)")
    group.add_argument("--chat", action="store_true", help="texts are messages of a user")
    group.add_argument(
        "--source",
        type=Path,
        metavar="FOLDER",
        help="slices of its Python files, those that tools/train_pair.py would hold out",
    )
    group.add_argument(
        "--prompts", type=flags.positive, default=256, metavar="N", help="at most (default: %(default)s)"
    )
    group.add_argument(
        "--prompt-tokens",
        type=flags.positive,
        metavar="N",
        help="length of a slice (default: 64); longer prompts of files are left out (default: 512)",
    )


def _add_rounds(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("recorded rounds (defaults: SpecBranch as in the config, or its own)")
    group.add_argument("--draft-length", type=flags.positive, metavar="G", help="tokens drafted a round")
    group.add_argument("--branches", type=flags.positive, metavar="K", help="branches drafted a round")
    group.add_argument("--hedge", choices=("point", "outcomes"), help="where the branches fork")
    group.add_argument("--head-start", type=int, metavar="N", help="tokens a main branch may be ahead")
    group.add_argument(
        "--temperature",
        type=float,
        nargs="+",
        default=[0.0, 1.0],
        metavar="T",
        help="every prompt is run once at each (default: 0 1)",
    )
    group.add_argument(
        "--max-new-tokens", type=flags.positive, default=128, metavar="N", help="default: %(default)s"
    )
    group.add_argument(
        "--rows", type=flags.positive, default=16, metavar="B", help="at a time (default: %(default)s)"
    )
    group.add_argument(
        "--seed", type=int, default=0, help="of prompts, texts, split and training (default: %(default)s)"
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("predictor and training")
    group.add_argument(
        "--features",
        type=flags.positive,
        default=4,
        metavar="F",
        help="last layers of the target (default: %(default)s)",
    )
    group.add_argument(
        "--without-confidences",
        action="store_true",
        help="keep a predictor that sees the target's layers only",
    )
    group.add_argument("--epochs", type=flags.positive, default=20, help="at most (default: %(default)s)")
    group.add_argument("--batch", type=flags.positive, default=32, help="lines a step (default: %(default)s)")
    group.add_argument(
        "--rate",
        type=float,
        default=1e-4,
        help="of Adam; ten times that for the confidences alone (default: %(default)s)",
    )
    group.add_argument(
        "--patience",
        type=flags.positive,
        default=4,
        metavar="N",
        help="epochs without a lower validation loss before it ends (default: %(default)s)",
    )
    group.add_argument("--balanced", action="store_true", help="every class counts alike, however rare it is")


if __name__ == "__main__":
    sys.exit(main())
