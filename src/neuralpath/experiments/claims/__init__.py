"""The papers' claims, each judged from tests and from the records of runs by a rule that is written down."""
