"""Tests of otprune, and the random networks they draw."""
