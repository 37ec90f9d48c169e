"""Adapters: checkpoints, and the loader's state with them, for training frameworks.

Each module imports its framework; ``headrace`` itself imports none of them.

- ``headrace.frameworks.lightning``: HeadraceCheckpointIO and LoaderState
- ``headrace.frameworks.transformers``: TrainerCheckpoints, for the Hugging Face Trainer
- ``headrace.frameworks.accelerate``: AccelerateCheckpoints
- ``headrace.frameworks.deepspeed``: HeadraceCheckpointEngine

A Headrace loader gives each rank its own samples by itself, so none of them may shard it again.
"""
