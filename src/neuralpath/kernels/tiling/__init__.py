"""Large kernel matrices in tiles, under a memory budget."""
