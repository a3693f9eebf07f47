"""What kernels and gates say about training: dynamics, switching, concentration, conditioning."""
