"""From labels and scaling factors to a decision: dead-code elimination on channels."""
