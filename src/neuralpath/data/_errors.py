"""What goes wrong with data, said in one line."""


class DataError(ValueError):
    """A data set is missing, damaged, refused or could not be downloaded; the message says what to do."""


class DamagedFile(DataError):
    """A file is there, but is not what it should be."""


class PickledData(DataError):
    """The data are there in their pickled form, which is never opened."""
