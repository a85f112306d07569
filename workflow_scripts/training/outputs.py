"""Where a training keeps its state and its outputs, and the outputs of one that is finished already."""

from pathlib import Path

from workflow_scripts import tables
from workflow_scripts.errors import UserError
from workflow_scripts.job import Job
from workflow_scripts.models.files import check_files
from workflow_scripts.training import finished, state
from workflow_scripts.training.lease import Lease


def run_folder(job: Job) -> Path:
    """Where the run's records and checkpoints lie."""
    return Path(job.output("checkpoints")).parent


def identity(job: Job) -> str:
    """What must be equal for a saved state to be continued; see `state.identity`."""
    return state.identity(job.settings, job.code, job.provenance["inputs"])


def state_folder(job: Job) -> Path:
    """Where the run keeps what a restarted job needs."""
    return job.root / "state" / run_folder(job).relative_to(job.root / "runs")


def hand_out(job: Job, lease: Lease) -> bool:
    """Put the outputs of a run that is finished already where they belong; False where there are none, or not with all
    their checkpoints."""
    folder = state_folder(job) / identity(job) / "finished"
    manifest = folder / "checkpoints.parquet"
    if not manifest.is_file():
        return False
    try:
        check_files(tables.read(manifest, tables.CHECKPOINTS).to_pylist(), Path(job.output("checkpoints")), "")
    except UserError:
        return False
    if not finished.publish(folder, job.provenance, staged(job)):
        return False
    forget(job, state.StateFolder(state_folder(job), identity(job), lease))
    return True


def forget(job: Job, saved: state.StateFolder) -> None:
    """Drop what only a run that is not finished needs; the state too, unless the study keeps it."""
    saved.ended() if job.compute["keep"]["state"] == "last" else saved.remove()


def staged(job: Job) -> dict[str, str]:
    """Name of each output in the folder of what a finished run leaves → where it belongs; the manifest last."""
    names = {Path(path).name: path for name, paths in job.outputs.items() for path in paths if name != "checkpoints"}
    return {**names, "checkpoints.parquet": job.output("checkpoints")}
