# It runs in an environment of its own, which the tests do not need.
collect_ignore = ["make_reference.py"]
