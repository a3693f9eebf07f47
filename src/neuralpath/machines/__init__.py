"""Kernel machines in scikit-learn's conventions: regression and classification with any kernel of this library."""
