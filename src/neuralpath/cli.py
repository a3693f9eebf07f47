"""The command line: parses the arguments, runs a command, and turns mistakes into messages."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from neuralpath import __version__
from neuralpath.commands.data import Data
from neuralpath.commands.demo import Demo
from neuralpath.commands.errors import UserError
from neuralpath.commands.gates import Gates
from neuralpath.commands.inspect import Inspect
from neuralpath.commands.kernel import Kernel

Command = (
    Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Gates, tyro.conf.subcommand("gates")]
    | Annotated[Kernel, tyro.conf.subcommand("kernel")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 is success, 1 a failed run, 2 bad usage, 130 an interruption."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args == ["--version"]:
        print(f"neuralpath {__version__}")
        return 0
    try:
        command = _parse(args)
    except SystemExit as stop:  # --help, or bad usage that tyro has explained
        return stop.code if isinstance(stop.code, int) else 0
    try:
        return int(command.run())
    except UserError as error:
        print(f"neuralpath: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("neuralpath: interrupted", file=sys.stderr)
        return 130


def _parse(args: list[str]) -> Any:
    return tyro.cli(
        Command,
        prog="neuralpath",
        description="Gates, paths and kernels of ReLU networks. `neuralpath --version` prints the version.",
        args=args,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )


if __name__ == "__main__":
    sys.exit(main())
