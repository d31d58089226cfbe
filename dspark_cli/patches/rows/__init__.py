"""One module a patch, each with its `PATCH`."""
