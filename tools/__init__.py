"""What makes pages of the documentation from records and settings."""
