"""The flag `--seed` of all commands."""

from neuralpath.commands.errors import UserError

LARGEST_SEED = 2**63 - 1  # torch takes no larger one


def check_seed(seed: int) -> None:
    """Refuse a seed that torch does not take, before any work.

    Raises: UserError.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"--seed takes a number from 0 to {LARGEST_SEED}, got {seed}.")
