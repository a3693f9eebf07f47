"""The reproduction of four papers: experiments, runs, claims, report."""
