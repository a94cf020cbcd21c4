"""The measurements of ``tools/benchmark.py``, one module each."""
