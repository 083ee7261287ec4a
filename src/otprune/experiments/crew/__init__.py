"""Tasks in processes of their own on one machine: while one of them waits for a compiler, the others train."""
