"""Commands killed at random moments, and what is left of their runs: never a half file, the same result in the end."""
