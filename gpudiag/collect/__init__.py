"""What happens while a command runs, and what this machine lets gpudiag see."""
