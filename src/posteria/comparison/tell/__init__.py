"""What was found, as results.json, sentences and tables; all that a report reads."""
