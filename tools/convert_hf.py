"""Converts a Hugging Face checkpoint to the format of sbjax, and back.

Examples:
  python tools/convert_hf.py Qwen/Qwen2.5-0.5B-Instruct checkpoints/draft
  python tools/convert_hf.py path/to/checkpoint checkpoints/target --dtype float32
  python tools/convert_hf.py checkpoints/target path/to/export --to-hf
"""

import argparse
import logging
import os
import sys


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="OUT appears when it is complete; a run that was interrupted is simply run again.\n"
        "Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage, 130 interrupted.",
    )
    parser.add_argument("source", help="a folder, or OWNER/NAME on the Hugging Face hub")
    parser.add_argument("out", help="the folder to be made")
    parser.add_argument("--to-hf", action="store_true", help="the way back: SOURCE is a converted checkpoint")
    parser.add_argument(
        "--dtype",
        choices=("keep", "float32", "bfloat16", "float16"),
        help="dtype of the stored weights (default: keep, each weight as it is); CPUs load them as float32 "
        "in any case",
    )
    parser.add_argument("--revision", help="branch, tag or commit of a model on the hub")
    parser.add_argument(
        "--max-shard-size", metavar="SIZE", help="with --to-hf: size of the largest file (default: 2GB)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the checkpoint that is at OUT")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args(arguments)
    if options.to_hf and (options.dtype or options.revision):
        parser.error("--dtype and --revision do not go with --to-hf; weights get their original dtype")
    if options.max_shard_size and not options.to_hf:
        parser.error("--max-shard-size only goes with --to-hf")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    # Weights pass through host memory only: an accelerator would be claimed for nothing.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # Orbax logs the traceback of an error that is reported below in one line.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    # Imported late so that --help is quick.
    from sbjax.checkpoints import CheckpointError, convert, export
    from sbjax.models.families import UnsupportedModel

    settings = {"overwrite": options.overwrite, "progress": not options.quiet}
    try:
        if options.to_hf:
            size = options.max_shard_size or "2GB"
            out = export(options.source, options.out, max_shard_size=size, **settings)
        else:
            dtype = options.dtype or "keep"
            out = convert(options.source, options.out, dtype=dtype, revision=options.revision, **settings)
    except (CheckpointError, UnsupportedModel, OSError) as error:
        print(f"convert_hf: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("convert_hf: interrupted, nothing was written", file=sys.stderr)
        return 130
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
