"""Drawings of a run that was recorded: what ``tools/trace_view.py`` is made of."""
