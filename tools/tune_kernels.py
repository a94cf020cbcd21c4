r"""Picks block shapes for the Pallas kernels, by kind of device, kernel and shape, into a table.

Examples:
  python tools/tune_kernels.py --device v5e v6e --shape llama-3.1-8b --slots 2048 8192 --tokens 1 8
  python tools/tune_kernels.py --device here --shape n=32,m=8,h=128,v=128256 --kernel branch_attention
"""

import argparse
import os
import sys
from pathlib import Path

from command_line.exits import guarded
from command_line.flags import positive
from kernel_tuning import shapes
from kernel_tuning.chips import CHIPS, HERE

WITHOUT_A_CHIP = {
    # With libtpu installed and no TPU, jax looks for one for 40 seconds.
    "JAX_PLATFORMS": "cpu",
    # Another process may compile too.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    # libtpu asks what machine it is on, and complains where there is no answer.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}

TABLE = Path(__file__).parents[1] / "kernels_pallas" / "block_shapes.json"


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if HERE not in options.device:
        for name, value in WITHOUT_A_CHIP.items():
            os.environ.setdefault(name, value)
    # Imported late so that --help is quick, and jax sees the environment.
    from command_line.tables import make_console
    from kernel_tuning import job

    def work() -> int:
        job.run(options, make_console())
        if not options.dry_run:
            print(options.table)
        return 0

    return guarded("tune_kernels", work, interrupted=f"interrupted; what was found is in {options.table}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="By cost, candidates are compiled for the chip, which need not be there, and compared by a\n"
        "model (tools/kernel_tuning/cost_model.py); it needs libtpu: pip install 'sbjax[tpu-aot]'. By time,\n"
        "each takes turns with the default on the device at hand, and no entry found by time is replaced by\n"
        "cost. Kernels look the table up by themselves when they are traced; blocks change their speed and\n"
        "nothing else. The table is written after every shape; Ctrl-C loses none.\n"
        "Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage, 130 interrupted.",
    )
    _add_what(parser)
    _add_shapes(parser)
    options = parser.parse_args(arguments)
    named = [name for name in options.device if name != HERE]
    if options.by == "time" and named:
        parser.error(f"--by time needs the device itself: --device here, not {' '.join(named)}")
    if options.by == "cost" and HERE in options.device:
        parser.error(f"--by cost is for chips that are named: --device {' '.join(CHIPS)}")
    return options


def _add_what(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--device",
        nargs="+",
        required=True,
        choices=(*CHIPS, HERE),
        help=f"chips to compile for, or {HERE}: the TPU or GPU at hand",
    )
    add(
        "--kernel",
        nargs="+",
        choices=("branch_attention", "verify"),
        help="default: all that have something to tune",
    )
    add("--by", choices=("cost", "time"), help=f"default: time {HERE}, cost for chips that are named")
    add("--table", type=Path, default=TABLE, metavar="FILE", help="default: %(default)s")
    add(
        "--patience",
        type=positive,
        default=4,
        metavar="N",
        help="candidates in a row that are no better end a search (default: %(default)s)",
    )
    add("--dry-run", action="store_true", help="say what would be searched; compile and write nothing")


def _add_shapes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("shapes", "every combination is a shape; equal ones are tuned once")
    add = group.add_argument
    add(
        "--shape",
        nargs="+",
        required=True,
        type=shapes.model,
        metavar="MODEL",
        help=f"{', '.join(shapes.PRESETS)}, or n=query heads,m=key/value heads,h=head width,v=vocabulary",
    )
    add(
        "--slots",
        nargs="+",
        type=positive,
        default=[2048, 8192],
        metavar="S",
        help="of the cache (2048 8192)",
    )
    add(
        "--tokens",
        nargs="+",
        type=positive,
        default=[1, 8],
        metavar="T",
        help="in a forward, of a branch (1 8)",
    )
    add("--branches", nargs="+", type=positive, default=[1], metavar="K", help="of a row (1)")
    add("--own", type=positive, metavar="W", help="own tokens of a branch (T, at least 8)")
    add("--rows", type=positive, default=8, metavar="B", help="of the batch (%(default)s)")
    add("--dtype", choices=("bfloat16", "float32", "float16"), default="bfloat16", help="(%(default)s)")


if __name__ == "__main__":
    sys.exit(main())
