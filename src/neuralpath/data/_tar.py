"""Reading a few members of a tar archive in memory; nothing is ever unpacked to disk."""

import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO, cast

from neuralpath.data._errors import DamagedFile, PickledData
from neuralpath.data._files import Bounded, unpacked

# Readme, class names and the tar's own padding are far smaller; what goes on past this is no data set.
_ROOM_FOR_OTHERS = 16 << 20


def read_members(path: Path, sizes: Mapping[str, int], refused: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Contents of the members of a tar archive, compressed with gzip or not.

    `sizes` gives the wanted members and the number of bytes of each; `refused` the names of folders that only
    the pickled version has.

    Raises: DamagedFile if a wanted member is missing, double or of another size, if any member is a link or
        device or lies outside the archive's folder, or if the archive cannot be read to its end;
        PickledData for the pickled version.
    """
    contents: dict[str, bytes] = {}
    try:
        with unpacked(path) as stream:
            bounded = cast(BinaryIO, Bounded(stream, path, sum(sizes.values()) + _ROOM_FOR_OTHERS))
            with tarfile.open(fileobj=bounded, mode="r|") as archive:
                for member in archive:
                    _require_harmless(path, member)
                    name = PurePosixPath(member.name)
                    if refused_part := set(name.parts) & set(refused):
                        raise PickledData(f"{path} with its {refused_part.pop()}")
                    if str(name) in sizes:
                        _require_expected(path, member, sizes[str(name)], str(name) in contents)
                        contents[str(name)] = cast(BinaryIO, archive.extractfile(member)).read()
    except tarfile.TarError as error:
        raise DamagedFile(f"{path} is not a complete tar archive ({error}).") from error
    missing = [name for name in sizes if name not in contents]
    if missing:
        raise DamagedFile(f"{path} lacks {', '.join(missing)}.")
    return contents


def _require_harmless(path: Path, member: tarfile.TarInfo) -> None:
    if not (member.isreg() or member.isdir()):
        raise DamagedFile(f"{path} is refused: its member {member.name!r} is a link or a device, not a file.")
    name = PurePosixPath(member.name)
    is_outside = name.is_absolute() or PureWindowsPath(member.name).is_absolute() or ".." in name.parts
    if is_outside or "\\" in member.name:
        raise DamagedFile(f"{path} is refused: its member {member.name!r} points outside the archive's folder.")


def _require_expected(path: Path, member: tarfile.TarInfo, size: int, is_double: bool) -> None:
    if is_double:
        raise DamagedFile(f"{path} is refused: it holds {member.name} twice.")
    if not member.isreg() or member.size != size:
        raise DamagedFile(f"{path}: {member.name} holds {member.size} bytes, expected {size}.")
