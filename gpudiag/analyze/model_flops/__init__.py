"""FLOPs from a model's description: per token, in every convention in circulation."""
