"""What records come to: figures, tables, and the page on how the paper is reproduced."""
