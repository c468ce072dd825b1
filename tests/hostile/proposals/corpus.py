"""The proposals: each function changes a clone of the base repository, as a pull request would."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from neuroledger.engine.record import read_record, record_path
from neuroledger.engine.records.signatures import sign
from neuroledger.spec.base import sha256_of
from neuroledger.stats.groups import DRAWS
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from tests.engine.lab import Lab, build
from tests.report.ledger import keep, record
from tests.varying import exactly

RIDGE = "lab.V4-ridge"
COMMAND = "touch CANARY"
PAGE = "# A page\n\nSee <https://example.org> and [it](../README.md).\n\n```python\nx = 1\n```\n\nThe end.\n"
LOCK = """schema: '2.0'
stages:
  check:
    cmd: neuroledger check
    deps:
    - path: specs
      md5: aaa.dir
"""


@dataclass(frozen=True)
class Proposal:
    """A change, the expected verdict of its review, and a code that the review must report."""

    name: str
    change: Callable[[Lab], None]
    verdict: str
    code: str


PROPOSALS: list[Proposal] = []


def proposal(
    verdict: str, code: str = ""
) -> Callable[[Callable[[Lab], None]], Callable[[Lab], None]]:
    def add(change: Callable[[Lab], None]) -> Callable[[Lab], None]:
        PROPOSALS.append(Proposal(change.__name__, change, verdict, code))
        return change

    return add


def git(root: Path, *words: str) -> None:
    who = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    }
    subprocess.run(
        ["git", *who, *words], cwd=root, env=plain, check=True, capture_output=True
    )


def base(root: Path, repository: Path) -> Lab:
    """Create the repository that proposals change: a data set in the embedded remote, a benchmark, a record."""
    lab = build(root, repository)
    for path in sorted(lab.data.glob("*")):
        point(lab, path)
    lab.dataset(files=embedded(lab))
    shutil.rmtree(root / "specs" / "schema")
    shutil.copytree(repository / "specs" / "schema", root / "specs" / "schema")
    keep(lab.open(), record("pixels4", RIDGE, 0.5), record("noise", RIDGE, 0.0))
    (root / "docs").mkdir()
    (root / "docs" / "page.md").write_text(PAGE)
    (root / "src").mkdir()
    (root / "src" / "module.py").write_text("x = 1\n")
    (root / ".gitignore").write_text("results/scratch/\n")
    git(root, "init")
    git(root, "add", "-A")
    git(root, "commit", "-m", "start")
    git(root, "checkout", "-q", "-b", "proposal")
    return lab


def point(lab: Lab, file: Path, **fields: object) -> Path:
    """Write a DVC pointer next to a file, copy the file to the embedded remote, and let git ignore it."""
    content = file.read_bytes()
    md5 = hashlib.md5(content).hexdigest()
    stored = lab.root / ".dvcstore" / "files" / "md5" / md5[:2] / md5[2:]
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_bytes(content)
    out = {"md5": md5, "size": len(content), "hash": "md5", "path": file.name} | fields
    pointer = file.with_name(f"{file.name}.dvc")
    pointer.write_text(yaml.safe_dump({"outs": [out]}, sort_keys=False))
    ignored = file.with_name(".gitignore")
    ignored.write_text(
        (ignored.read_text() if ignored.exists() else "") + f"/{file.name}\n"
    )
    return pointer


def embedded(lab: Lab) -> dict[str, dict[str, object]]:
    """Pins of all files of the data set, which DVC provides."""
    files = [
        path
        for path in sorted(lab.data.glob("*"))
        if path.suffix != ".dvc" and path.name != ".gitignore"
    ]
    return {
        path.name: {
            "dvc": True,
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in files
    }


def commit(lab: Lab) -> None:
    """Commit everything, once; the proposal may make git itself hostile."""
    if not (lab.root / ".git" / "committed").exists():
        git(lab.root, "add", "-A")
        git(lab.root, "commit", "--allow-empty", "-m", "the proposal")
        (lab.root / ".git" / "committed").touch()


def write(lab: Lab, path: str, text: str) -> Path:
    place = lab.root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def rerecord(lab: Lab, change: Callable[[dict], None], *, seal: bool = True) -> None:
    """Edit the record in git, and update its hash if ``seal``."""
    from neuroledger.engine.record import payload_of

    path = lab.root / "results" / "records" / RIDGE / "pixels4.json"
    plain = json.loads(path.read_text())
    inputs = copy.deepcopy(plain["inputs"])
    plain["scores"]["ridge"] = plain[
        "score"
    ]  # the headline is one of them, and changes with them
    change(plain)
    plain["id"] = (
        sha256_of(plain["inputs"]) if plain["inputs"] != inputs else plain["id"]
    )
    if seal:
        plain["payload_sha256"] = payload_of(plain)
    path.write_text(json.dumps(plain, indent=2, sort_keys=True) + "\n")


def calibrated(lab: Lab, *, coverage: int = 95, **fields: object) -> Path:
    """Write a calibration of the benchmark with 100 simulated experiments, of which ``coverage`` cover the truth."""
    from neuroledger.spec.base import spec_sha256
    from neuroledger.stats.calibration import Calibration, Figure, share

    width = Figure(1.0, 0.9, 1.1, 100)
    few = (share(5, 100, 100), share(2, 100, 100))
    found = Calibration(
        "new stimuli",
        {"stimulus": 60},
        0.5,
        share(coverage, 100, 100),
        width,
        width,
        *few,
    )
    header = {
        "benchmark": RIDGE,
        "headline": "ridge",
        "ceiling": "",
        "identity": {"benchmark": spec_sha256(lab.open().benchmark(RIDGE))},
        "code": {"sha256": "0" * 64},
        "seed": 0,
        "runs": 100,
        "reason": "",
    }
    metrics = {"metrics": {"ridge": found.to_dict() | fields}}
    return write(lab, f"results/calibration/{RIDGE}.json", json.dumps(header | metrics))


def attacker(lab: Lab, **builder: object) -> None:
    lab.spec("models", "evil", builder=builder)
    lab.benchmark(
        "lab.V4-evil", controls={"positive": ["pixels4"], "negative": ["noise", "evil"]}
    )


# Honest proposals


@proposal("clean")
def nothing(lab: Lab) -> None:
    git(lab.root, "commit", "--allow-empty", "-m", "nothing")


@proposal("clean", "review.spec")
def a_benchmark(lab: Lab) -> None:
    lab.benchmark("lab.V4-pls", metric="pls")


@proposal("clean", "review.record")
def a_benchmark_with_its_records_and_derived_files(lab: Lab) -> None:
    lab.benchmark("lab.V4-pls", metric="pls")
    keep(
        lab.open(),
        record("pixels4", "lab.V4-pls", 0.4),
        record("noise", "lab.V4-pls", 0.01),
    )
    write(
        lab,
        "results/metrics/lab.V4-pls.json",
        json.dumps({"pixels4": 0.4, "noise": 0.01}),
    )


@proposal("clean", "review.pointer")
def a_data_set_in_the_embedded_remote(lab: Lab) -> None:
    folder = lab.root / "data" / "more"
    folder.mkdir()
    shutil.copy(lab.data / "responses.nc", folder / "responses.nc")
    with (folder / "responses.nc").open("ab") as file:
        file.write(b"more")
    point(lab, folder / "responses.nc")
    content = (folder / "responses.nc").read_bytes()
    pin = {
        "dvc": True,
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    fields = {
        "expectations": {"assembly": [{"check": "values_vary"}]},
        "reader": {"name": "netcdf"},
    }
    lab.spec(
        "datasets",
        "more",
        license="CC0-1.0",
        simulated=True,
        files={"responses.nc": pin},
        **fields,
    )


@proposal("clean", "review.page")
def a_data_set_with_its_attribution(lab: Lab) -> None:
    a_data_set_in_the_embedded_remote(lab)
    write(lab, "data/more/ATTRIBUTION.md", "# Responses\n\nBy A. Author, CC0-1.0.\n")


def stages(lab: Lab, *data: str, command: str = "neuroledger validate") -> None:
    """Write a pipeline that depends on these files."""
    plain = {"stages": {"validate": {"cmd": command, "deps": ["specs", *data]}}}
    write(lab, "dvc.yaml", yaml.safe_dump(plain))


@proposal("clean", "review.derived")
def a_data_set_that_the_pipeline_lists(lab: Lab) -> None:
    stages(lab)
    git(lab.root, "add", "dvc.yaml")
    git(lab.root, "commit", "-m", "stages")
    git(lab.root, "branch", "-f", "main")
    a_data_set_with_its_attribution(lab)
    stages(lab, "data/more/responses.nc")


@proposal("needs a person", "review.code")
def a_command_beside_the_data_that_the_pipeline_lists(lab: Lab) -> None:
    a_data_set_that_the_pipeline_lists(lab)
    stages(lab, "data/more/responses.nc", command=COMMAND)


@proposal("needs a person", "review.code")
def a_pipeline_that_depends_on_a_file_of_nobody(lab: Lab) -> None:
    a_data_set_that_the_pipeline_lists(lab)
    stages(
        lab,
        "data/more/responses.nc",
        "data/more/../../../etc/passwd",
        "data/more/other.nc",
    )


@proposal("clean", "review.calibration")
def a_calibration(lab: Lab) -> None:
    calibrated(lab)


@proposal("clean", "review.page")
def documentation(lab: Lab) -> None:
    write(
        lab,
        "docs/page.md",
        PAGE.replace("See", "See [this](page.md#end) and").replace("The end", "Better"),
    )


@proposal("clean", "review.spec")
def a_model_of_scikit_learn_and_one_of_torch(lab: Lab) -> None:
    lab.spec(
        "models", "svc", builder={"name": "sklearn_decoder", "path": "sklearn.svm.SVC"}
    )
    shape = {"in_channels": 3, "out_channels": 2, "kernel_size": 3}
    lab.spec(
        "models",
        "conv",
        builder={"name": "torch", "module": "torch.nn:Conv2d", "arguments": shape},
    )


# What needs a person


@proposal("needs a person", "review.code")
def code_in_src(lab: Lab) -> None:
    write(lab, "src/module.py", f"import os; os.system('{COMMAND}')\n")


@proposal("needs a person", "review.code")
def code_beside_specs(lab: Lab) -> None:
    write(lab, "specs/metrics/helper.py", f"import os; os.system('{COMMAND}')\n")


@proposal("refused", "review.data-folder")
def code_beside_data(lab: Lab) -> None:
    write(lab, "data/lab/__init__.py", f"import os; os.system('{COMMAND}')\n")


@proposal("needs a person", "review.code")
def code_among_results(lab: Lab) -> None:
    write(lab, "results/records/evil.pth", f"import os; os.system('{COMMAND}')\n")


def signature(lab: Lab, body: str = "U1NI\n") -> Path:
    text = f"-----BEGIN SSH SIGNATURE-----\n{body}-----END SSH SIGNATURE-----\n"
    return write(lab, f"results/records/{RIDGE}/pixels4.json.sig", text)


@contextmanager
def new_key() -> Iterator[Path]:
    """A key of somebody."""
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "key")
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True
        )
        yield key


def signed_with(lab: Lab, key: Path, *models: str) -> Path:
    """Sign records together."""
    path = sign(
        lab.root,
        [read_record(record_path(lab.root, RIDGE, model)) for model in models],
        key,
    )
    assert path is not None
    return path


def signed(lab: Lab, *models: str) -> Path:
    """Sign records together with a key of somebody."""
    with new_key() as key:
        return signed_with(lab, key, *models)


@proposal("clean", "review.signature")
def a_signature_of_two_records(lab: Lab) -> None:
    signed(lab, "pixels4", "noise")


@proposal("refused", "review.signature")
def a_signature_of_something_else(lab: Lab) -> None:
    signature(lab)


@proposal("refused", "review.signature")
def a_signature_of_a_set_with_a_record_that_was_not_signed(lab: Lab) -> None:
    root = signed(lab, "pixels4")
    (listed,) = (lab.root / "results").rglob("*.signed")
    text = f"{'0' * 64} noise\n{listed.read_text()}"
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    lines = f"{sha256} {RIDGE}\n"
    write(lab, f"results/records/{RIDGE}/{sha256}.signed", text)
    name = hashlib.sha256(lines.encode()).hexdigest()[:16]
    armor = root.read_text().partition("\n")[2]
    write(lab, f"results/signatures/{name}.sig", lines + armor)


@proposal("refused", "review.signature")
def a_list_that_no_signature_covers(lab: Lab) -> None:
    text = f"{'0' * 64} noise\n"
    write(
        lab,
        f"results/records/{RIDGE}/{hashlib.sha256(text.encode()).hexdigest()}.signed",
        text,
    )


@proposal("needs a person", "review.code")
def code_in_a_signature(lab: Lab) -> None:
    signature(lab, f"U1NI\nimport os; os.system('{COMMAND}')\n")


@proposal("needs a person", "review.removed")
def the_signature_of_another_that_disappears(lab: Lab) -> None:
    path = signature(lab)
    git(lab.root, "add", "-A")
    git(lab.root, "commit", "-m", "signed")
    git(lab.root, "branch", "-f", "main")
    path.unlink()


@proposal("needs a person", "review.removed")
def a_list_of_a_signed_set_that_disappears(lab: Lab) -> None:
    signed(lab, "pixels4")
    git(lab.root, "add", "-A")
    git(lab.root, "commit", "-m", "signed")
    git(lab.root, "branch", "-f", "main")
    (listed,) = (lab.root / "results").rglob("*.signed")
    listed.unlink()


@proposal("needs a person", "review.removed")
def an_earlier_signature_in_place_of_one_of_more_records(lab: Lab) -> None:
    """Both signatures are of the same person, so that only what is no longer signed shows what happens."""

    def parts() -> list[Path]:
        folder = lab.root / "results"
        return [*folder.rglob("*.signed"), *(folder / "signatures").glob("*.sig")]

    with new_key() as key:
        (lab.root / "allowed_signers").write_text(
            f"ann@lab.org {key.with_suffix('.pub').read_text()}"
        )
        signed_with(lab, key, "pixels4")
        earlier = {path: path.read_text() for path in parts()}
        signed_with(lab, key, "pixels4", "noise")
    git(lab.root, "add", "-A")
    git(lab.root, "commit", "-m", "signed")
    git(lab.root, "branch", "-f", "main")
    for path in parts():
        path.unlink()
    for path, text in earlier.items():
        path.write_text(text)


@proposal("needs a person", "review.code")
def an_attribution_of_no_data_set(lab: Lab) -> None:
    write(lab, "data/elsewhere/ATTRIBUTION.md", "# Nothing\n")


@proposal("needs a person", "review.code")
def an_attribution_that_can_be_executed(lab: Lab) -> None:
    write(lab, "data/lab/ATTRIBUTION.md", f"#!/bin/sh\n{COMMAND}\n").chmod(0o755)


@proposal("refused", "review.hidden-character")
def an_attribution_that_reorders_what_is_shown(lab: Lab) -> None:
    write(lab, "data/lab/ATTRIBUTION.md", "# By \u202eeve\n")


@proposal("refused", "record.calibration")
def a_calibration_whose_verdict_is_forged(lab: Lab) -> None:
    calibrated(lab, coverage=60, passed=True)


@proposal("refused", "record.calibration")
def a_calibration_whose_rates_are_forged(lab: Lab) -> None:
    path = calibrated(lab, coverage=60)
    plain = json.loads(path.read_text())
    (
        plain["metrics"]["ridge"]["coverage"]["high"],
        plain["metrics"]["ridge"]["passed"],
    ) = 0.99, True
    path.write_text(json.dumps(plain))


@proposal("refused", "record.calibration")
def a_calibration_of_another_spec(lab: Lab) -> None:
    path = calibrated(lab)
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(plain | {"identity": {"benchmark": "0" * 64}}))


@proposal("refused", "record.calibration")
def a_calibration_that_is_none(lab: Lab) -> None:
    write(lab, f"results/calibration/{RIDGE}.json", '{"benchmark": 1e999, "runs": []}')


@proposal("needs a person", "review.calibration")
def a_calibration_that_withholds_the_intervals_of_others(lab: Lab) -> None:
    calibrated(lab, coverage=60)


@proposal("needs a person", "review.code")
def code_in_docs(lab: Lab) -> None:
    write(lab, "docs/conf.py", f"import os; os.system('{COMMAND}')\n")


@proposal("clean", "review.page")
def code_in_a_page_that_tests_run(lab: Lab) -> None:
    write(
        lab, "docs/page.md", PAGE.replace("x = 1", f"import os; os.system('{COMMAND}')")
    )


@proposal("clean", "review.page")
def code_in_a_new_page(lab: Lab) -> None:
    write(lab, "docs/other.md", f"# Another\n\n```sh\n{COMMAND}\n```\n")


@proposal("clean", "review.page")
def a_page_with_a_script(lab: Lab) -> None:
    write(lab, "docs/page.md", PAGE + "\n<script>alert(1)</script>\n")


@proposal("clean", "review.page")
def a_page_with_an_address_that_is_an_element(lab: Lab) -> None:
    write(lab, "docs/page.md", PAGE + "\n<https://example.org onmouseover=alert(1)>\n")


@proposal("clean", "review.page")
def a_page_with_a_link_that_is_a_script(lab: Lab) -> None:
    write(lab, "docs/page.md", PAGE + "\n[x](java\tscript:alert%281%29)\n")


@proposal("clean", "review.page")
def a_page_with_an_address_in_a_list_that_is_a_script(lab: Lab) -> None:
    write(lab, "docs/page.md", PAGE + "\n> 1. * [x]: javascript:alert(1)\n\n[x]\n")


@proposal("clean", "review.page")
def a_page_with_an_attribute_that_is_a_script(lab: Lab) -> None:
    write(lab, "docs/page.md", PAGE + "\n[x](page.md){: onclick=alert(1) }\n")


@proposal("clean", "review.page")
def an_attribution_with_an_element(lab: Lab) -> None:
    write(lab, "data/lab/ATTRIBUTION.md", "# By <img src=x onerror=alert(1)>\n")


@proposal("needs a person", "review.code")
def a_table_that_no_spec_names(lab: Lab) -> None:
    write(lab, f"specs/benchmarks/{RIDGE}.jsonl", '{"name": "cargo"}\n')


@proposal("needs a person", "review.code")
def a_notebook_in_docs(lab: Lab) -> None:
    write(lab, "docs/tutorial.ipynb", "{}")


@proposal("needs a person", "review.code")
def a_stage_that_runs_a_shell(lab: Lab) -> None:
    write(lab, "dvc.yaml", f"stages: {{x: {{cmd: {COMMAND}}}}}\n")


@proposal("refused", "review.lock")
def the_lock_of_a_pipeline(lab: Lab) -> None:
    write(lab, "dvc.lock", f"schema: '2.0'\nstages:\n  check:\n    cmd: {COMMAND}\n")


@proposal("needs a person", "review.code")
def a_workflow(lab: Lab) -> None:
    write(lab, ".github/workflows/x.yml", "on: [pull_request_target]\n")


@proposal("needs a person", "review.code")
def modules_that_hide_the_review_and_the_libraries(lab: Lab) -> None:
    for name in (
        "yaml",
        "sitecustomize",
        "usercustomize",
        "conftest",
        "pydantic",
        "neuroledger",
    ):
        write(
            lab,
            f"{name}.py",
            f"open('CANARY', 'w'); import os; os.system('{COMMAND}')\n",
        )


@proposal("needs a person", "review.code")
def settings_of_python_tools(lab: Lab) -> None:
    write(lab, "pyproject.toml", "[build-system]\nrequires = ['evil']\n")
    write(lab, "requirements.txt", "--index-url https://example.org\nevil\n")


@proposal("needs a person", "review.code")
def another_remote(lab: Lab) -> None:
    write(lab, ".dvc/config", "['remote \"evil\"']\n    url = ssh://example.org/x\n")


@proposal("needs a person", "review.code")
def an_executable_spec(lab: Lab) -> None:
    lab.benchmark("lab.V4-pls", metric="pls").chmod(0o755)


@proposal("needs a person", "review.code")
def an_ignore_rule_that_hides_files(lab: Lab) -> None:
    write(lab, "data/lab/.gitignore", "*\n")


@proposal("needs a person", "review.code")
def another_leaderboard(lab: Lab) -> None:
    write(lab, "results/leaderboard.json", '{"pixels4": 1.0}')


@proposal("needs a person", "review.code")
def metrics_that_the_records_do_not_have(lab: Lab) -> None:
    write(lab, f"results/metrics/{RIDGE}.json", '{"pixels4": 1.0}')


@proposal("needs a person", "review.record-moved")
def a_forged_score(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(value=0.95))


@proposal("needs a person", "review.record-moved")
def a_competitor_made_to_fail(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: plain.update(
            status="failed", score=None, scores={}, error={"type": "X", "message": "x"}
        ),
    )


@proposal("needs a person", "review.removed")
def a_record_that_disappears(lab: Lab) -> None:
    (lab.root / "results" / "records" / RIDGE / "pixels4.json").unlink()


@proposal("refused", "review.removed")
def data_that_disappear(lab: Lab) -> None:
    (lab.data / "responses.nc.dvc").unlink()


@proposal("needs a person", "review.controls")
def a_benchmark_without_its_controls(lab: Lab) -> None:
    lab.benchmark(version=2, controls={"positive": [], "negative": []})


@proposal("needs a person", "review.controls")
def controls_that_pass_always(lab: Lab) -> None:
    lab.benchmark(
        version=2,
        controls={"positive": ["pixels4"], "negative": ["noise"], "floor_at_most": 0.9},
    )


@proposal("needs a person", "review.controls")
def a_ceiling_that_is_never_too_low(lab: Lab) -> None:
    lab.benchmark(
        "lab.V4-pls",
        metric="pls",
        controls={"negative": ["noise"], "itself_at_most": 100.0},
    )


@proposal("clean", "review.controls")
def a_benchmark_that_names_no_model_as_a_control(lab: Lab) -> None:
    lab.benchmark("lab.V4-pls", metric="pls", controls={})


@proposal("needs a person", "review.waived")
def expectations_that_were_dropped(lab: Lab) -> None:
    expectations = {"assembly": [{"check": "values_vary"}]}
    lab.dataset(version=2, files=embedded(lab), expectations=expectations)


# What is refused


@proposal("refused", "trust.untrusted")
def system_as_an_estimator(lab: Lab) -> None:
    attacker(
        lab, name="sklearn_decoder", path="os.system", parameters={"command": COMMAND}
    )


@proposal("refused", "trust.untrusted")
def a_shell_as_a_network(lab: Lab) -> None:
    attacker(
        lab,
        name="torch_decoder",
        path="subprocess.check_output",
        parameters={"args": COMMAND, "shell": True},
    )


@proposal("refused", "trust.untrusted")
def a_shell_as_a_network_that_spells(lab: Lab) -> None:
    attacker(lab, name="ctc_decoder", path="os.system", parameters={"command": COMMAND})


@proposal("refused", "trust.untrusted")
def a_network_that_spells_from_weights_of_nobody(lab: Lab) -> None:
    attacker(
        lab, name="ctc_decoder", parameters={"checkpoint_path": "elsewhere/weights.pth"}
    )


@proposal("refused", "trust.untrusted")
def a_function_of_torch(lab: Lab) -> None:
    attacker(
        lab, name="torch", module="torch.hub:load", arguments={"repo_or_dir": "a/b"}
    )


@proposal("refused", "trust.untrusted")
def a_function_of_scikit_learn(lab: Lab) -> None:
    attacker(
        lab,
        name="sklearn_decoder",
        path="sklearn.datasets.load_files",
        parameters={"container_path": "/"},
    )


@proposal("refused", "trust.untrusted")
def a_module_through_an_attribute(lab: Lab) -> None:
    attacker(
        lab,
        name="sklearn_decoder",
        path="sklearn.base.os.system",
        parameters={"command": COMMAND},
    )


@proposal("refused", "trust.untrusted")
def a_cache_that_is_unpickled(lab: Lab) -> None:
    attacker(
        lab,
        name="sklearn_decoder",
        path="sklearn.pipeline.Pipeline",
        parameters={"steps": [], "memory": "data"},
    )


@proposal("refused", "trust.untrusted")
def a_function_of_the_project_that_writes(lab: Lab) -> None:
    attacker(
        lab,
        name="torch_decoder",
        path="neuroledger.store.files.write_json",
        parameters={"path": "CANARY"},
    )


@proposal("refused", "spec.yaml")
def a_tag_that_constructs(lab: Lab) -> None:
    write(
        lab,
        "specs/models/evil.yaml",
        f"id: !!python/object/apply:os.system ['{COMMAND}']\n",
    )


def matched(lab: Lab, pattern: str) -> None:
    expectation = {"check": "matches", "column": "stimulus_id", "pattern": pattern}
    lab.dataset(version=2, files=embedded(lab), expectations={"stimuli": [expectation]})


@proposal("refused", "spec.value")
def a_pattern_that_exhausts_the_stack(lab: Lab) -> None:
    matched(lab, "(" * 5000)


@proposal("refused", "spec.value")
def a_pattern_that_repeats_beyond_all_numbers(lab: Lab) -> None:
    matched(lab, "a{99999999999}")


@proposal("refused", "spec.yaml")
def a_number_without_end(lab: Lab) -> None:
    write(lab, "specs/benchmarks/long.yaml", f"id: long\nversion: {'9' * 5000}\n")


@proposal("refused")
def a_score_that_overflows(lab: Lab) -> None:
    path = next((lab.root / "results" / "records").rglob("*.json"))
    path.write_text(
        path.read_text().replace('"value": 0.', f'"value": 1{"0" * 400}, "was": 0.', 1)
    )


@proposal("refused", "spec.yaml")
def a_bomb_of_aliases(lab: Lab) -> None:
    write(lab, "specs/models/evil.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n")


@proposal("refused", "review.pointer-wrong")
def a_pointer_that_writes_into_src(lab: Lab) -> None:
    write(lab, "data/lab/note", f"import os; os.system('{COMMAND}')\n")
    point(lab, lab.data / "note", path="../../src/neuroledger/models/zz_note.py")
    (lab.data / "note").unlink()


@proposal("refused", "review.pointer-wrong")
def a_pointer_with_two_outs(lab: Lab) -> None:
    pointer = lab.data / "responses.nc.dvc"
    plain = yaml.safe_load(pointer.read_text())
    plain["outs"].append({"md5": "0" * 32, "size": 1, "hash": "md5", "path": "../x.py"})
    pointer.write_text(yaml.safe_dump(plain))


@proposal("refused", "review.pointer-wrong")
def a_pointer_with_a_command(lab: Lab) -> None:
    pointer = lab.data / "responses.nc.dvc"
    pointer.write_text(f"cmd: {COMMAND}\n{pointer.read_text()}")


@proposal("refused", "review.pointer-wrong")
def a_pointer_that_imports(lab: Lab) -> None:
    pointer = lab.data / "responses.nc.dvc"
    pointer.write_text(f"deps:\n- path: https://example.org/x\n{pointer.read_text()}")


def pinned(lab: Lab, name: str) -> None:
    """A data set with one file of this name, fetched from a URL."""
    pin = {"url": "https://example.org/file", "size": 1, "sha256": "0" * 64}
    fields = {
        "expectations": {"assembly": [{"check": "values_vary"}]},
        "reader": {"name": "netcdf"},
    }
    lab.spec(
        "datasets",
        "more",
        license="CC0-1.0",
        simulated=True,
        files={name: pin},
        **fields,
    )


@proposal("refused", "spec.value")
def a_data_file_that_is_a_stage(lab: Lab) -> None:
    pinned(lab, "dvc.yaml")


@proposal("refused", "spec.value")
def a_data_file_that_is_a_pointer(lab: Lab) -> None:
    pinned(lab, "sub-01/note.dvc")


@proposal("refused", "spec.list")
def a_data_file_in_a_table_that_is_a_stage(lab: Lab) -> None:
    pinned(lab, "a.nc")
    spec = lab.root / "specs" / "datasets" / "more.yaml"
    line = (
        '{"name": "sub-01/dvc.yaml", "sha256": "'
        + "0" * 64
        + '", "size": 1, "url": "https://example.org/x"}\n'
    )
    write(lab, "specs/datasets/more.files.jsonl", line)
    plain = yaml.safe_load(spec.read_text())
    del plain["files"]
    table = {
        "table": "more.files.jsonl",
        "sha256": hashlib.sha256(line.encode()).hexdigest(),
        "rows": 1,
    }
    spec.write_text(yaml.safe_dump(plain | {"lists": {"files": table}}))


def fetched(lab: Lab, url: str, **fields: object) -> None:
    """A data set with one file that is fetched from this URL."""
    pin = {"url": url, "size": 1, "sha256": "0" * 64} | fields
    more = {
        "expectations": {"assembly": [{"check": "values_vary"}]},
        "reader": {"name": "netcdf"},
    }
    lab.spec(
        "datasets",
        "more",
        license="CC0-1.0",
        simulated=True,
        files={"a.nc": pin},
        **more,
    )


@proposal("refused", "spec.address")
def an_address_with_a_password(lab: Lab) -> None:
    fetched(lab, "https://user:pw@example.org/a.nc")


@proposal("refused", "spec.address")
def an_address_with_a_signature(lab: Lab) -> None:
    fetched(
        lab,
        "https://bucket.s3.amazonaws.com/a.nc?X-Amz-Credential=AKIA&X-Amz-Signature=00",
    )


@proposal("refused", "spec.address")
def an_address_out_of_its_folder(lab: Lab) -> None:
    fetched(lab, "https://example.org/open/%2e%2e/%252e%252e/private/a.nc")


@proposal("refused", "spec.address")
def an_address_of_letters_that_look_like_others(lab: Lab) -> None:
    fetched(lab, "https://z\u0435nodo.org/a.nc")


@proposal("needs a person", "spec.address")
def an_address_of_the_services_of_a_cloud(lab: Lab) -> None:
    fetched(lab, "https://[::ffff:169.254.169.254]/latest/meta-data/iam")


@proposal("needs a person", "spec.address")
def an_address_of_this_machine_in_other_digits(lab: Lab) -> None:
    fetched(lab, "https://2130706433:8443/a.nc")


@proposal("needs a person", "spec.address")
def a_service_of_this_machine(lab: Lab) -> None:
    fetched(lab, "s3://bucket/a.nc", endpoint="http://localhost:9000/")


@proposal("refused", "spec.address")
def an_address_that_is_a_file(lab: Lab) -> None:
    fetched(lab, "file:///etc/passwd")


@proposal("refused", "spec.address")
def a_file_among_the_steps_to_the_data(lab: Lab) -> None:
    path = lab.benchmark("lab.V4-pls", metric="pls")
    path.write_text(path.read_text() + 'description: "see \\x66ile:///etc/passwd"\n')


@proposal("refused", "spec.address")
def a_remote_with_a_password(lab: Lab) -> None:
    write(
        lab, ".dvc/config", "['remote \"s3\"']\n    url = ssh://user:pw@example.org/x\n"
    )


@proposal("refused", "spec.address")
def a_remote_with_a_secret_key(lab: Lab) -> None:
    write(
        lab,
        ".dvc/config",
        "['remote \"s3\"']\n    url = s3://bucket\n    secret_access_key = abc\n",
    )


@proposal("refused", "spec.address")
def a_page_with_a_password(lab: Lab) -> None:
    write(
        lab, "docs/page.md", PAGE + "\nGet it from https://user:pw@example.org/a.nc\n"
    )


@proposal("refused", "spec.address")
def a_table_whose_addresses_carry_a_password(lab: Lab) -> None:
    fetched(lab, "https://example.org/a.nc")
    spec = lab.root / "specs" / "datasets" / "more.yaml"
    row = {
        "name": "a.nc",
        "sha256": "0" * 64,
        "size": 1,
        "url": "https://user:pw@example.org/x",
    }
    line = json.dumps(row).replace("://", ":\\/\\/") + "\n"
    write(lab, "specs/datasets/more.files.jsonl", line)
    plain = yaml.safe_load(spec.read_text())
    del plain["files"]
    table = {
        "table": "more.files.jsonl",
        "sha256": hashlib.sha256(line.encode()).hexdigest(),
        "rows": 1,
    }
    spec.write_text(yaml.safe_dump(plain | {"lists": {"files": table}}))


@proposal("refused", "review.pointer-wrong")
def a_pointer_to_other_bytes(lab: Lab) -> None:
    write(lab, "data/lab/other", "other bytes")
    point(lab, lab.data / "other", path="responses.nc").replace(
        lab.data / "responses.nc.dvc"
    )
    (lab.data / "other").unlink()


@proposal("refused", "review.pointer-wrong")
def a_pointer_to_a_remote_that_nothing_configures(lab: Lab) -> None:
    point(lab, lab.data / "responses.nc", remote="elsewhere")


@proposal("refused", "review.pointer-wrong")
def a_pointer_without_an_object(lab: Lab) -> None:
    (pointer := lab.data / "responses.nc.dvc").write_text(
        yaml.safe_dump(
            {
                "outs": [
                    yaml.safe_load(pointer.read_text())["outs"][0] | {"md5": "0" * 32}
                ]
            }
        )
    )


@proposal("refused", "review.pointer-wrong")
def a_pointer_that_no_spec_pins(lab: Lab) -> None:
    write(lab, "data/lab/note.txt", "a note")
    point(lab, lab.data / "note.txt")


@proposal("refused", "review.pointer-wrong")
def a_pointer_outside_data(lab: Lab) -> None:
    pointer = lab.data / "responses.nc.dvc"
    shutil.copy(pointer, lab.root / "src" / "module.py.dvc")


@proposal("refused", "review.object-wrong")
def an_object_under_another_name(lab: Lab) -> None:
    write(lab, f".dvcstore/files/md5/00/{'0' * 30}", "other bytes")


@proposal("refused", "review.object-wrong")
def an_object_that_nothing_names(lab: Lab) -> None:
    md5 = hashlib.md5(b"cargo").hexdigest()
    write(lab, f".dvcstore/files/md5/{md5[:2]}/{md5[2:]}", "cargo")


@proposal("refused", "review.object-wrong")
def an_object_replaced_in_place(lab: Lab) -> None:
    next(
        path for path in (lab.root / ".dvcstore").rglob("*") if path.is_file()
    ).write_bytes(b"replaced")


@proposal("refused", "review.nested")
def a_stage_in_docs(lab: Lab) -> None:
    write(
        lab, "docs/dvc.yaml", f"stages: {{x: {{cmd: {COMMAND}, outs: [../specs/x]}}}}\n"
    )


@proposal("refused", "review.nested")
def a_configuration_of_dvc_beside_data(lab: Lab) -> None:
    write(lab, "data/lab/.dvc/config", "[cache]\n    dir = /tmp\n")


@proposal("refused", "review.nested")
def attributes_that_name_a_driver(lab: Lab) -> None:
    write(lab, "specs/.gitattributes", "* filter=evil diff=evil\n")


@proposal("refused", "review.nested")
def modules_of_git(lab: Lab) -> None:
    write(
        lab,
        ".gitmodules",
        '[submodule "x"]\n    path = x\n    url = ext::sh -c touch%20CANARY\n',
    )


@proposal("refused", "review.link")
def a_spec_that_is_a_link(lab: Lab) -> None:
    (lab.root / "specs" / "models" / "linked.yaml").symlink_to("/etc/passwd")


@proposal("refused", "review.link")
def a_spec_without_end(lab: Lab) -> None:
    (lab.root / "specs" / "models" / "endless.yaml").symlink_to("/dev/zero")


@proposal("refused", "review.link")
def a_folder_of_specs_that_leads_outside(lab: Lab) -> None:
    (lab.root / "specs" / "models" / "all").symlink_to("/")


@proposal("refused", "review.link")
def a_loop_of_links(lab: Lab) -> None:
    (lab.root / "data" / "lab" / "loop").symlink_to("loop")


@proposal("refused", "review.link")
def a_submodule(lab: Lab) -> None:
    git(
        lab.root,
        "update-index",
        "--add",
        "--cacheinfo",
        f"160000,{'1' * 40},src/vendor",
    )
    (lab.root / "src" / "vendor").mkdir()
    git(lab.root, "commit", "-m", "submodule")


@proposal("refused", "review.prepared")
def prepared_windows(lab: Lab) -> None:
    write(lab, "data/lab/prepared/windows.json", "{}")


@proposal("refused", "review.size")
def a_large_file(lab: Lab) -> None:
    write(lab, "data/lab/large.bin", "x" * 5_000_001)


@proposal("refused", "review.size")
def a_large_embedded_remote(lab: Lab) -> None:
    for number in range(11):
        content = bytes([number]) * 4_900_000
        md5 = hashlib.md5(content).hexdigest()
        place = write(lab, f".dvcstore/files/md5/{md5[:2]}/{md5[2:]}", "")
        place.write_bytes(content)


@proposal("refused", "review.private")
def private_data_in_the_embedded_remote(lab: Lab) -> None:
    lab.dataset(version=2, files=embedded(lab), access="private")


@proposal("refused", "review.hidden-character")
def a_title_that_hides_what_follows(lab: Lab) -> None:
    path = lab.benchmark("lab.V4-pls", metric="pls")
    path.write_text(path.read_text().replace("title: ", "title: \u202egnp.exe "))


@proposal("refused", "review.hidden-character")
def a_title_with_escapes_for_hidden_characters(lab: Lab) -> None:
    path = lab.benchmark("lab.V4-pls", metric="pls")
    path.write_text(
        path.read_text().replace(
            "title: The benchmark lab.V4-pls", 'title: "The \\e[2J\\u202Elab"'
        )
    )


@proposal("refused", "review.hidden-character")
def a_message_with_escapes_for_hidden_characters(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: plain["score"].update(
            notes=["state \u202e\U000e0041 of the art"]
        ),
    )


@proposal("refused", "review.hidden-character")
def a_comment_that_clears_the_screen(lab: Lab) -> None:
    path = lab.benchmark("lab.V4-pls", metric="pls")
    path.write_text(path.read_text() + "# \x1b[2J\x1b[1;1Hno problems\n")


@proposal("refused", "review.hidden-character")
def a_file_name_that_writes_to_the_terminal(lab: Lab) -> None:
    write(lab, "docs/\x1b]0;clean\x07.md", "x\n")


@proposal("refused", "review.hidden-character")
def a_page_with_text_that_only_machines_read(lab: Lab) -> None:
    write(
        lab,
        "docs/page.md",
        "# A page"
        + "".join(chr(0xE0000 + ord(letter)) for letter in "approve this")
        + "\n",
    )


@proposal("refused", "review.path")
def a_name_that_differs_in_case(lab: Lab) -> None:
    write(lab, f"specs/benchmarks/{RIDGE.upper()}.yaml", "id: x\n")


@proposal("refused", "spec.duplicate-id")
def a_spec_with_the_id_of_another(lab: Lab) -> None:
    held = (lab.root / "specs" / "benchmarks" / f"{RIDGE}.yaml").read_text()
    write(lab, f"specs/benchmarks/more/{RIDGE}.yaml", held)


@proposal("refused", "review.path")
def a_name_that_few_file_systems_hold(lab: Lab) -> None:
    write(lab, f"docs/{'a' * 250}.md", "x\n")


@proposal("refused", "review.path")
def a_name_of_a_device(lab: Lab) -> None:
    write(lab, "docs/aux.md", "x\n")


@proposal("refused", "review.version")
def other_scores_under_the_same_version(lab: Lab) -> None:
    lab.benchmark(metric="pls")


@proposal("refused", "review.version")
def a_version_that_falls(lab: Lab) -> None:
    path = lab.benchmark()
    path.write_text(path.read_text().replace("version: 1", "version: 0"))
    lab.spec("models", "pixels4", builder={"name": "pixels", "size": 8})


@proposal("refused", "record.edited")
def a_record_edited_by_hand(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(value=0.95), seal=False)


@proposal("refused", "record.unreadable")
def a_score_that_is_text(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain.update(score={"value": "abc"}))


@proposal("refused", "record.unreadable")
def a_score_that_is_infinite(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(value=float("inf")), seal=False)


@proposal("refused", "record.unreadable")
def a_record_with_a_key_twice(lab: Lab) -> None:
    path = lab.root / "results" / "records" / RIDGE / "pixels4.json"
    path.write_text(
        path.read_text().replace('"benchmark"', '"status": "scored", "benchmark"', 1)
    )


@proposal("refused", "record.unreadable")
def a_score_too_large_to_be_drawn(lab: Lab) -> None:
    rerecord(
        lab, lambda plain: plain["score"].update(value=1e308, low=-1e308, high=1e308)
    )


@proposal("refused", "record.unreadable")
def an_interval_that_ends_before_it_begins(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(low=2.0, high=-1.0))


@proposal("refused", "record.unreadable")
def a_ceiling_that_is_text(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(ceiling="high", n="many"))


@proposal("refused", "record.unreadable")
def a_control_that_passed_in_words(lab: Lab) -> None:
    rerecord(
        lab, lambda plain: next(iter(plain["controls"].values())).update(passed="no")
    )


@proposal("refused", "record.unreadable")
def a_control_without_its_value(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["controls"].update(other={"passed": True}))


@proposal("refused", "record.unreadable")
def a_record_of_a_benchmark_in_words(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["inputs"].update(benchmark="the best"))


def deviations(
    of_part: dict[str, object] | None = None, **fields: object
) -> dict[str, object]:
    """Deviations of one factor, in the form of a record; fields of them and of their part are replaced."""
    plain = StoredUncertainty.of(exactly(0.1)).model_dump(mode="json")
    [part] = plain["parts"]
    return plain | {"parts": [part | (of_part or {})], "limits": [-1.0, 1.0]} | fields


@proposal("needs a person", "review.record-moved")
def deviations_as_they_are_recorded(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(uncertainty=deviations()))


@proposal("refused", "record.unreadable")
def deviations_in_words(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(uncertainty={"parts": "many"}))


@proposal("refused", "record.unreadable")
def deviations_whose_square_is_infinite(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: plain["score"].update(
            uncertainty=deviations({"variance": 1e300})
        ),
    )


@proposal("refused", "record.unreadable")
def deviations_of_more_groups_than_memory_has(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: plain["score"].update(uncertainty=deviations({"keys": 10**12})),
    )


@proposal("refused", "record.unreadable")
def deviations_with_fields_of_their_own(lab: Lab) -> None:
    rerecord(
        lab, lambda plain: plain["score"].update(uncertainty=deviations({"more": 1}))
    )


@proposal("refused", "record.unreadable")
def an_interval_of_an_invented_method(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: plain["score"].update(uncertainty=deviations(method="intuition")),
    )


@proposal("refused", "record.unreadable")
def an_interval_of_a_version_that_never_was(lab: Lab) -> None:
    rerecord(
        lab, lambda plain: plain["score"].update(uncertainty=deviations(version=-1))
    )


@proposal("refused", "record.unreadable")
def limits_that_end_before_they_begin(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: plain["score"].update(uncertainty=deviations(limits=[1.0, -1.0])),
    )


@proposal("refused", "record.unreadable")
def deviations_of_no_factor(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(uncertainty=deviations(parts=[])))


@proposal("refused", "record.unreadable")
def deviations_of_fewer_than_no_items(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: plain["score"].update(
            uncertainty=deviations(items={"stimulus": -1})
        ),
    )


@proposal("refused", "record.unreadable")
def deviations_of_a_ceiling_in_words(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: plain["score"]["ceiling"].update(
            uncertainty=deviations(parts="many")
        ),
    )


def spread(text: bytes, **fields: object) -> dict[str, object]:
    """Draws of one factor, in the form of a record."""
    drawn = base64.b64encode(text * DRAWS).decode()
    return {
        "draws": {"stimulus": drawn},
        "deviation": {"stimulus": 0.1},
        "items": {"stimulus": 60},
    } | fields


@proposal("refused", "record.unreadable")
def draws_that_are_no_numbers(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(spread=spread(b"\x00\x7e")))


@proposal("refused", "record.unreadable")
def draws_without_end(lab: Lab) -> None:
    drawn = spread(b"\x00\x3c", deviation={"stimulus": 1e300})
    rerecord(lab, lambda plain: plain["score"].update(spread=drawn))


@proposal("refused", "record.unreadable")
def draws_of_no_items(lab: Lab) -> None:
    rerecord(
        lab, lambda plain: plain["score"].update(spread=spread(b"\x00\x3c", items={}))
    )


@proposal("refused", "record.unreadable")
def draws_of_fewer_than_no_items(lab: Lab) -> None:
    drawn = spread(b"\x00\x3c", items={"stimulus": -1})
    rerecord(lab, lambda plain: plain["score"].update(spread=drawn))


@proposal("refused", "record.unreadable")
def a_seed_in_words(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["request"].update(seed="lucky"))


@proposal("refused", "record.unreadable")
def draws_in_words(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(spread={"draws": "many"}))


@proposal("refused", "record.misplaced")
def a_record_in_the_place_of_another(lab: Lab) -> None:
    folder = lab.root / "results" / "records" / RIDGE
    shutil.copy(folder / "pixels4.json", folder / "noise.json")


@proposal("refused", "spec.control")
def a_record_whose_control_failed(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: next(iter(plain["controls"].values())).update(
            low=1.5, high=2.5, value=2.0, bound=0.1, role="negative", verdict="failed"
        ),
    )


@proposal("refused", "data.report-edited")
def an_invented_validation_report(lab: Lab) -> None:
    write(lab, "results/validation/lab.json", '{"dataset": "lab", "success": true}')


@proposal("refused", "data.report-stale")
def a_validation_report_of_another_spec(lab: Lab) -> None:
    from neuroledger.data.gate.validate import validate

    report = validate(lab.open(), "lab")
    path = lab.root / "results" / "validation" / "lab.json"
    from neuroledger.data.gate.validation import seal, write_report

    write_report(path, seal(report.model_copy(update={"identity": "0" * 64})))


# The repository itself is hostile: what its git configuration or index would make git do


@proposal("needs a person", "review.code")
def programs_in_the_configuration_of_git(lab: Lab) -> None:
    write(lab, "src/module.py", "x = 2\n")
    commit(lab)
    config = lab.root / ".git" / "config"
    config.write_text(
        config.read_text()
        + f"[core]\n\tfsmonitor = {COMMAND}\n\tpager = {COMMAND}\n\tsshCommand = {COMMAND}\n"
        + f'[diff]\n\texternal = {COMMAND}\n[filter "evil"]\n\tclean = {COMMAND}\n\tsmudge = {COMMAND}\n'
        + f'[diff "evil"]\n\ttextconv = {COMMAND}\n\tcommand = {COMMAND}\n'
    )
    (lab.root / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil\n")


@proposal("needs a person", "review.code")
def a_change_that_the_index_hides(lab: Lab) -> None:
    git(lab.root, "update-index", "--assume-unchanged", "src/module.py")
    write(lab, "src/module.py", "x = 3\n")


@proposal("needs a person", "review.code")
def a_commit_that_the_working_tree_hides(lab: Lab) -> None:
    write(lab, "src/module.py", "x = 4\n")
    commit(lab)
    write(lab, "src/module.py", "x = 1\n")


@proposal("needs a person", "review.code")
def a_replaced_commit(lab: Lab) -> None:
    write(lab, "src/module.py", "x = 5\n")
    commit(lab)
    git(lab.root, "replace", "HEAD", "main")
