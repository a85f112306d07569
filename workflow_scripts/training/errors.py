"""Why a training cannot go on."""

from workflow_scripts.errors import UserError


class TrainingError(UserError):
    """A fault of the run; one line for the user."""


class Diverged(TrainingError):
    """The weights lead to numbers that are not finite: the run ends, and counts with its last checkpoint."""


class OutOfMemory(Exception):
    """A forward or backward pass did not fit. micro_batch: rollouts it was for."""

    def __init__(self, micro_batch: int) -> None:
        super().__init__(micro_batch)
        self.micro_batch = micro_batch
