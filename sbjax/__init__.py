"""Exact, branch-parallel speculative decoding in JAX."""
