"""Runs: pieces of work with a directory each, that are never done twice and never lost."""
