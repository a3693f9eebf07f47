"""What a user without special rights would meet, also where the tests run as the superuser."""

import os
from contextlib import contextmanager

NOBODY = 65534


@contextmanager
def unprivileged():
    """Give up the rights of the superuser for a while; nothing is read-only for that one."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
