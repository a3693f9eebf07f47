"""The pair reading: second moments between two inputs, carried exactly through any graph.

Between two linear nodes a signal is a linear function, without weights and channel by channel, of the outputs of the
last linear nodes, the biases and the input. The state of a pair of inputs is therefore a collection of entries, one for
each such source: a matrix over pairs of the source's positions, and for each input a map from there to the current
positions.
"""
