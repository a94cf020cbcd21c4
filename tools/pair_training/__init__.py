"""The parts of ``tools/train_pair.py``: text, tokenizer, models, training loop, measurements, files."""
