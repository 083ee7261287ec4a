"""What can go wrong, each error saying what is wrong with which layer or file and what to do about it."""


class OtpruneError(Exception):
    """Base of every error that otprune raises on purpose."""


class ModelError(OtpruneError):
    """The model cannot be handled as it is: no batch norm, wrapped, branching on its data."""


class ExampleError(OtpruneError):
    """The example input does not fit the model."""


class ThresholdError(OtpruneError):
    """A threshold cannot be computed: δ out of range, scaling factors that are not finite or all zero."""


class PenaltyError(OtpruneError):
    """A sparsity penalty cannot be applied: λ negative or not a number, nothing to penalize."""


class PlanError(OtpruneError):
    """A plan does not fit the model it is applied to, or its file is damaged."""


class VerificationError(OtpruneError):
    """The pruned model does not compute what the masked original computes."""


class CheckpointError(OtpruneError):
    """A checkpoint is damaged, foreign, or belongs to another model."""


class TrainingError(OtpruneError):
    """A training cannot go on: its loss is not a number, its images do not fill a batch."""


class DataError(OtpruneError):
    """Training data cannot be had or cannot be trusted: unreachable, short, of a wrong digest, labels out of range."""


class DeployError(OtpruneError):
    """A model cannot be brought to a runtime: an operator that it lacks, a package that is missing, other outputs."""
