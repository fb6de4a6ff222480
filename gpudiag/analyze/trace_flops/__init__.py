"""FLOPs of operators from the shapes that a trace recorded, linked to what ran on the device."""
