"""Several settings of the weights: independent ones, or those along one trajectory."""
