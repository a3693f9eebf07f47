"""The subcommands, one module each. A command is a frozen dataclass: its fields are the flags, `run` the work.

Nothing heavy is imported at the top of these modules, so that `--help` answers at once.
"""
