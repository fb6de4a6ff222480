"""Let ``python -m gpudiag`` be ``gpudiag``."""

from gpudiag.cli.main import main

if __name__ == "__main__":
    main()
