"""`neuralpath data`: download and check the image data sets."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, subcommand

from neuralpath.commands.errors import user_errors


@dataclass(frozen=True)
class FetchCommand:
    """Download a data set from its public home and verify it."""

    name: Positional[str]
    """mnist, fashion-mnist, cifar10 or cifar100."""
    data_dir: Path | None = None
    """Folder for the data sets; by default $NEURALPATH_DATA or the cache folder."""

    def run(self) -> int:
        """Download, and print the path of the data set."""
        from neuralpath import data

        with user_errors(data.DataError):
            print(data.fetch(self.name, data_dir=self.data_dir))
        return 0


@dataclass(frozen=True)
class CheckCommand:
    """List the data sets on the disk and verify their published checksums."""

    data_dir: Path | None = None
    """Folder that is searched first, before $NEURALPATH_DATA and the cache folder."""
    json: bool = False
    """Print JSON instead of lines."""

    def run(self) -> int:
        """Print one line for each data set; 1 if one is damaged."""
        from neuralpath import data

        with user_errors(data.DataError):
            results = data.check(self.data_dir)
        rows = [{f: str(getattr(r, f) or "") for f in ("name", "status", "path", "detail")} for r in results]
        if self.json:
            print(json.dumps(rows, indent=2))
        else:
            print(*("{name:14} {status:8} {path} {detail}".format(**row).rstrip() for row in rows), sep="\n")
        return int(any(result.status == "damaged" for result in results))


@dataclass(frozen=True)
class DataCommand:
    """Download and check the image data sets."""

    action: Annotated[FetchCommand, subcommand("fetch")] | Annotated[CheckCommand, subcommand("check")]

    def run(self) -> int:
        """Run the chosen action."""
        return self.action.run()
