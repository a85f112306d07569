"""Whether steps, checkpoints and minibatches of a study or of one arm fit into each other."""

from collections.abc import Iterator

from workflow_scripts.study.faults import line
from workflow_scripts.study.keys import Compute, Rollout, Training


def step_faults(prefix: str, training: Training, updates: int, start: int = 0) -> Iterator[str]:
    """Steps and checkpoints that do not fit the updates per rollout batch.

    prefix: "" or the path of the arm whose settings these are. start: the step that a branch starts from.
    """
    multiple = f"a multiple of {updates}, the updates per rollout batch (rollout.minibatches x rollout.epochs)"
    if start:
        multiple += f", after step {start}"
    if training.steps % updates or training.steps <= start:
        yield line(f"{prefix}training.steps", training.steps, multiple)
    for step in training.checkpoints or ():
        if step > training.steps:
            yield line(f"{prefix}training.checkpoints", step, f"at most training.steps, {training.steps}")
        elif step % updates or step <= start:
            yield line(f"{prefix}training.checkpoints", step, multiple)
    if start % updates:
        allowed = f"{start}, where the branch starts, is no multiple of {updates}: batches would be out of step"
        yield line(f"{prefix}rollout", updates, allowed)
    if training.checkpoints and max(training.checkpoints) < training.steps:
        allowed = f"the last one is training.steps, {training.steps}: nothing is kept of the steps after it"
        yield line(f"{prefix}training.checkpoints", training.checkpoints, allowed)


def batch_faults(prefix: str, rollout: Rollout, compute: Compute) -> Iterator[str]:
    """A rollout batch that does not split evenly into minibatches, or a minibatch over the processes."""
    minibatch, rest = divmod(rollout.rollouts, rollout.minibatches)
    key = "processes" if compute.processes else "gpus"
    processes = compute.processes or max(1, compute.gpus)
    if rest:
        allowed = f"a divisor of the rollouts of a batch, {rollout.rollouts} (rollout.prompts x rollout.group_size)"
        yield line(f"{prefix}rollout.minibatches", rollout.minibatches, allowed)
    elif minibatch % processes:
        yield line(
            f"compute.{key}", processes, f"a divisor of the {minibatch} rollouts of a minibatch ({prefix}rollout)"
        )


def warmup_faults(prefix: str, training: Training) -> Iterator[str]:
    """Warm-up steps that the schedule would silently leave out."""
    if training.schedule == "constant" and training.warmup_steps:
        yield line(f"{prefix}training.warmup_steps", training.warmup_steps, "0, or schedule: constant_with_warmup")
