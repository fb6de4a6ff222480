"""Packages that users install rather than write.

A trace names files relative to sys.path, so that an installed package looks like a folder of the
user's project; its frames are shown only where no frame of the user's own is open.
"""

from __future__ import annotations

_NAMES = """
PIL IPython accelerate albumentations apex cv2 dask datasets deepspeed diffusers einops fastai
flash_attn fsspec huggingface_hub hydra jinja2 joblib kornia librosa lightning lightning_fabric
lightning_utilities matplotlib mlflow monai msgspec numba numpy omegaconf pandas peft polars pyarrow
pydantic pytorch_lightning ray requests rich safetensors scipy sentencepiece skimage sklearn
soundfile tensorboard tensorflow timm tokenizers torchaudio torchdata torchmetrics torchvision tqdm
transformer_engine transformers triton trl urllib3 vllm wandb webdataset xformers yaml
"""
LIBRARIES = frozenset(_NAMES.split())
