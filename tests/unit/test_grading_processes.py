"""The processes that grade for math_answer: their limits, deaths and callers, and the stages that use them."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from problem_files import stage_job
from test_math_grading import ENDLESS, SLOW, boxed, problem, status

from workflow_scripts import grading, tables
from workflow_scripts.errors import UserError
from workflow_scripts.grading import _pool, _server, math_answer
from workflow_scripts.stages import audit_gold, grade


@pytest.fixture(scope="module")
def tight():
    client = _pool._Client(_server.Limits(cpu_seconds=0.3, wall_seconds=20.0, memory_bytes=1 << 30))
    client.workers = 2
    yield client
    client.close()


@pytest.fixture
def client(tight, monkeypatch):
    """A pool of its own with tight limits, which the grader uses."""
    monkeypatch.setattr(_pool, "_client", tight)
    monkeypatch.setattr(math_answer, "_known", {})
    return tight


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def until(holds, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def busy(server: int, but: int = 0) -> int | None:
    """A worker that has used a tenth of a second of processor time, other than one."""
    for worker in set(children(server)) - {but}:
        fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
        if sum(map(int, fields[11:13])) >= 0.1 * os.sysconf("SC_CLK_TCK"):
            return worker
    return None


def test_hostile_answers_end_at_their_limit_and_cost_no_other_answer(client):
    hostile = [ENDLESS, SLOW, "\\lfloor 2^{2^{34}}\\rfloor+\\sqrt{2}", "(((9!)!)!)!"]
    rows = [boxed(text, "\\sqrt{5}") for text in hostile] + [
        boxed(f"\\frac{{{n}}}{{2}}", f"{n}/2") for n in range(1, 9)
    ]
    start = time.monotonic()
    verdicts = math_answer.grade_many(rows)
    assert time.monotonic() - start < client.limits.wall_seconds  # it is processor time that ended them
    assert [verdict.status for verdict in verdicts] == ["timeout"] * 4 + ["correct"] * 8
    assert all(verdict.answer is None for verdict in verdicts[:4])
    for worker in children(client.server.pid):
        assert re.search(rf"address space +{1 << 30} +{1 << 30} ", Path(f"/proc/{worker}/limits").read_text())


def test_an_answer_that_uses_no_processor_time_ends_at_the_limit_on_the_clock():
    client = _pool._Client(_server.Limits(wall_seconds=1.0))
    client._start()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.ask, [(ENDLESS, "7"), ("x", "x")])
        until(lambda: busy(client.server.pid))
        worker = busy(client.server.pid)
        os.kill(worker, signal.SIGSTOP)
        assert asked.result(timeout=20) == [("timeout", None), ("correct", None)]
    until(lambda: not alive(worker))
    client.close()


def test_equal_pairs_are_compared_once(client, monkeypatch):
    asked = []
    ask = client.ask
    monkeypatch.setattr(client, "ask", lambda pairs: asked.extend(pairs) or ask(pairs))
    rows = [boxed("\\dfrac{1}{2}", "0.5"), ("Or \\boxed{\\frac{1}{2}}", "0.5", True), boxed("1", "2"), boxed("x", "2")]
    assert [v.status for v in math_answer.grade_many(rows * 3)] == ["correct", "correct", "wrong", "wrong"] * 3
    math_answer.grade_many(rows)
    assert asked == [("\\frac{1}{2}", "0.5"), ("x", "2")]


def test_a_killed_worker_is_replaced_and_one_that_dies_again_fails_with_one_line():
    client = _pool._Client(_server.Limits(cpu_seconds=0.6))
    client._start()
    with ThreadPoolExecutor(1) as pool:
        for deaths in (1, 2):
            asked, killed = pool.submit(client.ask, [(ENDLESS, "7")]), 0
            for _ in range(deaths):
                until(lambda before=killed: busy(client.server.pid, before))
                killed = busy(client.server.pid, killed)
                os.kill(killed, signal.SIGKILL)
            if deaths == 1:
                assert asked.result(timeout=30) == [("timeout", None)]  # the second worker ran into the limit
            else:
                with pytest.raises(grading.GraderError, match=r"^grading: a worker ended twice by signal 9$"):
                    asked.result(timeout=30)
    assert client.ask([("x", "x")]) == [("correct", None)]
    client.close()


def test_a_killed_server_is_started_again(client):
    assert client.ask([("x", "x")]) == [("correct", None)]
    first = client.server.pid
    os.kill(first, signal.SIGKILL)
    assert client.ask([("x", "y")]) == [("wrong", None)]
    assert client.server.pid != first and not alive(first)


def test_a_server_that_cannot_start_fails_with_one_line(client, monkeypatch):
    client.close()
    monkeypatch.setattr(_pool, "_SOURCE", "raise SystemExit(3)  # {0}")
    with pytest.raises(grading.GraderError, match="ended twice: ended with code 3"):
        math_answer.grade(*boxed("x", "x"))


def test_it_works_from_any_thread_and_in_a_forked_process(client):
    rows = [boxed(f"\\frac{{{n}}}{{3}}", f"{n}/3") for n in range(1, 5)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: math_answer.grade_many([*rows[n:], boxed(f"x^{n}", "x")]), range(4)))
    assert [verdict.status for verdict in found[1]] == ["correct", "correct", "correct", "correct"]
    read, write = os.pipe()
    server = client.server.pid
    child = os.fork()
    if not child:
        try:
            verdict = status("\\boxed{\\sqrt{8}}", "2\\sqrt{2}")
            os.write(write, f"{verdict} {_pool._client.server.pid != server}".encode())
            _pool._client.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 99) == b"correct True"  # by a server of its own
    assert status("\\boxed{\\sqrt{12}}", "2\\sqrt{3}") == "correct"
    assert client.server.pid == server


def test_nothing_is_left_of_a_parent_that_was_killed():
    code = (
        "import sys; from workflow_scripts.grading import _pool, _server\n"
        "c = _pool._Client(_server.Limits(cpu_seconds=60.0)); c.ask([('x', 'y')]); print(c.server.pid, flush=True)\n"
        f"c.ask([({ENDLESS!r}, '7')] * 2)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        server = int(parent.stdout.readline())
        until(lambda: busy(server))
        workers = children(server)
        assert "torch" not in Path(f"/proc/{server}/maps").read_text()
        parent.kill()
    until(lambda: not any(map(alive, [server, *workers])))


def test_the_stages_say_in_one_line_that_the_grader_cannot_work(tmp_path, client, monkeypatch):
    client.close()
    monkeypatch.setattr(_pool, "_SOURCE", "raise SystemExit(3)  # {0}")
    holdout, made = tmp_path / "holdout.parquet", tmp_path / "completions.parquet"
    tables.write(holdout, tables.PROBLEMS, [problem(1, "x")], {})
    row = {"arm": "gapo", "seed": 0, "step": 4, "benchmark": "set", "problem_id": f"{1:016x}", "sample": 0,
           "completion": "\\boxed{x}", "completion_tokens": 9, "truncated": False}  # fmt: skip
    tables.write(made, tables.COMPLETIONS, [row], {"settings": {}, "code": "c"})
    files = {"completions": [made], "holdout": [holdout]}
    with pytest.raises(UserError, match="ended twice"):
        asked = {"grader": "math_answer", "sampled": {}, "sampling_code": "c"}
        grade.main(stage_job(tmp_path, asked, files, "samples"))
    with pytest.raises(UserError, match="ended twice"):
        audit_gold.main(stage_job(tmp_path, {"grader": "math_answer"}, {"problems": [holdout]}, "audit"))


def test_the_training_reward_is_the_same_function(client):
    from workflow_scripts.training.run import grader
    from workflow_scripts.training.scored import Scored
    from workflow_scripts.training.trainer import Trainer

    trainer = SimpleNamespace()

    def rewards(*said: str, question: str = "", refuse: bool = True) -> list[float]:
        trainer.grade = grader("math_answer", grading.version("math_answer"), refuse)
        ids = [[5, 0 if text.endswith("}") else 7] for text in said]
        trainer._scored = Scored.of(list(said), [""] * len(said), ids, {0}, None)
        gold = ["\\frac{1}{2}"] * len(said)
        return Trainer.score(trainer, [question] * len(said), list(said), ids, answer=gold, problem_id=[])

    assert rewards("\\boxed{0.5}", "\\boxed{2}", f"\\boxed{{{SLOW}}}", "\\boxed{0.5", "\\boxed{\\frac{2}{4}}") == [
        1,
        0,
        0,
        0,
        1,
    ]
    assert trainer._scored.statuses == ["correct", "wrong", "timeout", "truncated", "correct"]
    for refuse, paid in ((True, [1, 0]), (False, [1, 1])):
        said = "\\boxed{0.5}", "\\boxed{\\frac{2}{4}}"
        assert rewards(*said, question="Simplify $\\frac24$.", refuse=refuse) == paid
