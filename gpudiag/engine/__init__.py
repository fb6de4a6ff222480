"""From paths to an analysis, with the ranks of a job summed up side by side."""
