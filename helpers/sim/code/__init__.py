"""Everything that reads code: PTX, SASS, and the lines of the reader's cell."""
