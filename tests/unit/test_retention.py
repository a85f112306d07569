"""Weights that go once they are sampled on every benchmark, and not before."""

from pathlib import Path

import pytest

from workflow_scripts import tables
from workflow_scripts.job import Job
from workflow_scripts.models.retention import drop_sampled_weights


class Sampled:
    """A trained run, and the sampling jobs of its two benchmarks."""

    def __init__(self, root: Path) -> None:
        self.root, self.run = root, root / "runs" / "gapo" / "seed-0"
        self.trained("a")
        for name, table in (("base/manifest", tables.MANIFEST), ("holdouts/one", tables.MANIFEST)):
            tables.write(root / f"{name}.parquet", table, [], {})
        tables.write(root / "holdouts" / "two.parquet", tables.MANIFEST, [], {})

    @property
    def weights(self) -> Path:
        """The folder that may be dropped."""
        return self.run / "checkpoints"

    def trained(self, sha256: str) -> None:
        """The run with weights of that hash."""
        (self.weights / "step-8").mkdir(parents=True, exist_ok=True)
        row = {"step": 8, "file": "checkpoints/step-8/model.safetensors", "sha256": sha256, "bytes": 1}
        tables.write(self.run / "checkpoints.parquet", tables.CHECKPOINTS, [row], {})

    def completions(self, benchmark: str) -> Path:
        """What a sampling job writes."""
        return self.root / "evals" / "gapo" / "seed-0" / benchmark / "completions.parquet"

    def samples(self, benchmark: str, keep: bool = False, count: int = 4, now: dict[str, int] | None = None) -> bool:
        """What the end of one sampling job does; now: what the study samples today."""
        self.completions(benchmark).parent.mkdir(parents=True, exist_ok=True)
        self.completions(benchmark).touch()
        job = Job(
            settings={"benchmark": benchmark, "samples": count, "temperature": 1.0},
            compute={"keep": {"checkpoints": keep}, "sampled_on": now or {"one": 4, "two": 4}},
            code="c",
            root=self.root,
            inputs={
                "checkpoints": [str(self.run / "checkpoints.parquet")],
                "base": [str(self.root / "base" / "manifest.parquet")],
                "holdout": [str(self.root / "holdouts" / f"{benchmark}.parquet")],
            },
            outputs={},
            libraries=(),
        )
        return drop_sampled_weights(job)


@pytest.fixture
def sampled(tmp_path: Path) -> Sampled:
    """Trained, nothing sampled."""
    return Sampled(tmp_path)


def test_weights_go_after_the_last_benchmark_and_hashes_stay(sampled: Sampled) -> None:
    assert not sampled.samples("two")
    assert sampled.weights.exists()
    assert sampled.samples("one")
    assert not sampled.weights.exists()
    assert tables.read(sampled.run / "checkpoints.parquet", tables.CHECKPOINTS)["sha256"].to_pylist() == ["a"]


def test_weights_stay_where_the_study_keeps_them(sampled: Sampled) -> None:
    assert not sampled.samples("one", keep=True)
    assert not sampled.samples("two", keep=True)
    assert sampled.weights.exists()


def test_a_benchmark_that_is_to_be_sampled_again_still_needs_the_weights(sampled: Sampled) -> None:
    sampled.samples("one", keep=True)
    sampled.trained("b")  # what was sampled were other weights
    assert not sampled.samples("two")
    more = {"one": 8, "two": 4}
    assert not sampled.samples("two", now=more)  # one has 4 samples so far
    assert sampled.weights.exists()
    assert sampled.samples("one", count=8, now=more)


def test_completions_that_are_gone_are_to_be_drawn_again(sampled: Sampled) -> None:
    sampled.samples("one")
    sampled.completions("one").unlink()  # the job was killed after its note, say
    assert not sampled.samples("two")
    sampled.completions("one").with_name("samples.parquet").touch()  # graded, and not kept
    assert sampled.samples("two")


def test_other_problems_are_yet_to_be_sampled(sampled: Sampled) -> None:
    sampled.samples("one", keep=True)
    row = {"file": "x", "sha256": "x", "bytes": 1}
    tables.write(sampled.root / "holdouts" / "one.parquet", tables.MANIFEST, [row], {})
    assert not sampled.samples("two")
    assert sampled.samples("one")
