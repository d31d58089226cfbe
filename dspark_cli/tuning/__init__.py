"""Finding the best number of draft tokens by measuring, with as few servers as that takes."""
