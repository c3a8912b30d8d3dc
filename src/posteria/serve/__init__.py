"""A fit or an export behind HTTP, watching itself: `posteria serve`. Needs the extra `serve`."""
