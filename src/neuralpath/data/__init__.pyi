from ._downloads import fetch as fetch
from ._loading import (
    CheckResult as CheckResult,
    cache_folder as cache_folder,
    check as check,
    find as find,
    load as load,
)
from ._sources import (
    SOURCES as SOURCES,
    Checksum as Checksum,
    CifarSource as CifarSource,
    DataError as DataError,
    DataFile as DataFile,
    Download as Download,
    IdxSource as IdxSource,
    names as names,
)
from .splits import (
    Dataset as Dataset,
    Split as Split,
    balanced_subset as balanced_subset,
    binary_task as binary_task,
    label_noise as label_noise,
    random_labels as random_labels,
    random_pixels as random_pixels,
    shifted_copies as shifted_copies,
)
