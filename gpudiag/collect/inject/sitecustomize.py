"""Found first on PYTHONPATH: waits for an import of torch, then lets the user's own one run.

Copied into a run's folder. Every Python process of the command loads this file, so it does as
little as can be: the hooks themselves are loaded when a package of ``_PACKAGES`` is imported. An
interpreter that ignores PYTHONPATH (-E, -I) gets it through gpudiag_inject.pth instead, where
gpudiag is installed in its environment. Python 3.8 and newer.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_NAME = "_gpudiag_inject"
_PACKAGES = frozenset(
    ["torch", "safetensors", "transformers", "accelerate", "lightning", "pytorch_lightning"]
)


class _Waiting:
    """A finder that finds nothing: it only sees the first import that concerns us."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Load the hooks where a package of ours is imported; they take this finder's place."""
        if name.partition(".")[0] not in _PACKAGES:
            return None
        sys.meta_path.remove(_Waiting)
        try:
            finder = _load().activate(_FOLDER)
        except Exception:  # the user's program comes first
            return None
        return finder.find_spec(name, path, target)


def _load():
    import importlib.util

    spec = importlib.util.spec_from_file_location(_NAME, os.path.join(_FOLDER, _NAME + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module


def _wait():
    """Watch imports, once per process: the .pth file and PYTHONPATH may both lead here."""
    if not hasattr(sys, "_gpudiag"):
        sys._gpudiag = _FOLDER
        sys.meta_path.insert(0, _Waiting)


def _chain():
    """Run the sitecustomize that the user would have had, on the path they would have had.

    Where there is none, the ImportError that says so leaves this module, as if we weren't there.
    """
    sys.path[:] = [one for one in sys.path if os.path.abspath(one or os.curdir) != _FOLDER]
    sys.path_importer_cache.pop(_FOLDER, None)
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401


_wait()
if __name__ == "sitecustomize":
    _chain()
