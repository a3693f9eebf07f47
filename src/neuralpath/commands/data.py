"""`neuralpath data`: download and check the image data sets."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from neuralpath.commands.errors import user_errors


@dataclass(frozen=True)
class FetchCommand:
    """Download a data set from its public home and verify it."""

    name: tyro.conf.Positional[str]
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
        if self.json:
            fields = ("name", "status", "path", "detail")
            print(json.dumps([{f: str(getattr(r, f) or "") for f in fields} for r in results], indent=2))
        else:
            for r in results:
                print(f"{r.name:14} {r.status:8} {r.path or ''} {r.detail}".rstrip())
        return int(any(result.status == "damaged" for result in results))


@dataclass(frozen=True)
class DataCommand:
    """Download and check the image data sets."""

    action: (
        Annotated[FetchCommand, tyro.conf.subcommand("fetch")] | Annotated[CheckCommand, tyro.conf.subcommand("check")]
    )

    def run(self) -> int:
        """Run the chosen action."""
        return self.action.run()
