"""Mistakes around runs that are no mistakes of the program."""


class RunError(ValueError):
    """Runs cannot be kept or read; the message says what and what to do."""
