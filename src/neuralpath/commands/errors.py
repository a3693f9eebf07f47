"""Errors of the user: one message, without a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

LARGEST_SEED = 2**63 - 1  # that torch accepts


class UserError(Exception):
    """A mistake on the command line or in a user's file; printed as one message, without a traceback."""


@contextmanager
def user_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds, whose messages are for the user, into a `UserError`."""
    try:
        yield
    except kinds as error:
        raise UserError(str(error)) from error


def check_seed(seed: int) -> None:
    """Refuse a value of `--seed` that torch does not accept, before anything runs, by a `UserError`."""
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"--seed takes a number from 0 to {LARGEST_SEED}, got {seed}.")
