"""The paper's tables and figures: which records each of them needs, which are there, and how to make the rest."""
