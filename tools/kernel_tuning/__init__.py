"""What ``tools/tune_kernels.py`` consists of."""
