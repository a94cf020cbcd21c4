"""Parts of ``tools/train_hrad.py``: prompts, recorded rounds, training and figures of a predictor."""
