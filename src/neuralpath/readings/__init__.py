"""Quantities that are read off a path graph, one module each.

Two readings live with the graph itself because it is defined by them: its output (``graph.forward``) and its
number of paths (``graph.counting``).
"""
