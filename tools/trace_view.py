r"""Records a run, or reads a recorded one, and draws what draft and target did, round by round.

Examples:
  python tools/trace_view.py --config configs/demo.toml --method SpecBranch --prompt "def main(" --out trace
  python tools/trace_view.py trace.json --c 10 --rounds 1-20 --out start
"""

import argparse
import contextlib
import math
import sys
from pathlib import Path

from command_line import flags
from command_line.exits import Interrupted, guarded


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    # Imported late so that --help is quick.
    from trace_drawing import png

    from sbjax.trace import Trace

    def work() -> int:
        if not options.no_png:
            png.require()
        if options.trace is None:
            from trace_drawing.recording import record

            trace = record(options)
            trace.save(options.out.with_name(options.out.name + ".json"))
        else:
            trace = Trace.load(options.trace)
        for path in draw(trace, options):
            print(path)
        if options.trace is None and any(row.finish_reason == "interrupted" for row in trace.rows):
            raise Interrupted("interrupted; what was there is drawn")
        return 0

    return guarded("trace_view", work)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Writes OUT.json (of a run that it recorded), OUT.html, and OUT.png (OUT-0.png, OUT-1.png .. "
        "of several rows).\nCtrl-C ends the run; what is there is drawn. Exit codes: 0 done, 1 failed (one "
        "line on stderr says why),\n2 wrong usage, 130 interrupted.",
    )
    parser.add_argument("trace", nargs="?", type=Path, help="a .json file of an earlier run to draw again")
    flags.add_models(parser)
    flags.add_method(parser)
    _add_run(parser)
    _add_drawing(parser)
    options = parser.parse_args(arguments)
    if options.trace is None and not options.prompt:
        parser.error("there is nothing to draw: give --prompt, or the .json file of an earlier run")
    if options.trace is not None and (options.prompt or options.config or options.target or options.method):
        parser.error("a run that was recorded has its prompt, models and method; give either it or those")
    return options


def _add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    group.add_argument("--prompt", action="append", metavar="TEXT", help="a text to continue; repeatable")
    group.add_argument(
        "--max-new-tokens", type=flags.positive, default=64, metavar="N", help="default: %(default)s"
    )
    group.add_argument("--temperature", type=float, metavar="T", help="0 is greedy (default: the config's)")
    group.add_argument("--seed", type=int, default=0, help="of all chance (default: %(default)s)")
    group.add_argument("--rule", choices=("match", "token", "block"), default="match")


def _add_drawing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("drawing")
    group.add_argument(
        "--out",
        type=Path,
        default=Path("trace"),
        metavar="OUT",
        help="path without ending (default: %(default)s)",
    )
    times = group.add_mutually_exclusive_group()
    times.add_argument(
        "--c",
        type=_ratio,
        metavar="C",
        help="draw modelled time: a device for each model, a target forward costs C draft steps (default: "
        "the time that was measured, on one device)",
    )
    times.add_argument(
        "--step-times",
        type=Path,
        metavar="JSON",
        help="draw modelled time with the step times that tools/benchmark.py step-times measured",
    )
    group.add_argument("--rounds", type=_rounds, metavar="A-B", help="only these rounds, from 1")
    group.add_argument("--no-png", action="store_true", help="only the HTML page; needs no matplotlib")


def _ratio(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def _rounds(text: str) -> slice:
    first, dash, last = text.partition("-")
    with contextlib.suppress(ValueError):
        if dash and 1 <= int(first) <= int(last):
            return slice(int(first) - 1, int(last))
    raise argparse.ArgumentTypeError(f"A-B with 1 <= A <= B is expected, got {text}")


def draw(trace, options: argparse.Namespace) -> list[Path]:
    """Writes the page and the pictures; returns their paths."""
    from trace_drawing import html_page, picture, png

    timeline, chosen = _timeline(trace, options), options.rounds or slice(0, None)
    page = options.out.with_name(options.out.name + ".html")
    page.write_text(html_page.page(trace, timeline, chosen), encoding="utf-8")
    written = [page]
    if options.no_png:
        return written
    pictured = options.rounds or slice(0, picture.MOST_ROUNDS)
    for index, row in enumerate(trace.rows):
        ending = ".png" if len(trace.rows) == 1 else f"-{index}.png"
        written.append(options.out.with_name(options.out.name + ending))
        png.write(picture.draw(trace, row, timeline, pictured), written[-1])
    return written


def _timeline(trace, options: argparse.Namespace):
    from trace_drawing import timeline

    if options.c is not None:
        return timeline.modelled(trace, options.c)
    if options.step_times is not None:
        from sbjax import StepTimes

        times = StepTimes.from_file(options.step_times)
        target, draft = (lambda width, cost=cost: cost(width) * 1e3 for cost in (times.target, times.draft))
        return timeline.modelled(trace, target, draft, "ms")
    return timeline.measured(trace)


if __name__ == "__main__":
    sys.exit(main())
