"""The command line: parses the arguments, runs one command, and turns mistakes into messages."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from operator import or_
from typing import Annotated, Any

import tyro

from neuralpath import __version__
from neuralpath.commands import DataCommand, GatesCommand, InspectCommand, KernelCommand, NeighborsCommand, UserError
from neuralpath.papers.commands import (
    ClaimsCommand,
    DemoCommand,
    ExportCommand,
    ListCommand,
    ReportCommand,
    RunCommand,
    ShowCommand,
    StatusCommand,
    run_experiment,
)
from neuralpath.papers.runs import RunError
from neuralpath.training import Terminated


def _by_name(*commands: type) -> dict[str, type]:
    return {command.__name__.removesuffix("Command").lower(): command for command in commands}


def _union(commands: dict[str, type]) -> Any:
    """The type from which tyro makes subcommands of these names."""
    return reduce(or_, (Annotated[command, tyro.conf.subcommand(name)] for name, command in commands.items()))


PAPERS = _by_name(ListCommand, RunCommand, StatusCommand, ShowCommand, ExportCommand, ClaimsCommand, ReportCommand)


@dataclass(frozen=True)
class PapersCommand:
    """Reproduce the papers: run their experiments, show the results, check their claims."""

    action: _union(PAPERS)  # type: ignore[valid-type]
    """The step of the reproduction."""

    def run(self) -> int:
        """Run the chosen action."""
        return int(self.action.run())


COMMANDS = _by_name(
    InspectCommand, KernelCommand, NeighborsCommand, GatesCommand, DataCommand, DemoCommand, PapersCommand
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; None means those of the process.

    Returns:
        The exit status: 0 for success, 1 for a failed run, 2 for bad usage, 130 after Ctrl-C, 143 after SIGTERM.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args == ["--version"]:
        print(f"neuralpath {__version__}")
        return 0
    try:
        # The flags of an experiment depend on its name, so they are parsed in a second step.
        if args[:2] == ["papers", "run"] and len(args) > 2 and not args[2].startswith("-"):
            return run_experiment(args[2:])
        return _run(_parse(args))
    except SystemExit as stop:  # --help, bad usage that tyro has explained, or SIGTERM
        return stop.code if isinstance(stop.code, int) else 0
    except (UserError, RunError) as error:
        print(f"neuralpath: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output, such as `head`, has stopped reading
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:  # one that the command has not explained itself, such as an unreadable folder
        parts = (str(part) for part in (error.filename, error.strerror) if part)
        print(f"neuralpath: {': '.join(parts)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("neuralpath: interrupted", file=sys.stderr)
        return 130


def _run(command: Any) -> int:
    """Run a command; it may call code of the user that ends the program silently."""
    try:
        status = int(command.run())
    except Terminated:  # by SIGTERM, not by the user's code
        raise
    except SystemExit as stop:
        raise UserError(f"code of yours called sys.exit({stop.code!r}) while it ran.") from stop
    sys.stdout.flush()  # here, so that a full disk is reported as an error
    return status


def _suggestion(args: Sequence[str]) -> str | None:
    """The command that was probably meant, if the arguments name none."""
    names, prefix = COMMANDS, ""
    if args[:1] == ["papers"]:
        names, prefix, args = PAPERS, "papers ", args[1:]
    if not args or args[0].startswith("-") or args[0] in names:
        return None
    if args[0] in PAPERS:
        return f"papers {args[0]}"
    near = get_close_matches(args[0], names, n=1)
    return prefix + near[0] if near else None


def _parse(args: list[str]) -> Any:
    if (suggestion := _suggestion(args)) is not None:
        wrong = args[1] if args[0] == "papers" else args[0]
        print(f"neuralpath: there is no command {wrong!r}: did you mean {suggestion}?", file=sys.stderr)
        raise SystemExit(2)
    return tyro.cli(
        _union(COMMANDS),
        prog="neuralpath",
        description="Gates, paths and kernels of neural networks. `neuralpath --version` prints the version.",
        args=args,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )


if __name__ == "__main__":
    sys.exit(main())
