"""What runs inside the user's Python processes: copied into a run's folder, never imported here."""
