"""Deep gated networks: running a module with another's gates, and the regimes that are built on it."""
