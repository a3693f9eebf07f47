from . import claims as claims, experiments as experiments, report as report, runs as runs
