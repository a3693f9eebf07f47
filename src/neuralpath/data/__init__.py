"""Data sets of the papers: find, check, read and download them, and make their variants."""

from neuralpath.data._check import CheckResult, check
from neuralpath.data._errors import DataError
from neuralpath.data._fetch import fetch
from neuralpath.data._load import load
from neuralpath.data._places import cache_folder, find
from neuralpath.data._progress import progress_bar
from neuralpath.data._records import Dataset, Split
from neuralpath.data._sources import SOURCES, Checksum, CifarSource, DataFile, Download, IdxSource, names
from neuralpath.data.augmented import shifted_copies
from neuralpath.data.variants import balanced_subset, binary_task, label_noise, random_labels, random_pixels

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
    "shifted_copies",
]
