"""A session for others: as one HTML page that plays it, or as a recording of a terminal."""
