"""The command line: parses the arguments, runs a command, and turns mistakes into messages."""

import os
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, get_args

import tyro

from neuralpath import __version__
from neuralpath.commands import Data, Gates, Inspect, Kernel, Neighbors, UserError
from neuralpath.papers.commands import (
    Claims,
    Collect,
    Demo,
    Experiments,
    Export,
    Report,
    Run,
    Show,
    Status,
    run_experiment,
)
from neuralpath.training import Terminated

Command = (
    Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Gates, tyro.conf.subcommand("gates")]
    | Annotated[Kernel, tyro.conf.subcommand("kernel")]
    | Annotated[Neighbors, tyro.conf.subcommand("neighbors")]
    | Annotated[Experiments, tyro.conf.subcommand("experiments")]
    | Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Status, tyro.conf.subcommand("status")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Claims, tyro.conf.subcommand("claims")]
    | Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 is success, 1 a failed run, 2 bad usage, 130 an interruption, 143 one by SIGTERM."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args == ["--version"]:
        print(f"neuralpath {__version__}")
        return 0
    try:
        # The flags of an experiment depend on its name, so they are parsed in a second step.
        if len(args) > 1 and args[0] == "run" and not args[1].startswith("-"):
            return run_experiment(args[1:])
        return _run(_parse(args))
    except SystemExit as stop:  # --help, bad usage that tyro has explained, or SIGTERM
        return stop.code if isinstance(stop.code, int) else 0
    except UserError as error:
        print(f"neuralpath: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read our output, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:  # what a command has not explained itself, such as a folder that may not be read
        print(
            f"neuralpath: {': '.join(str(part) for part in (error.filename, error.strerror) if part)}", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        print("neuralpath: interrupted", file=sys.stderr)
        return 130


def _run(command: Any) -> int:
    """Run a command with whatever code of the user's, which may end the program without a word."""
    try:
        status = int(command.run())
    except Terminated:  # by SIGTERM, which the user's code has not sent
        raise
    except SystemExit as stop:
        raise UserError(f"code of yours called sys.exit({stop.code!r}) while it ran.") from stop
    sys.stdout.flush()  # here, where a full disk can be told
    return status


def _nearest_command(args: list[str]) -> str | None:
    """A command that is spelt nearly as the first argument, if that is none itself."""
    names = [note.name for kind in get_args(Command) for note in kind.__metadata__]
    if not args or args[0].startswith("-") or args[0] in names:
        return None
    return next(iter(get_close_matches(args[0], names, n=1)), None)


def _parse(args: list[str]) -> Any:
    if (near := _nearest_command(args)) is not None:
        print(f"neuralpath: there is no command {args[0]!r}: did you mean {near}?", file=sys.stderr)
        raise SystemExit(2)
    return tyro.cli(
        Command,
        prog="neuralpath",
        description="Gates, paths and kernels of ReLU networks. `neuralpath --version` prints the version.",
        args=args,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )


if __name__ == "__main__":
    sys.exit(main())
