"""Kernels in files: written tile by tile, resumed, verified, here or on a Dask cluster."""
