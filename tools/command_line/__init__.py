"""What the command-line tools share: flags of models, prompts from files, tables."""
