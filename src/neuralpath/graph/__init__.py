"""The path graph of a network, and how it is read from a module."""
