"""What the tests of `armslength compare` share: calls of it, tables and logs."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workflow_scripts.commands import compare
from workflow_scripts.commands.selftest import BASELINE, MARGIN, TREATMENT

HEADER = "run,arm,seed,problem,n,c"


def said(*arguments: Any, baseline: str = "a", margin: float = MARGIN) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of a call."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = compare.main([*map(str, arguments), "--baseline", baseline, "--margin", str(margin)])
    return code, out.getvalue(), err.getvalue()


def table(counts: dict[str, Any], samples: int = 100) -> str:
    """csv of arm -> a row of counts per seed."""
    rows = [
        f"{arm}-{seed},{arm},{seed},{problem},{samples},{c}"
        for arm, runs in counts.items()
        for seed, run in enumerate(runs)
        for problem, c in enumerate(run)
    ]
    return "\n".join([HEADER, *rows]) + "\n"


EXAMPLE = table({"a": BASELINE, "b": TREATMENT})


def log(*entries: Any) -> str:
    """jsonl."""
    return "".join((entry if isinstance(entry, str) else json.dumps(entry)) + "\n" for entry in entries)


def entry(doc_id: int, **more: Any) -> dict[str, Any]:
    """A line of a sample log."""
    return {"doc_id": doc_id, "filter": "none", "metrics": ["acc"], "acc": 1.0, "doc_hash": f"h{doc_id}"} | more


def big(path: Path, *shape: int) -> pd.DataFrame:
    """arms x seeds x steps x problems rows as csv."""
    index = np.indices(shape).reshape(4, -1)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: index[i] for i, name in enumerate(("arm", "seed", "step", "problem"))})
    frame["arm"] = "arm" + frame["arm"].astype(str)
    frame["n"], frame["c"] = 8, rng.binomial(8, rng.random(shape[3])[index[3]])
    frame.to_csv(path, index=False)
    return frame


def one_line(err: str) -> str:
    """The line, after a check that it is one of the command's own."""
    assert err.startswith("armslength compare: ") and err.count("\n") == 1 and "Traceback" not in err, err
    return err
