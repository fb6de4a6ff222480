"""gpudiag: where every GPU-second of a PyTorch training run went."""

__version__ = "0.1.0"
