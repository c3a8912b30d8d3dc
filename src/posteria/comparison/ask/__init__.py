"""What is asked: data, the splits of their rows, a model."""
