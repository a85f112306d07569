"""Whether steps, checkpoints, minibatches and reward of a study or of one arm fit into each other."""

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


def reward_faults(prefix: str, training: Training) -> Iterator[str]:
    """A reward of which it is not said from where on it counts as correct, or a success that no grade can be."""
    path, threshold = f"{prefix}training.success_threshold", training.success_threshold
    if threshold is None:
        if ":" in training.reward:
            allowed = f"{training.reward} does not say from which reward on a rollout counts as correct"
            yield f"{path}: missing: {allowed}; the records by correct rollouts, and clips that follow them, need it"
    elif ":" not in training.reward and not 0 < threshold <= 1:
        yield line(path, threshold, f"above 0 and at most 1: {training.reward} gives 1 for a correct answer, else 0")


def warmup_faults(prefix: str, training: Training) -> Iterator[str]:
    """Warm-up steps that the schedule would silently leave out."""
    if training.schedule == "constant" and training.warmup_steps:
        yield line(f"{prefix}training.warmup_steps", training.warmup_steps, "0, or schedule: constant_with_warmup")
