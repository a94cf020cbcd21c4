"""Ways to run the same round."""
