r"""Measures sbjax: each benchmark prints a table and writes a JSON file, both sides in one run, taking turns.

Examples:
  python tools/benchmark.py floor --target checkpoints/target --out results/floor.json
  python tools/benchmark.py methods --target checkpoints/target --draft checkpoints/draft \
      --prompts humaneval.jsonl --temperature 0 0.8 1 --out results/methods.json
  python tools/benchmark.py transformers --target path/to/hf-target --draft path/to/hf-draft \
      --prompts humaneval.jsonl --out results/transformers.json
"""

import argparse
import importlib
import sys
from pathlib import Path

from command_line.exits import guarded
from command_line.flags import natural, positive

MODULES = {
    "floor": "floor",
    "transformers": "against_transformers",
    "methods": "methods",
    "first-token": "first_token",
    "sampling-cost": "sampling_cost",
    "step-times": "step_times",
    "kernels": "kernels",
    "policies": "policies",
    "every-method": "every_method",
}


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.benchmark == "worker":
        return _work(options)
    # Imported late so that --help is quick.
    from benchmarks.results import Results
    from command_line.tables import make_console

    module = importlib.import_module(f"benchmarks.{MODULES[options.benchmark]}")

    def work() -> int:
        results = Results(options.out, options.benchmark, options)
        module.run(options, results, make_console())
        results.finish()
        print(options.out)
        return 0

    return guarded("benchmark", work, interrupted=f"interrupted; what was measured is in {options.out}")


def _work(options: argparse.Namespace) -> int:
    from benchmarks.worker import serve

    def load():
        return importlib.import_module(f"benchmarks.{options.side}_side").load(options)

    return serve(load)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="The JSON file is written after every measurement; Ctrl-C loses none.\n"
        "Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage, 130 interrupted.",
    )
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    _add_floor(commands)
    _add_transformers(commands)
    _add_methods(commands)
    _add_first_token(commands)
    _add_sampling_cost(commands)
    _add_step_times(commands)
    _add_kernels(commands)
    _add_policies(commands)
    _add_every_method(commands)
    worker = commands.add_parser("worker", description="Started by the others: one side of a comparison.")
    worker.add_argument("side", choices=("sbjax", "transformers"))
    worker.add_argument("--target", required=True)
    worker.add_argument("--draft")
    return parser.parse_args(arguments)


def _command(commands, name: str, help: str, *, target: bool = True, draft: bool = True):
    """A subcommand with the flags that most of them have."""
    parser = commands.add_parser(
        name, help=help, description=help, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("results") / f"{name}.json", metavar="FILE", help="the JSON file")
    if target:
        add("--target", required=True, metavar="FOLDER", help="converted or Hugging Face folder")
    if draft:
        add("--draft", required=True, metavar="FOLDER", help="converted or Hugging Face folder")
    return parser


def _add_floor(commands) -> None:
    text = "a step of plain greedy decoding against nothing but the model's matrix products"
    add = _command(commands, "floor", text, draft=False).add_argument
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the parameters")
    add("--steps", type=positive, default=16, help="steps a measurement")
    add("--turns", type=positive, default=9, help="measurements of each side")
    add("--prompt-length", type=positive, default=128, help="tokens before the steps")


def _add_prompts(parser, *, many: bool, tune: int, report: int) -> None:
    add = parser.add_argument
    add(
        "--prompts",
        type=Path,
        required=True,
        nargs="+" if many else None,
        metavar="FILE",
        help="a .jsonl file",
    )
    add("--field", metavar="NAME", help="its field; None is prompt, question, turns, messages or text")
    add("--chat", action="store_true", help="prompts are messages of a user")
    add("--tune", type=positive, default=tune, metavar="N", help="prompts that settings are chosen on")
    add("--report", type=positive, default=report, metavar="N", help="other prompts, that are reported")
    add("--max-prompt-tokens", type=positive, default=256, metavar="N", help="longer prompts are left out")
    add("--max-new-tokens", type=positive, default=128, metavar="N", help="tokens a prompt")


def _add_transformers(commands) -> None:
    parser = _command(commands, "transformers", "tokens a second against transformers, plain and assisted")
    _add_prompts(parser, many=False, tune=1, report=8)
    add = parser.add_argument
    add("--hf-target", metavar="FOLDER", help="Hugging Face folder of the target; None is --target")
    add("--hf-draft", metavar="FOLDER", help="Hugging Face folder of the draft; None is --draft")
    add("--draft-length", type=positive, default=4, metavar="G", help="of sbjax")
    add("--threads", type=positive, nargs="+", default=[1, 2], metavar="N", help="of torch, to choose from")


def _add_methods(commands) -> None:
    parser = _command(commands, "methods", "plain decoding against SpS, by suite, batch and temperature")
    _add_prompts(parser, many=True, tune=4, report=20)
    add = parser.add_argument
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the parameters")
    add("--draft-length", type=positive, nargs="+", default=[2, 3, 4, 6], metavar="G", help="to choose from")
    add("--temperature", type=float, nargs="+", default=[0.0], metavar="T", help="each is a case")
    add("--batch", type=positive, nargs="+", default=[1], metavar="B", help="each is a case")
    add("--seed", type=int, default=0, help="of all chance")


