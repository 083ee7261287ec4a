"""The report of runs as one HTML page that needs nothing else, and the same as figures."""
