"""Networks looked into: their linear operations, found and replaced."""
