"""The error of everything that reads data."""


class DataError(ValueError):
    """A file or folder that cannot be read as labelled matrices; the message says why."""
