"""Every parser of outside bytes, given arbitrary bytes and damaged files: success or an otprune error, nothing else."""
