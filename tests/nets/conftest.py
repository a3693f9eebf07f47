import jaxtyping
import pytest


@pytest.fixture
def without_type_checks(monkeypatch):
    """Users have no type checks at run time, and meet the package's own messages."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
