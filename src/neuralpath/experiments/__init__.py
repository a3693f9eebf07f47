"""The papers' tables and figures: one module each, with a frozen config and `run(config)`."""
