"""Train one arm with one seed, from its last resumable state if there is one; while another job does, wait for it."""

from functools import partial
from importlib.util import find_spec
from typing import Any

from workflow_scripts.devices import take_gpus
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job, run
from workflow_scripts.training import finished
from workflow_scripts.training.errors import Diverged
from workflow_scripts.training.lease import held

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "tokenizers")


def _check_packages(compute: dict[str, Any]) -> None:
    """Raises UserError for what the study names under compute and is not installed where the job runs."""
    for tracker in compute["trackers"]:
        if find_spec(tracker) is None:
            raise UserError(f"compute.trackers: {tracker}: not installed here; pip install {tracker}")
    if compute["engine"] == "vllm" and find_spec("vllm") is None:
        raise UserError("compute.engine: vllm: not installed here; make gpu")


def main(job: Job) -> None:
    _check_packages(job.compute)
    from workflow_scripts.training import outputs

    with held(outputs.state_folder(job), partial(print, flush=True)) as lease:
        if outputs.hand_out(job, lease):
            print(finished.HANDED_OUT, flush=True)
            return
        take_gpus(job, job.compute["gpus"])  # before anything is imported that may start CUDA
        from workflow_scripts.training.run import fit_and_train

        finished.forget_divergence(outputs.state_folder(job))
        try:
            fit_and_train(job, lease)
        except Diverged as error:
            finished.note_divergence(outputs.state_folder(job), str(error))
            raise


if __name__ == "__main__":
    run(main, LIBRARIES)
