import subprocess
import sys
import threading
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from neuralpath.papers.runs import store as store_module
from neuralpath.papers.runs.display import Display
from neuralpath.papers.runs.executors import Outcome, ProcessExecutor, run_task
from neuralpath.papers.runs.records import read_record
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.sweep import problems_of, results_of, sweep_store
from neuralpath.papers.runs.task import RunError, Weights
from papers.runs.small_tasks import Counting, Dying, Failing, archive_runs, finished, run_tasks


def chain():
    base = Counting("base")
    return base, Counting("child", reads=(Weights(base),)), Counting("other", n=5)


def files(folder):
    """Everything that must not depend on how a sweep was done."""
    metrics = {path.relative_to(folder): path.read_bytes() for path in folder.glob("*/metrics.jsonl")}
    return metrics | finished(folder)


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_are_done_in_the_order_of_their_needs(tmp_path, jobs):
    base, child, other = chain()
    results = run_tasks([child, other], tmp_path, jobs=jobs, progress=False)
    assert list(results) == [child, other]
    assert results[child]["start"] == 3.0
    assert results[other]["squares"] == [1, 4, 9, 16, 25]
    assert (tmp_path / base.name / "record.json").exists()
    assert not list(tmp_path.rglob("*.part"))


def test_finished_runs_are_not_repeated(tmp_path):
    tasks = chain()
    run_tasks(tasks, tmp_path, progress=False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")}
    run_tasks(tasks, tmp_path, progress=False)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")} == before


def test_processes_and_this_process_write_the_same_bytes(tmp_path):
    run_tasks(chain(), tmp_path / "one", jobs=1, progress=False)
    run_tasks(chain(), tmp_path / "two", jobs=2, progress=False)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    task = Counting("slow", n=4)
    store = Store(tmp_path)
    store.make()
    store.begin(task)
    store.directory(task).add_metrics(1, {"square": 100})  # a run that was killed after its first step
    assert run_tasks([task], tmp_path, progress=False)[task]["squares"] == [100, 4, 9, 16]


def test_a_line_that_was_cut_off_is_passed_over(tmp_path):
    task = Counting("cut", n=2)
    store = Store(tmp_path)
    store.make()
    store.begin(task)
    (store.folder(task) / "metrics.jsonl").write_text('{"step": 1, "square": 1}\n{"step": 2, "squ')
    assert len(store.directory(task).metrics()) == 1


def test_failures_are_listed_block_what_needs_them_and_are_retried_on_request(tmp_path):
    flag = tmp_path / "flag"
    failing = Failing("bad", flag=str(flag))
    child, other = Counting("child", reads=(Weights(failing),)), Counting("other")
    with pytest.raises(RunError, match="ValueError: the flag is missing") as caught:
        run_tasks([child, other], tmp_path / "out", progress=False)
    assert failing.name in str(caught.value)
    assert f"needs {failing.name}" in str(caught.value)
    assert (tmp_path / "out" / other.name / "record.json").exists()
    flag.touch()
    with pytest.raises(RunError, match="2 of 2 runs have failed"):  # not without being asked
        run_tasks([child], tmp_path / "out", progress=False)
    assert run_tasks([child], tmp_path / "out", retry_failed=True, progress=False)[child]["start"] == 3.0
    assert Store(tmp_path / "out").failure(failing) is None


def test_a_process_that_dies_costs_its_own_run_only(tmp_path):
    tasks = [Dying("dying", flag=str(tmp_path / "flag")), *(Counting(f"c{i}") for i in range(3))]
    with pytest.raises(RunError, match="SIGKILL"):
        run_tasks(tasks, tmp_path / "out", jobs=2, progress=False)
    assert len(finished(tmp_path / "out")) == 3
    results = run_tasks(tasks, tmp_path / "out", jobs=2, retry_failed=True, progress=False)
    assert len(results) == 4


def test_a_process_that_dies_while_it_has_nothing_to_do_is_replaced(tmp_path):
    store = Store(tmp_path)
    store.make()
    executor = ProcessExecutor(1, store, "")
    try:
        done = []
        for name in ("a", "b"):
            executor.start(Counting(name), ())
            while len(done) < (1 if name == "a" else 2):
                done += executor.wait(1.0)
            process = executor._workers[0].process
            process.kill()
            process.join()
        assert [outcome.kind for _, outcome in done] == ["finished", "finished"]
    finally:
        executor.stop()


def test_records_count_as_finished_without_their_directories(tmp_path):
    base, child, other = chain()
    run_tasks([child, other], tmp_path / "first", progress=False)
    records = archive_runs(tmp_path / "first", tmp_path / "records", (base, child))
    results = run_tasks([child, other], tmp_path / "second", records=records, progress=False)
    assert len(results) == 2
    assert list(finished(tmp_path / "second")) == [other.name]
    assert run_tasks([child, other], tmp_path / "third", records=tmp_path / "first", progress=False) == results
    assert finished(tmp_path / "third") == {}  # another output folder counts too


def test_a_network_whose_weights_are_missing_is_trained_again_for_the_runs_that_read_it(tmp_path):
    base, child, _ = chain()
    run_tasks([base], tmp_path / "first", progress=False)
    records = archive_runs(tmp_path / "first", tmp_path / "records", (base,))
    assert run_tasks([child], tmp_path / "second", records=records, progress=False)[child]["start"] == 3.0
    archive_runs(tmp_path / "first", records, (base,), weights=(base,))
    assert run_tasks([child], tmp_path / "third", records=records, progress=False)[child]["start"] == 3.0
    assert not (tmp_path / "third" / base.name).exists()


def test_a_good_record_is_read_once(tmp_path, monkeypatch):
    base, child, _ = chain()
    run_tasks([child], tmp_path, progress=False)
    reads = []
    monkeypatch.setattr(store_module, "read_record", lambda path, task: reads.append(task) or read_record(path, task))
    store = Store(tmp_path)
    sweep_store([child], store, progress=False)
    assert len(results_of([base, child], store)) == 2
    assert problems_of([base, child], store) == []
    assert sorted(task.name for task in reads) == sorted([base.name, child.name])


def test_two_invocations_share_the_work(tmp_path):
    tasks = [Counting(f"c{i}", n=2, pause=0.1) for i in range(4)]
    results = {}

    def one(key):
        results[key] = run_tasks(tasks, tmp_path, jobs=2, progress=False)

    threads = [threading.Thread(target=one, args=(key,)) for key in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results["a"] == results["b"]
    lines = [len((tmp_path / task.name / "metrics.jsonl").read_text().splitlines()) for task in tasks]
    assert lines == [2] * 4  # nobody did a step twice


def test_a_run_in_other_hands_is_waited_for(tmp_path):
    task = Counting("held")
    store = Store(tmp_path)
    store.make()
    done = threading.Event()

    def hold():
        with store.lock(task):
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    time.sleep(0.1)
    assert run_task(task, store).kind == "busy"
    waiter = threading.Timer(1.0, done.set)
    waiter.start()
    assert run_tasks([task], tmp_path, progress=False)[task]["squares"] == [1, 4, 9]
    holder.join()


def test_an_output_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"file/out cannot be written to"):
        run_tasks([Counting("a")], tmp_path / "file" / "out", progress=False)


def test_progress_is_plain_lines_where_there_is_no_terminal(tmp_path, capfd):
    run_tasks([Counting("base")], tmp_path)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "0 of 1 runs finished"
    assert lines[1].startswith("[1/1] finished counting-base-")


def test_runs_that_have_failed_before_are_not_counted_as_finished(tmp_path, capfd):
    tasks = [Failing(f"bad{i}", flag=str(tmp_path / "flag")) for i in range(2)]
    for expected in ("0 of 3 runs finished", "1 of 3 runs finished, 2 failed"):
        with pytest.raises(RunError, match="2 of 3 runs have failed"):
            run_tasks([*tasks, Counting("good")], tmp_path / "out")
        assert capfd.readouterr().err.splitlines()[0] == expected


def test_the_live_table_shows_what_runs_and_how_far_it_is(tmp_path):
    running, finished = Counting("base", n=4), Counting("other")
    store = Store(tmp_path)
    store.make()
    store.begin(running)
    with Display(store, (running, finished), n_waiting=2, show=False) as display:
        display.started(finished)
        display.ended(finished, Outcome("finished", seconds=90.0))
        display.started(running)
        store.directory(running).add_metrics(1, {"test_accuracy": 0.5})
        console = Console(width=120, file=StringIO())
        console.print(display)
    text = console.file.getvalue()
    assert "1 of 2 runs finished, 1 running" in text
    assert "counting base" in text
    assert "1/4" in text
    assert "test 50.0%" in text


UNGUARDED = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from papers.runs.small_tasks import Counting, run_tasks
run_tasks([Counting("a"), Counting("b")], Path({out!r}), jobs=2, progress=False)
"""


def test_a_script_that_is_not_guarded_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED.format(tests=str(Path(__file__).parents[2]), out=str(tmp_path / "out")))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert 'must call it under `if __name__ == "__main__":`' in done.stderr