def _add_first_token(commands) -> None:
    parser = _command(commands, "first-token", "time to the first token: cold, with a filled cache, warm")
    add = parser.add_argument
    add("--prompt", default="def fibonacci(n):\n", metavar="TEXT", help="what is continued")
    add("--max-new-tokens", type=positive, default=128, metavar="N", help="what the caches have room for")
    add("--draft-length", type=positive, default=4, metavar="G", help="of SpS")
    add("--repeats", type=positive, default=3, metavar="N", help="of everything, each in fresh processes")


def _add_sampling_cost(commands) -> None:
    text = "microseconds of a round whose models cost nothing"
    add = _command(commands, "sampling-cost", text, target=False, draft=False).add_argument
    add(
        "--vocab-size",
        type=positive,
        nargs="+",
        default=[32, 4096, 151_936],
        metavar="V",
        help="each is a case",
    )
    add(
        "--draft-length",
        type=positive,
        nargs="+",
        default=[4],
        metavar="G",
        help="each is a case of SpS and of SpecBranch, beside plain",
    )
    add("--branches", type=positive, default=4, metavar="K", help="of SpecBranch")
    add("--turns", type=positive, default=5, help="measurements of each case")


def _add_step_times(commands) -> None:
    text = "a target forward by tokens, a draft step by branches: the step times of sbjax.StepTimes"
    add = _command(commands, "step-times", text).add_argument
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the parameters")
    add("--widths", type=positive, nargs="+", default=[1, 2, 4, 8, 16], metavar="T", help="tokens a row")
    add("--branches", type=positive, nargs="+", default=[1, 2, 4, 8], metavar="K", help="branches a row")
    add("--rows", type=positive, default=1, metavar="B", help="rows of the batch")
    add("--slots", type=positive, default=512, metavar="S", help="cache slots, half of them filled")
    add("--turns", type=positive, default=5, help="measurements of each")


def _add_kernels(commands) -> None:
    text = "attention, picks and cache writes: every version that applies here against the bytes they move"
    add = _command(commands, "kernels", text, target=False, draft=False).add_argument
    shapes = ("llama-3.1-8b", "llama-3.1-70b", "qwen2.5-coder-1.5b")
    add("--shape", choices=shapes, default=shapes[0], help="whose heads")
    add("--dtype", choices=("float32", "bfloat16"), default="bfloat16", help="of the cache")
    add("--slots", type=positive, nargs="+", default=[1024, 8192, 32768], metavar="S", help="each is a case")
    add("--rows", type=positive, nargs="+", default=[1, 16], metavar="B", help="each is a case")
    add("--tokens", type=positive, default=8, metavar="T", help="new tokens a row")
    add("--vocab-size", type=positive, default=128_256, metavar="V", help="of the logits")
    add("--bandwidth", type=float, metavar="GB/S", help="of the memory, for the floor")
    add("--calls", type=positive, default=20, metavar="N", help="calls a measurement")
    add("--turns", type=positive, default=5, metavar="N", help="measurements of each version")


def _add_chat_suites(parser) -> None:
    parser.add_argument(
        "--chat-suites",
        nargs="*",
        default=["gsm8k", "mt_bench"],
        metavar="NAME",
        help="files whose prompts are messages of a user (default: %(default)s)",
    )


def _add_every_method(commands) -> None:
    text = "all methods on a pair: speed, counters, the same text, and what the device-time model makes of it"
    parser = _command(commands, "every-method", text)
    _add_prompts(parser, many=True, tune=1, report=2)
    _add_chat_suites(parser)
    add = parser.add_argument
    add("--draft-length", type=positive, default=4, metavar="G", help="of all methods; AdaEDL's is twice it")
    add("--methods", nargs="+", metavar="NAME", help="of the table, beside plain decoding (default: all)")
    add("--batch", type=positive, default=1, metavar="B", help="prompts at a time")
    add("--temperature", type=float, nargs="+", default=[0.0, 1.0], metavar="T", help="each is a case")
    add("--seed", type=int, default=0, help="of all chance")
    add("--apart", action="store_true", help="each model on a device of its own; methods with overlap only")


def _add_policies(commands) -> None:
    text = "all methods at their best settings, replayed over recorded texts, by suite and speed ratio"
    parser = _command(commands, "policies", text)
    _add_prompts(parser, many=True, tune=8, report=8)
    _add_chat_suites(parser)
    add = parser.add_argument
    add("--methods", nargs="+", metavar="NAME", help="of the table, beside PEARL (default: all)")
    add("--temperature", type=float, nargs="+", default=[0.0, 1.0], metavar="T", help="each is a case")
    add("--c", type=float, nargs="+", default=[3.0, 5.0, 10.0, 15.0], metavar="C", help="t_target / t_draft")
    add("--batch", type=positive, default=16, metavar="B", help="rows recorded at a time")
    add("--train", type=natural, default=0, metavar="N", help="more, for H-RAD, at the first temperature")
    add("--weaken", type=float, default=0.0, metavar="S", help="noise on the draft's log-probabilities, nats")
    add("--hrad-lengths", type=positive, nargs="+", default=[5, 10], metavar="G", help="H-RAD learns from")
    add(
        "--recordings",
        type=Path,
        default=Path("results/recordings"),
        metavar="DIR",
        help="where recordings are kept and looked for (default: %(default)s)",
    )


if __name__ == "__main__":
    sys.exit(main())
