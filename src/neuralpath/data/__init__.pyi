from ._check import CheckResult as CheckResult, check as check
from ._errors import DataError as DataError
from ._fetch import fetch as fetch
from ._load import load as load
from ._places import cache_folder as cache_folder, find as find
from ._progress import progress_bar as progress_bar
from ._records import Dataset as Dataset, Split as Split
from ._sources import (
    SOURCES as SOURCES,
    Checksum as Checksum,
    CifarSource as CifarSource,
    DataFile as DataFile,
    Download as Download,
    IdxSource as IdxSource,
    names as names,
)
from .augmented import shifted_copies as shifted_copies
from .variants import (
    balanced_subset as balanced_subset,
    binary_task as binary_task,
    label_noise as label_noise,
    random_labels as random_labels,
    random_pixels as random_pixels,
)
