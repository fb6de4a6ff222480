"""Build gpudiag's wheel with gpudiag_inject.pth at its root, so that it lands in site-packages.

Setuptools puts package data inside packages alone, and data_files outside site-packages; a file
that ``site`` reads has to be copied by the command that builds modules. pyproject.toml names it.
An editable install has no such file: there, -E and -I keep gpudiag out of a process.
"""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py  # type: ignore[import-untyped]

PTH = "gpudiag_inject.pth"


class BuildWithPth(build_py):  # type: ignore[misc]
    """Copies the .pth file beside the packages."""

    def run(self) -> None:
        """Build as ever, then add the file."""
        super().run()
        if not self.editable_mode:
            self.copy_file(
                str(Path("gpudiag/collect/inject") / PTH), str(Path(self.build_lib) / PTH)
            )

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Name the file among what was built."""
        own = [] if self.editable_mode else [str(Path(self.build_lib) / PTH)]
        return [*super().get_outputs(include_bytecode), *own]
