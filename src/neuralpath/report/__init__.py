"""The page: what the runs of a folder show, and a network to look into."""
