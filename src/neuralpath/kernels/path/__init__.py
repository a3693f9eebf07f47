"""The path kernel: second moments between two inputs, carried exactly through any graph; `entries` draws them."""
