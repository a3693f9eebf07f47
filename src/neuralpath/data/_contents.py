"""The verified contents of a data set's files."""

import os
from pathlib import Path

from neuralpath.data._errors import DamagedFile, PickledData
from neuralpath.data._files import read_at_most, require_checksum, require_size
from neuralpath.data._idx import header_size, parse_idx
from neuralpath.data._places import fetch_command, idx_path, pickled_refusal
from neuralpath.data._sources import CifarSource, IdxSource, Source
from neuralpath.data._tar import read_members


def read_verified(source: Source, place: Path) -> dict[str, bytes]:
    """Uncompressed contents of every file of a data set, by file name, each checked against its checksum.

    The checksum of an archive itself plays no part: it may have been packed anew.

    Raises: DataError with one line that names the file, what is wrong with it, and the cure.
    """
    try:
        if isinstance(source, IdxSource):
            return _read_idx(source, place)
        return _read_folder(source, place) if os.path.isdir(place) else _read_archive(source, place)
    except DamagedFile as error:
        raise DamagedFile(f"{source.name}: {error} Move it away and run {fetch_command(source)}.") from error
    except PickledData as error:
        raise PickledData(pickled_refusal(source, str(error), fetch_command(source))) from error


def _read_idx(source: IdxSource, folder: Path) -> dict[str, bytes]:
    contents = {}
    for file in source.files:
        path = idx_path(folder, file)
        if path is None:
            raise DamagedFile(f"{folder} is incomplete: {file.name} is missing, compressed or not.")
        read = read_at_most(path, header_size(len(file.shape)) + file.n_values)
        parse_idx(str(path), read, file.shape)  # says more precisely than the checksum what is wrong
        require_checksum(str(path), read, file)
        contents[file.name] = read
    return contents


def _read_folder(source: CifarSource, folder: Path) -> dict[str, bytes]:
    contents = {}
    for file in source.files:
        path = folder / file.name
        if not os.path.isfile(path):
            raise DamagedFile(f"{folder} is incomplete: {file.name} is missing.")
        contents[file.name] = read_at_most(path, file.n_values)
        require_size(str(path), contents[file.name], file.n_values)
        require_checksum(str(path), contents[file.name], file)
    return contents


def _read_archive(source: CifarSource, path: Path) -> dict[str, bytes]:
    sizes = {f"{source.member_folder}/{file.name}": file.n_values for file in source.files}
    members = read_members(path, sizes, source.refused)
    contents = {}
    for file in source.files:
        contents[file.name] = members.pop(f"{source.member_folder}/{file.name}")
        require_checksum(f"{path}: {file.name}", contents[file.name], file)
    return contents
