"""The inner operations of sbjax. Each folder holds one: ``reference.py`` is its specification."""
