"""Every row on every split, fitted and written down."""
