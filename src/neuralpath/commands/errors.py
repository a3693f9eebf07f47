"""Mistakes of the user: shown as one message, without a traceback."""


class UserError(Exception):
    """A mistake on the command line or in a user's file."""
