"""Data sets of the papers: find, check, read and download them, and make their variants."""

from ._check import CheckResult, check
from ._errors import DataError
from ._fetch import fetch
from ._load import load
from ._places import cache_folder, find
from ._progress import progress_bar
from ._records import Dataset, Split
from ._sources import SOURCES, Checksum, CifarSource, DataFile, Download, IdxSource, names
from .variants import balanced_subset, binary_task, label_noise, random_labels, random_pixels

__all__ = [
    "SOURCES",
    "CheckResult",
    "Checksum",
    "CifarSource",
    "DataError",
    "DataFile",
    "Dataset",
    "Download",
    "IdxSource",
    "Split",
    "balanced_subset",
    "binary_task",
    "cache_folder",
    "check",
    "fetch",
    "find",
    "label_noise",
    "load",
    "names",
    "progress_bar",
    "random_labels",
    "random_pixels",
]
