import jaxtyping
import pytest
from hypothesis import settings

# The same examples in every run: a failure here is a failure everywhere.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture
def without_type_checks(monkeypatch):
    """Users have no type checks at run time, and meet the package's own messages."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
