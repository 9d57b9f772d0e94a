"""The laboratory for fixed universal transformers: tasks, frozen backbones, and the programs trained on them."""

__version__ = "0.1.0"
