"""What drives every method: the loop, its checkpoints and progress, and how chains are spread. Knows no method."""
