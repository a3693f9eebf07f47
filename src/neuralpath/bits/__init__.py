"""Gates as bits: 64 to a word, and population counts on them."""
