"""Experiments as the paper runs them: train with sparsity, prune, repair, fine-tune; a folder and a record each."""
