"""The pair reading: second moments between two inputs, carried exactly through any graph.

Between two linear nodes a signal is a linear, weightless, channel-wise function of what the last linear nodes, the
biases and the input put out. So the state of a pair of inputs is a collection of entries, one for each such source:
a matrix over pairs of the source's positions, and for each input a map from there to the current positions.
"""
