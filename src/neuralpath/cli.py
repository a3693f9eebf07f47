"""The command line: parses the arguments, runs one command, and turns mistakes into messages."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from operator import or_
from types import ModuleType
from typing import Annotated, Any

import tyro

from neuralpath import __version__, commands
from neuralpath.commands import UserError
from neuralpath.papers import commands as papers
from neuralpath.papers.runs import RunError
from neuralpath.training import Terminated


def _commands(module: ModuleType, names: str) -> dict[str, type]:
    """The commands of a module by their names: ``list`` is its ``ListCommand``."""
    return {name: getattr(module, f"{name.capitalize()}Command") for name in names.split()}


def _union(commands: dict[str, type]) -> Any:
    """The type from which tyro makes subcommands of these names."""
    return reduce(or_, (Annotated[command, tyro.conf.subcommand(name)] for name, command in commands.items()))


PAPERS = _commands(papers, "list run status show export claims report")


@dataclass(frozen=True)
class PapersCommand:
    """Reproduce the papers: run their experiments, show the results, check their claims."""

    action: _union(PAPERS)  # type: ignore[valid-type]
    """The step of the reproduction."""

    def run(self) -> int:
        """Run the chosen action."""
        return int(self.action.run())


COMMANDS = (
    _commands(commands, "inspect kernel neighbors gates data") | _commands(papers, "demo") | {"papers": PapersCommand}
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; ``argv`` is without the program's name, None means the arguments of the process.

    The exit status is 0 for success, 1 for a failed run, 2 for bad usage, 130 after Ctrl-C, 143 after SIGTERM.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args == ["--version"]:
        print(f"neuralpath {__version__}")
        return 0
    try:
        # The flags of an experiment depend on its name, so they are parsed in a second step.
        if args[:2] == ["papers", "run"] and len(args) > 2 and not args[2].startswith("-"):
            return papers.run_experiment(args[2:])
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


def _parse(args: list[str]) -> Any:
    names, name = (PAPERS, args[1:2]) if args[:1] == ["papers"] else (COMMANDS, args[:1])
    if name and not name[0].startswith("-") and name[0] not in names:
        # Probably a command of the papers without `papers`, or a misspelling.
        near = [name[0]] if name[0] in PAPERS else get_close_matches(name[0], names, n=1)
        if near:
            meant = f"papers {near[0]}" if near[0] in PAPERS else near[0]
            print(f"neuralpath: there is no command {name[0]!r}: did you mean {meant}?", file=sys.stderr)
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
