"""What a tune found, each with its figures and what to do."""
