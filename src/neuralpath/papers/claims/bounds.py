"""Thresholds of the comparisons: what the papers name, what was chosen here, and why."""

# Intervals and errors, in standard errors or in points of accuracy
CONFIDENCE = 0.95  # level of the confidence intervals
SIGMAS = 3.0  # standard errors beyond which a comparison says that something is above, or outside its bounds
MARGIN = 1.0  # standard errors that a mean must be inside its bounds to support a claim, or outside to be doubtful
MIN_SEEDS = 3  # seeds that a comparison needs to count; CIFAR-10 is exempt, its number of seeds is printed
MIN_ORDERS = 6  # orders of the gates that a comparison over orders needs to count (C23, C24)
SINGLE_RUN_DEVIATION = 0.5  # points between seeds, assumed for a single run: the mean of P1 table 2 on CIFAR-10
SINGLE_SEED_ERROR = 0.7  # points of error assumed for the difference of two single runs: √2 times the deviation

# Bounds in points of accuracy. Those that the papers do not name say "chosen here".
NAMED_DIFFERENCE = 0.3  # a smaller one is not worth naming; ReLU and FL on MNIST print 98.14 and 97.82; chosen here
RECOVERED = 1.0  # FL may be this far below the network that its gates come from (C9)
DECOUPLED = 3.0  # DL, and linear gates, may be this far below ReLU (C27, C28, C34)
NO_DIFFERENCE = 0.5  # between FR-II and FR-DI; the papers' own tables differ by as much (C10)
RANDOM_LABELS_COST = 2.0  # training on random labels with fixed gates may cost this: "less than 2 %" (C31)
SAME_GATES = 0.5  # between M4 and M5: "within 0.5 %" (C32)
PEAK = 1.0  # the test accuracy must fall this far from its peak on noisy labels (C33); chosen here
FAR_ABOVE = 5.0  # M2 above the end of M1: "far above" (C33); chosen here, the papers print 11.6 to 40.5
KERNEL_ACCURACY = 1.0  # between a wide value network and its kernel (C37); chosen here
# Percent, with ten classes, that random gates must exceed to generalize (C8): twice the accuracy of guessing, with
# which P2 section 6 compares them. Chosen here.
ABOVE_GUESSING = 20.0
# Percent of its training labels that a ReLU network must fit to be a reference (C9, C25, C27, C34), as in C14. The
# papers' networks fit about all; a network that is hardly trained is easily matched. Chosen here.
REFERENCE_FITTED = 90.0
# Orders of gates, tilings and inputs may move an accuracy this far, and it counts as the same (C23 to C25, C28, C30).
# The papers say "robust" without a number. Chosen here: the 3 % of C27 on CIFAR-10, the 1 % of C9 on MNIST.
ROBUST = {"mnist": 1.0, "cifar10": 3.0}

# Other bounds
ONE_SCALE = 10.0  # factor within which two sizes are of one scale (C13); chosen here
NEAR_LIMIT = 0.1  # relative distance from a limit at the largest width (C16, C17, C35); chosen here
ROOT_LAW = -0.4  # largest power of the width that counts as a fall like 1 / sqrt(width), with a margin of 0.1 (C36)
MEAN_OFF = 1.0  # standard errors that the mean of draws may be off, in the median over entries; 0.67 is exact (C4)
HALF_THE_DISTANCE = 0.5  # share of the first layer's distance from 1/2 that may remain at the last (C29); chosen here
LEAST_SQUARES = 1.8  # least sum of squares of a network without biases on the pair (x, 1), (x / 2, -1) (C2)
# Share of the first error at which random labels count as fitted (C15). Chosen here, of the two shares in the records:
# a few directions make half of the error, and steps to half do not separate the depths of wide networks.
FITTED = 0.1
SMALLEST = 1e-12  # floor for quantities that are 0 or rounding noise, before their logarithm
