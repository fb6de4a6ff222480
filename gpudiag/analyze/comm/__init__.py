"""Communication across ranks: matched, aligned, split into waiting and transfer, blamed."""
