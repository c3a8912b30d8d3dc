"""Who takes part: methods, baselines, predictions made elsewhere; and what each may spend."""
