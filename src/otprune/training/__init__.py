"""Training with a sparsity penalty: data, augmentation, the step, schedules, runs that can be resumed."""
