"""Each verb prints text or JSON and returns the right exit code; errors say what to do."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import neuroledger
from neuroledger import cli
from neuroledger.cli import EXAMPLES, main
from neuroledger.families.efficiency import cost
from neuroledger.stats.score import Score
from tests.cli.words import options_of, refusal_of
from tests.engine.lab import Lab


@pytest.fixture
def run(lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(lab.root)
    monkeypatch.setenv("NEUROLEDGER_DISPLAY", "plain")

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


def test_the_main_verbs_work_in_sequence(run, lab: Lab) -> None:
    assert run("check")[0] == 0
    code, out, _ = run("validate", "lab")
    assert code == 0 and "✓ lab" in out
    code, out, _ = run("run", "--dry-run")
    assert (
        code == 0
        and out.count("to do") >= 2
        and not (lab.root / "results" / "records").exists()
    )
    code, out, err = run("run")
    assert code == 0 and "2 computed" in out and "✓ lab.V4-ridge · pixels4" in err
    code, out, _ = run("run")
    assert code == 0 and "0 computed, 2 up to date" in out
    code, out, _ = run("score", "pixels4", "lab.V4-ridge")
    assert code == 0 and "of ceiling" in out and "control permuted" in out
    assert run("verify")[0] == 0


def test_each_verb_has_its_function() -> None:
    """Its options are typed parameters with help; its docstring is its help, and documents its JSON."""
    assert len(cli.VERBS) > 30
    for verb in cli.VERBS:
        types = get_type_hints(cli.function_of(verb))
        assert types.pop("return") is int and Any not in types.values(), verb
        assert {"json", "root"} <= set(types), verb
        assert "\n\n    JSON" in (cli.function_of(verb).__doc__ or ""), verb
        assert all(one.help for one in options_of(verb)), verb


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("lst", "neuroledger: no verb 'lst': did you mean 'list'?"),
        ("list --jsn", "neuroledger list: no option '--jsn': did you mean '--json'?"),
        ("--rot x list", "neuroledger: no option '--rot': did you mean '--root'?"),
        ("list model", "list: KIND: 'model' is not one of 'datasets', 'metrics'"),
        ("score pixels4", "neuroledger score: BENCHMARK is missing."),
        ("pin lab", "neuroledger pin: --from is missing."),
        ("run --seed x", "neuroledger run: --seed: should be a valid integer."),
        ("run --suite --dry-run", "neuroledger run: --suite: a value is missing."),
        ("run --suite", "neuroledger run: --suite: a value is missing."),
        ("list --json=3", "list: Option '--json' does not take a value."),
        ("list models lab", "list: Got unexpected extra argument"),
        ("plot bar --out x", "no figure 'bar': did you mean 'bars'?"),
        ("new metric a --arguments", "new: no option '--arguments'"),
    ],
)
def test_a_misuse_is_one_line_with_the_nearest_name(run, words: str, said: str) -> None:
    code, out, err = run(*words.split())
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1
    assert "figure" in said or err.rstrip().endswith("--help`")


def test_without_words_the_help_is_shown_and_that_of_each_verb_ends_with_a_use(
    run,
) -> None:
    code, out, err = run()
    assert (code, err) == (0, "") and out == run("--help")[1] and "Results:" in out
    assert set(EXAMPLES) == set(cli.VERBS)
    for verb, words in EXAMPLES.items():
        assert words.split()[0] == verb and refusal_of(words.split()) == ""
    assert "example: neuroledger list benchmarks" in run("list", "--help")[1]


def test_the_root_may_be_before_the_verb_and_anywhere_after_it(
    run, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    root = str(lab.root)
    for words in (
        ["--root", root, "show", "pixels4", "--json"],
        [f"--root={root}", "show", "pixels4", "--json"],
        ["show", "--root", root, "pixels4", "--json"],
        ["show", "pixels4", "--json", f"--root={root}"],
        ["--root", "/nowhere", "show", "pixels4", "--json", "--root", root],
    ):
        code, out, err = run(*words)
        assert code == 0 and json.loads(out)["id"] == "pixels4", (words, err)


def test_the_version_is_that_of_the_package(run) -> None:
    code, out, _ = run("--version")
    assert (code, out) == (0, f"neuroledger {neuroledger.__version__}\n")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("neuroledger le", "leaderboard"),
        ("neuroledger score --la", "--layers"),
        ("neuroledger score pixels4 lab.V", "lab.V4-ridge"),
        ("neuroledger validate l", "lab"),
    ],
)
def test_a_shell_completes_verbs_options_and_ids(
    run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    completed: str,
) -> None:
    monkeypatch.setenv("_NEUROLEDGER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit):
        main([])
    assert completed in capsys.readouterr().out.split()


def test_scores_in_json_are_the_record(run) -> None:
    run("validate", "lab")
    code, out, _ = run("score", "pixels4", "lab.V4-ridge", "--json")
    assert code == 0 and json.loads(out)["score"]["value"] > 0.5


def test_costs_in_json_are_numbers_or_null(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = {
        "footprint": Score(8.0, scale="bytes", unit="B"),
        "energy": Score(math.nan, status="failed", reason="no meter"),
    }
    monkeypatch.setattr(
        cost, "model_cost", lambda *given, **options: ("lab.V4-ridge", costs)
    )
    code, out, _ = run("cost", "pixels4", "--json")
    plain = json.loads(out)
    assert code == 0 and plain["benchmark"] == "lab.V4-ridge"
    assert (
        plain["costs"]["footprint"]["value"],
        plain["costs"]["footprint"]["unit"],
    ) == (8.0, "B")
    failed = plain["costs"]["energy"]
    assert (failed["value"], failed["status"], failed["reason"]) == (
        None,
        "failed",
        "no meter",
    )
    assert str(costs["energy"]) == "failed: no meter"


def test_a_requested_benchmark_without_data_is_reported_with_the_reason(
    run, lab: Lab
) -> None:
    path = lab.root / "specs" / "benchmarks" / "lab.V4-ridge.yaml"
    path.write_text(
        path.read_text(encoding="utf-8") + 'unavailable: "the lab is closed"\n',
        encoding="utf-8",
    )
    code, out, _ = run("run", "--benchmark", "lab.V4-ridge")
    assert code == 0 and "unavailable: lab.V4-ridge: the lab is closed" in out


def test_what_is_pending_exits_4_and_a_wrong_request_2(run) -> None:
    code, _, err = run("run")
    assert (
        code == 4
        and "pixels4: data set 'lab': it has not been validated: run `neuroledger validate lab`"
        in err
    )
    code, _, err = run("score", "pixels4", "lab.V4-ridge")
    assert code == 4 and "run `neuroledger validate lab`" in err
    code, _, err = run("score", "pixel4", "lab.V4-ridge")
    assert code == 2 and "did you mean 'pixels4'" in err
    assert run("score", "pixels4")[0] == 2
    assert run("fetch", "nothing")[0] == 2
    code, _, err = run("run", "--limit", "2")
    assert code == 2 and "at least 4" in err


def test_score_retries_a_failed_pair(run, monkeypatch: pytest.MonkeyPatch) -> None:
    from neuroledger.engine import run as running
    from neuroledger.errors import ModelError

    def broken(*_: object) -> None:
        raise ModelError("the network was not ready")

    run("validate", "lab")
    with monkeypatch.context() as patched:
        patched.setattr(running, "evaluate", broken)
        assert run("score", "pixels4", "lab.V4-ridge", "--record")[0] == 1
    code, out, _ = run("run", "pixels4")
    assert (
        code == 1
        and "1 of them failed before and was not tried again; --retry-failed tries them again"
        in out
    )
    code, out, _ = run("score", "pixels4", "lab.V4-ridge")
    assert code == 0 and "pixels4 on lab.V4-ridge: scored" in out


def test_an_interruption_exits_130_and_says_how_to_continue(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuroledger.engine import run as running

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    run("validate", "lab")
    monkeypatch.setattr(running, "run_job", interrupted)
    code, _, err = run("run")
    assert code == 130 and "Run the same command again" in err


def test_an_invalid_request_does_not_change_records(run, lab: Lab) -> None:
    run("validate", "lab")
    assert run("run")[0] == 0
    record = lab.root / "results" / "records" / "lab.V4-ridge" / "pixels4.json"
    before = record.read_bytes()
    code, _, err = run("score", "pixels4", "lab.V4-ridge", "--device", "cuda:7")
    assert code == 4 and "device 'cuda:7' is not available here" in err
    code, _, err = run("score", "pixels4", "lab.V4-ridge", "--seed", "-1")
    assert code == 2 and "choose a seed of 0 or more" in err
    assert record.read_bytes() == before


def test_an_interruption_does_not_wait_for_unstarted_jobs(
    lab: Lab, tmp_path: Path
) -> None:
    script = (
        "import signal, time\n"
        "from neuroledger.engine.executors import Calls, execute\n"
        "from neuroledger.engine.plan import Job\n"
        "from neuroledger.engine.records.inputs import Inputs\n"
        "def sleep(job):\n"
        "    time.sleep(float(job.model))\n"
        "if __name__ == '__main__':\n"
        # What a shell starts in the background ignores interruptions, and hands that down.
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    print('begun', flush=True)\n"
        "    times = [0.1] * 3 + [900] * 20\n"
        "    jobs = [Job(str(time), 'b', str(n), Inputs()) for n, time in enumerate(times)]\n"
        "    for _ in execute('processes:1', jobs, Calls(sleep, print)):\n"
        "        print('one', flush=True)\n"
    )
    (tmp_path / "long.py").write_text(script)
    command = [sys.executable, str(tmp_path / "long.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "one\n":
            pass
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode != 0


def test_a_front_is_drawn_into_a_figure_or_refused(run, lab: Lab) -> None:
    run("validate", "lab")
    run("run")
    code, _, err = run("pareto", "lab.V4-ridge", "--cost", "footprnt")
    assert code == 2 and "did you mean 'footprint'" in err
    code, _, err = run("pareto", "lab.V4-ridge")
    assert code == 2 and "no model has both a score" in err
    code, _, err = run("export", "neurobench", "lab.V4-ridge")
    assert code == 2 and "has no metric of NeuroBench's layout" in err


def test_list_and_show(run) -> None:
    code, out, _ = run("list", "models")
    assert (
        code == 0
        and out.splitlines()[0].split()[:2] == ["id", "version"]
        and "pixels4" in out
    )
    assert {"noise", "pixels4"} < {
        row["id"] for row in json.loads(run("list", "models", "--json")[1])
    }
    code, out, _ = run("show", "lab")
    assert code == 0 and "SIMULATED" in out and "sha256" in out
    code, _, err = run("show", "labb")
    assert code == 2 and "did you mean" in err


def test_steps_and_notes_are_printed_as_lists(
    run, repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    code, out, _ = run("show", "Chang2019Bold5000")
    spec = json.loads(run("show", "Chang2019Bold5000", "--json")[1])
    lines = [
        line.removeprefix("  access_steps").removeprefix("  notes").strip()
        for line in out.splitlines()
    ]
    assert code == 0 and len(spec["access_steps"]) > 1
    for number, step in enumerate(spec["access_steps"], 1):
        assert f"{number}. {step}" in lines
    assert all(f"– {note}" in lines for note in spec["notes"])


def test_outside_a_repository_the_checkout_is_used_by_default(
    run, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    code, out, _ = run("list", "metrics")
    assert code == 0 and "ridge" in out
    monkeypatch.setenv("NEUROLEDGER_ROOT", str(empty))
    code, _, err = run("list")
    assert code == 2 and "no NeuroLedger repository" in err
    assert run("--root", str(empty), "list")[0] == 2


@pytest.mark.parametrize(
    ("kind", "id", "change", "where", "what"),
    [
        (
            "benchmarks",
            "lab.V4-ridge",
            ("dataset: lab", "dataset: lap"),
            ":6:10",
            "no dataset 'lap' [spec.reference]\n    hint: did you mean 'lab'?",
        ),
        (
            "benchmarks",
            "lab.V4-ridge",
            ("metric: ridge", "metric: rigde"),
            "",
            "did you mean 'ridge'",
        ),
        (
            "benchmarks",
            "lab.V4-ridge",
            ("  region: V4", "  regoin: V4"),
            "",
            "did you mean 'region'",
        ),
        (
            "benchmarks",
            "lab.V4-ridge",
            ("ceiling: internal_consistency", "ceiling: rsa_ceiling"),
            "",
            "no formula normalises",
        ),
        ("models", "pixels4", ("  size: 4", "  size: 0"), ":7:9", "greater than 0"),
        (
            "models",
            "pixels4",
            ("  name: pixels", "  name: pixel"),
            "",
            "did you mean 'pixels'",
        ),
        ("datasets", "lab", ("check: unique", "check: uniqe"), "", "unique"),
        (
            "suites",
            "lab",
            ("- lab.V4-ridge", "- lab.V4-ridge\n- lab.V4-ridge"),
            "",
            "listed twice",
        ),
        (
            "suites",
            "lab",
            ("version: 1", "version: 1\ncite:\n- nobody1900"),
            "",
            "not in specs/references.bib",
        ),
        (
            "benchmarks",
            "lab.V4-ridge",
            ("# yaml-language-server: $schema=../schema/benchmark.json", "#"),
            ":1:1",
            "first line does not name the schema",
        ),
    ],
)
def test_check_reports_problem_place_and_near_miss(
    run, lab: Lab, kind: str, id: str, change: tuple[str, str], where: str, what: str
) -> None:
    path = lab.root / "specs" / kind / f"{id}.yaml"
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    code, out, _ = run("check")
    assert code == (0 if "first line" in what else 1), (
        "the comment for editors is a note"
    )
    assert f"specs/{kind}/{id}.yaml{where}" in out
    assert what in out


def test_check_reports_layers_that_a_model_does_not_record(run, lab: Lab) -> None:
    lab.spec(
        "models",
        "net",
        builder={"name": "small_cnn"},
        layers=["conv1", "conv2"],
        regions={"V4": "conv1", "IT": ["conv2", "conf1"]},
        readout="hidden",
    )
    code, out, _ = run("check")
    assert (
        code == 1
        and "regions: 'conf1' is not among `layers` [spec.layer]\n    hint: did you mean 'conv1'?"
        in out
    )
    assert (
        "readout: 'hidden' is not among `layers` [spec.layer]\n    hint: layers: conv1, conv2"
        in out
    )
    assert out.count("is not among") == 2


def test_check_reports_superseding_circles_and_stray_files(run, lab: Lab) -> None:
    lab.benchmark("one", superseded_by="two")
    lab.benchmark("two", superseded_by="one")
    (lab.root / "specs" / "stray.yaml").write_text("a: 1\n")
    code, out, _ = run("check")
    assert (
        code == 1
        and "superseded_by is circular: one → two → one" in out
        and "not in a folder for specs" in out
    )


def test_check_refuses_a_benchmark_whose_controls_failed(run, lab: Lab) -> None:
    lab.benchmark(controls={"positive": ["noise"], "negative": []})
    run("validate", "lab")
    assert run("run")[0] == 1
    code, out, _ = run("check")
    assert (
        code == 1
        and "positive control 'noise': " in out
        and "must be at least 0.8" in out
    )


def test_a_limit_prints_a_partial_card(run) -> None:
    run("validate", "lab")
    code, out, _ = run("score", "pixels4", "lab.V4-ridge", "--limit", "40")
    assert code == 0 and "partial" in out


def test_a_new_benchmark_file_is_scored_by_the_next_run(run, lab: Lab) -> None:
    pins = {
        name: {"dvc": True, **{k: pin[k] for k in ("size", "sha256")}}
        for name, pin in lab.pins().items()
    }
    lab.dataset(files=pins)
    run("validate", "lab")
    run("run")
    lab.benchmark(
        "lab.V4-new",
        metric="pls",
        controls={"negative": ["noise"]},
        select={"region": "V4"},
    )
    code, out, err = run("run")
    assert (
        code == 0
        and "lab.V4-new · pixels4" in err
        and "2 computed, 2 up to date" in out
    )


def test_suites_are_scored_with_those_they_include(run, lab: Lab) -> None:
    lab.spec("suites", "outer", includes=["lab"])
    run("validate", "--suite", "outer")
    code, out, _ = run("run", "--suite", "outer")
    assert code == 0 and "2 computed" in out
    lab.spec("suites", "lab", benchmarks=["lab.V4-ridge"], includes=["outer"])
    code, out, _ = run("check")
    assert code == 1 and "circle: lab → outer → lab" in out


def test_new_prints_the_full_path_outside_the_repository(
    run, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run("new", "metric", "here")
    assert code == 0 and "wrote specs/metrics/here.yaml" in out
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    root = ("--root", str(lab.root))
    code, out, _ = run(*root, "new", "metric", "there")
    path = lab.root.resolve() / "specs" / "metrics" / "there.yaml"
    assert code == 0 and f"wrote {path};" in out
    advice = out.split("`")[1].split()[1:]
    assert advice == [*root, "check", str(path)]
    assert run(*advice)[0] == 0


def test_compare_needs_only_records(run, lab: Lab) -> None:
    lab.spec("models", "coarse", builder={"name": "pixels", "size": 2})
    lab.spec("suites", "lab", benchmarks=["lab.V4-ridge"], models=["pixels4", "coarse"])
    run("validate", "lab")
    run("run")
    shutil.rmtree(lab.root / ".cache")
    code, out, err = run("compare", "pixels4", "coarse", "--json")
    assert code == 0 and "scored again" not in err and json.loads(out)
