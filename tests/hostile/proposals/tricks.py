"""More proposals: tricks with YAML, names, git, DVC, records, pages and Python's tools."""

from __future__ import annotations

import hashlib
import json
import subprocess
import unicodedata
from pathlib import Path

import yaml

from neuroledger.spec.base import sha256_of
from tests.engine.lab import Lab
from tests.hostile.proposals.corpus import (
    COMMAND,
    PAGE,
    RIDGE,
    attacker,
    calibrated,
    commit,
    git,
    point,
    proposal,
    rerecord,
    signature,
    signed,
    stages,
    write,
)

SPEC = "specs/benchmarks/lab.V4-pls.yaml"


def spec(lab: Lab, old: str = "", new: str = "") -> Path:
    """A new benchmark, with a part of its text replaced."""
    path = lab.benchmark("lab.V4-pls", metric="pls")
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new, 1))
    return path


# YAML


@proposal("refused", "spec.yaml")
def a_key_that_merges_another(lab: Lab) -> None:
    path = spec(lab)
    path.write_text(path.read_text() + "tags: &t [a]\n<<: {description: merged}\n")


@proposal("refused", "spec.yaml")
def a_field_twice(lab: Lab) -> None:
    path = spec(lab)
    path.write_text(path.read_text() + "version: 2\n")


@proposal("refused", "review.hidden-character")
def a_spec_in_sixteen_bits(lab: Lab) -> None:
    path = spec(lab)
    path.write_bytes(path.read_text().encode("utf-16"))


@proposal("clean", "review.spec")
def a_spec_with_a_mark_of_its_byte_order(lab: Lab) -> None:
    path = spec(lab)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())


@proposal("clean", "review.spec")
def a_spec_from_another_system(lab: Lab) -> None:
    path = spec(lab)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


@proposal("refused")
def half_of_a_character(lab: Lab) -> None:
    spec(lab, "title: The benchmark lab.V4-pls", 'title: "The \\ud800 benchmark"')


@proposal("refused", "spec.yaml")
def lists_in_lists_without_end(lab: Lab) -> None:
    path = spec(lab)
    path.write_text(path.read_text() + f"tags: {'[' * 50_000}{']' * 50_000}\n")


@proposal("refused", "spec.value")
def a_bound_that_is_not_a_number(lab: Lab) -> None:
    lab.benchmark(
        "lab.V4-pls",
        metric="pls",
        controls={"positive": ["pixels4"], "negative": ["noise"]},
    )
    path = lab.root / SPEC
    plain = yaml.safe_load(path.read_text().partition("\n")[2])
    plain["controls"]["floor_at_most"] = float("nan")
    path.write_text(path.read_text().partition("\n")[0] + "\n" + yaml.safe_dump(plain))


@proposal("refused", "spec.yaml")
def a_second_document(lab: Lab) -> None:
    path = spec(lab)
    path.write_text(
        path.read_text()
        + f"---\nbuilder: {{name: sklearn_decoder, path: os.system}}\n# {COMMAND}\n"
    )


@proposal("clean", "spec.schema-line")
def a_directive_of_yaml(lab: Lab) -> None:
    path = spec(lab)
    path.write_text("%TAG ! tag:yaml.org,2002:python/\n---\n" + path.read_text())


@proposal("refused", "review.hidden-character")
def a_comment_that_ends_where_no_editor_shows_it(lab: Lab) -> None:
    path = spec(lab)
    path.write_text(
        path.read_text()
        + "# nothing to see\u2028description: seen by the parser alone\n"
    )


@proposal("refused", "review.hidden-character")
def a_comment_that_ends_in_a_carriage_return(lab: Lab) -> None:
    path = spec(lab)
    path.write_bytes(
        path.read_bytes() + b"# nothing to see\rdescription: seen by the parser alone\n"
    )


@proposal("refused")
def a_value_of_another_kind_by_its_spelling(lab: Lab) -> None:
    spec(lab, "version: 1", "version: yes")


# Names


@proposal("refused", "spec.duplicate-id")
def a_definition_in_the_place_of_one_that_is_shipped(lab: Lab) -> None:
    lab.spec("metrics", "ridge", compare={"name": "ridge"}, scale="correlation")


@proposal("refused")
def an_id_of_letters_that_look_like_others(lab: Lab) -> None:
    lab.spec("models", "p\u0456xels4", builder={"name": "pixels", "size": 4})


@proposal("refused")
def an_id_that_ends_in_a_point(lab: Lab) -> None:
    lab.spec("models", "pixels4.", builder={"name": "pixels", "size": 4})


@proposal("refused", "review.path")
def two_names_that_are_one_when_composed(lab: Lab) -> None:
    for form in ("NFC", "NFD"):
        write(lab, unicodedata.normalize(form, "docs/caf\u00e9.txt"), "x\n")


@proposal("needs a person", "review.code")
def a_spec_of_another_suffix(lab: Lab) -> None:
    path = spec(lab)
    path.rename(path.with_suffix(".YAML"))


@proposal("refused", "review.path")
def a_folder_that_is_the_specs_where_case_is_folded(lab: Lab) -> None:
    path = spec(lab)
    (lab.root / "Specs" / "benchmarks").mkdir(parents=True)
    path.rename(lab.root / "Specs" / "benchmarks" / path.name)


# Git


def committed_raw(lab: Lab, folder: str) -> None:
    """Commit a folder with a name that git itself would not add."""
    commit(lab)

    def git_output(*words: str, given: str = "") -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=lab.root,
            input=given,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    blob = git_output("hash-object", "-w", "--stdin", given=f"{COMMAND}\n")
    inner = git_output("mktree", given=f"100644 blob {blob}\tconfig\n")
    tree = git_output(
        "mktree",
        given=f"{git_output('ls-tree', 'HEAD')}\n040000 tree {inner}\t{folder}\n",
    )
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    git_output(
        "update-ref",
        "HEAD",
        git_output(*who, "commit-tree", tree, "-p", "HEAD", "-m", "raw"),
    )


@proposal("needs a person", "review.code")
def a_file_that_is_only_in_the_index(lab: Lab) -> None:
    commit(lab)
    write(lab, "src/note.py", f"import os; os.system('{COMMAND}')\n")
    git(lab.root, "add", "src/note.py")


@proposal("needs a person", "review.code")
def a_file_that_is_only_meant_to_be_added(lab: Lab) -> None:
    commit(lab)
    write(lab, "src/note.py", f"import os; os.system('{COMMAND}')\n")
    git(lab.root, "add", "-N", "src/note.py")


@proposal("needs a person", "review.code")
def hooks_of_git(lab: Lab) -> None:
    write(lab, "src/module.py", "x = 6\n")
    commit(lab)
    for name in (
        "post-checkout",
        "pre-commit",
        "post-index-change",
        "reference-transaction",
        "fsmonitor-watchman",
    ):
        write(lab, f".git/hooks/{name}", f"#!/bin/sh\n{COMMAND}\n").chmod(0o755)
    git(lab.root, "config", "core.hooksPath", ".git/hooks")


@proposal("needs a person", "review.code")
def parents_that_are_grafted(lab: Lab) -> None:
    write(lab, "src/module.py", "x = 7\n")
    commit(lab)
    words = ("rev-parse", "HEAD", "main")
    head, main = subprocess.run(
        ["git", *words], cwd=lab.root, capture_output=True, text=True, check=True
    ).stdout.split()
    write(lab, ".git/info/grafts", f"{main} {head}\n{head}\n")


@proposal("needs a person", "review.code")
def notes_that_replace_what_is_said(lab: Lab) -> None:
    write(lab, "src/module.py", "x = 8\n")
    commit(lab)
    git(lab.root, "notes", "add", "-m", "clean", "HEAD")
    git(lab.root, "config", "notes.displayRef", "refs/notes/*")


@proposal("needs a person", "review.code")
def includes_of_the_configuration_of_git(lab: Lab) -> None:
    write(lab, "src/module.py", "x = 9\n")
    write(
        lab,
        "evil.cfg",
        f"[core]\n\tsshCommand = {COMMAND}\n\tfsmonitor = {COMMAND}\n[alias]\n\tls-tree = !{COMMAND}\n",
    )
    commit(lab)
    git(lab.root, "config", "include.path", "../evil.cfg")


@proposal("needs a person", "review.code")
def attributes_that_filter(lab: Lab) -> None:
    write(lab, ".gitattributes", "* filter=evil diff=evil merge=evil\n")
    commit(lab)
    git(lab.root, "config", "filter.evil.process", COMMAND)
    git(lab.root, "config", "merge.evil.driver", COMMAND)


@proposal("needs a person", "review.code")
def a_working_tree_of_sparse_files(lab: Lab) -> None:
    write(lab, "src/module.py", "x = 10\n")
    commit(lab)
    git(lab.root, "update-index", "--skip-worktree", "src/module.py")
    write(lab, "src/module.py", "x = 1\n")


@proposal("refused")
def a_tree_that_leads_out_of_the_repository(lab: Lab) -> None:
    committed_raw(lab, "..")


@proposal("refused", "review.path")
def a_path_of_many_folders(lab: Lab) -> None:
    write(lab, "docs/" + "a/" * 600 + "x.md", "x\n")


@proposal("refused")
def a_git_folder_in_other_letters(lab: Lab) -> None:
    committed_raw(lab, ".GIT")


@proposal("refused")
def a_git_folder_in_the_letters_of_old_systems(lab: Lab) -> None:
    committed_raw(lab, "GIT~1")


@proposal("refused")
def a_git_folder_with_a_letter_that_some_systems_drop(lab: Lab) -> None:
    committed_raw(lab, ".g\u200cit")


# DVC


@proposal("refused", "spec.address")
def local_settings_of_dvc_that_are_committed(lab: Lab) -> None:
    write(
        lab,
        ".dvc/config.local",
        "['remote \"embedded\"']\n    url = ssh://example.org/x\n    password = hunter2\n",
    )


@proposal("needs a person", "review.code")
def local_settings_of_dvc_that_move_the_cache(lab: Lab) -> None:
    write(lab, ".dvc/config.local", "[cache]\n    dir = ../src\n")


@proposal("needs a person", "review.code")
def stages_for_each_of_a_list(lab: Lab) -> None:
    stages(lab)
    git(lab.root, "add", "dvc.yaml")
    git(lab.root, "commit", "-m", "stages")
    git(lab.root, "branch", "-f", "main")
    each = {"foreach": [COMMAND], "do": {"cmd": "${item}"}}
    plain = {
        "stages": {
            "validate": {"cmd": "neuroledger validate", "deps": ["specs"]},
            "more": each,
        }
    }
    write(lab, "dvc.yaml", yaml.safe_dump(plain))


@proposal("needs a person", "review.code")
def plots_and_artifacts_beside_the_stages(lab: Lab) -> None:
    stages(lab)
    git(lab.root, "add", "dvc.yaml")
    git(lab.root, "commit", "-m", "stages")
    git(lab.root, "branch", "-f", "main")
    plain = yaml.safe_load((lab.root / "dvc.yaml").read_text())
    plain |= {
        "artifacts": {"x": {"path": "src/module.py"}},
        "plots": [{"../../etc/passwd": {"template": "x"}}],
    }
    write(lab, "dvc.yaml", yaml.safe_dump(plain))


def repointed(lab: Lab, **fields: object) -> None:
    pointer = lab.data / "responses.nc.dvc"
    plain = yaml.safe_load(pointer.read_text())
    plain["outs"][0] |= fields
    pointer.write_text(yaml.safe_dump(plain))


@proposal("refused", "review.pointer-wrong")
def a_pointer_from_another_repository(lab: Lab) -> None:
    pointer = lab.data / "responses.nc.dvc"
    plain = yaml.safe_load(pointer.read_text())
    plain |= {
        "frozen": True,
        "deps": [
            {
                "path": "x",
                "repo": {"url": "https://example.org/x", "rev_lock": "0" * 40},
            }
        ],
    }
    pointer.write_text(yaml.safe_dump(plain))


@proposal("refused", "review.pointer-wrong")
def a_pointer_to_a_version_in_a_cloud(lab: Lab) -> None:
    repointed(lab, cloud={"embedded": {"etag": "x", "version_id": "y"}})


@proposal("refused", "review.pointer-wrong")
def a_pointer_to_a_folder(lab: Lab) -> None:
    repointed(lab, md5="0" * 32 + ".dir", nfiles=2)


@proposal("refused", "review.pointer-wrong")
def a_pointer_out_of_the_repository(lab: Lab) -> None:
    repointed(lab, path="/etc/cron.d/evil")


@proposal("refused", "review.pointer-wrong")
def a_pointer_whose_file_is_executable(lab: Lab) -> None:
    repointed(lab, isexec=True)


@proposal("refused", "review.pointer-wrong")
def a_pointer_to_the_default_remote_without_an_object(lab: Lab) -> None:
    write(
        lab,
        ".dvc/config",
        "[core]\n    remote = embedded\n['remote \"embedded\"']\n    url = ../.dvcstore\n",
    )
    git(lab.root, "add", "-f", ".dvc/config")
    git(lab.root, "commit", "-m", "remote")
    git(lab.root, "branch", "-f", "main")
    md5 = "0" * 32
    repointed(lab, remote="embedded", md5=md5)


@proposal("clean", "review.spec")
def a_board_whose_names_are_formulas_of_spreadsheets_and_of_tex(lab: Lab) -> None:
    """Of the published board, programs compute what begins with an equals sign, and obey commands of TeX."""
    groups = ['=HYPERLINK("https://example.org"; "V4")', "^^5cinput /etc/passwd "]
    ids = ["lab.V4-pls", "lab.V4-tex"]
    for id, group in zip(ids, groups, strict=True):
        lab.benchmark(id, metric="pls", parent=group)
    lab.spec(
        "suites", "lab", title=groups[1], version=2, benchmarks=[RIDGE, *ids], models=["pixels4"],
        hierarchy=dict.fromkeys(["V4", *groups], "+vision"),
    )  # fmt: skip


# Records, signatures, reports and calibrations


@proposal("refused", "record.unreadable")
def a_score_without_the_end_of_its_interval(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(low=0.1, high=None))


@proposal("refused", "record.unreadable")
def a_record_of_lists_without_end(lab: Lab) -> None:
    path = lab.root / "results" / "records" / RIDGE / "pixels4.json"
    path.write_text(
        path.read_text().replace(
            '"schema_version"', f'"x": {"[" * 60_000}{"]" * 60_000}, "schema_version"'
        )
    )


@proposal("refused", "record.unreadable")
def a_run_that_took_less_than_no_time(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain.update(timing={"seconds": -1e9}))


@proposal("needs a person", "review.record-moved")
def a_score_of_fewer_than_no_neuroids(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(n={"neuroid": -5}))


@proposal("refused", "record.unreadable")
def a_record_made_in_the_future(lab: Lab) -> None:
    rerecord(
        lab, lambda plain: plain["environment"].update(date="2999-01-01T00:00:00+00:00")
    )


@proposal("refused", "record.unreadable")
def surroundings_that_are_not_text(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: plain["environment"].update(
            git_commit=[{"a": 1}], packages="all"
        ),
    )


@proposal("needs a person", "record.stale")
def a_record_of_nobody(lab: Lab) -> None:
    path = lab.root / "results" / "records" / RIDGE / "pixels4.json"
    from neuroledger.engine.record import payload_of

    plain = json.loads(path.read_text()) | {
        "benchmark": "ghost",
        "inputs": {},
        "id": sha256_of({}),
    }
    plain["payload_sha256"] = payload_of(plain)
    write(lab, "results/records/ghost/pixels4.json", json.dumps(plain))


@proposal("refused", "record.misplaced")
def the_record_of_a_competitor_under_another_name(lab: Lab) -> None:
    path = lab.root / "results" / "records" / RIDGE / "pixels4.json"
    from neuroledger.engine.record import payload_of

    lab.spec("models", "mine", builder={"name": "pixels", "size": 2})
    plain = json.loads(path.read_text()) | {"model": "mine"}
    plain["inputs"]["model"] = {"id": "pixels4", "spec_sha256": "0" * 64}
    plain["id"] = sha256_of(plain["inputs"])
    plain["payload_sha256"] = payload_of(plain)
    write(lab, f"results/records/{RIDGE}/mine.json", json.dumps(plain))


@proposal("needs a person", "review.code")
def signers_that_the_proposal_brings(lab: Lab) -> None:
    signed(lab, "pixels4")
    write(
        lab,
        "allowed_signers",
        'eve@example.org namespaces="neuroledger" ssh-ed25519 AAAA\n',
    )


@proposal("needs a person", "review.code")
def a_signature_of_a_record_that_is_not_there(lab: Lab) -> None:
    path = signature(lab)
    path.rename(path.with_name("other.json.sig"))


@proposal("refused", "record.calibration")
def a_calibration_of_one_experiment(lab: Lab) -> None:
    path = calibrated(lab)
    plain = json.loads(path.read_text())
    one = {"value": 1.0, "low": 0.025, "high": 1.0, "runs": 1, "n": 1.0}
    plain["runs"] = 1
    for name in ("coverage", "false_positives", "false_ranks"):
        plain["metrics"]["ridge"][name] = one
    path.write_text(json.dumps(plain))


@proposal("refused", "record.calibration")
def a_calibration_of_lists_without_end(lab: Lab) -> None:
    path = calibrated(lab)
    path.write_text(
        path.read_text().replace('"seed"', f'"x": {"[" * 60_000}{"]" * 60_000}, "seed"')
    )


@proposal("refused", "data.report-edited")
def a_validation_report_of_lists_without_end(lab: Lab) -> None:
    write(lab, "results/validation/lab.json", "[" * 60_000 + "]" * 60_000)


# Pages and the bibliography


@proposal("clean", "review.page")
def a_page_that_shows_an_image_of_elsewhere(lab: Lab) -> None:
    write(
        lab, "docs/page.md", PAGE + "\n![x](https://example.org/who-reads-this.png)\n"
    )


@proposal("clean", "review.page")
def a_page_with_an_image_of_elsewhere_by_reference(lab: Lab) -> None:
    write(
        lab,
        "docs/page.md",
        PAGE + "\n![x][y]\n\n[y]: https://example.org/who-reads-this.png\n",
    )


@proposal("clean", "review.page")
def a_page_with_a_link_to_data(lab: Lab) -> None:
    write(lab, "docs/page.md", PAGE + "\n[x](data:text/html;base64,PHNjcmlwdD4=)\n")


@proposal("clean", "review.page")
def a_page_with_settings_of_the_site(lab: Lab) -> None:
    write(lab, "docs/other.md", "---\ntemplate: evil.html\n---\n# Another\n")


@proposal("clean", "review.page")
def a_page_with_settings_without_marks(lab: Lab) -> None:
    write(lab, "docs/other.md", "template: evil.html\n\n# Another\n")


@proposal("clean", "review.page")
def a_formula_with_a_link_that_is_a_script(lab: Lab) -> None:
    write(lab, "docs/page.md", PAGE + "\n$\\href{javascript:alert(1)}{x}$\n")


@proposal("needs a person", "review.code")
def a_page_of_a_large_file_system(lab: Lab) -> None:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
    write(lab, "docs/page.md", text)
    write(lab, ".gitattributes", "*.md filter=lfs diff=lfs merge=lfs -text\n")


@proposal("refused", "review.link")
def a_page_that_is_a_link(lab: Lab) -> None:
    (lab.root / "docs" / "page.md").unlink()
    (lab.root / "docs" / "page.md").symlink_to("/etc/passwd")


@proposal("needs a person")
def the_reference_of_another_rewritten(lab: Lab) -> None:
    write(
        lab,
        "specs/references.bib",
        "@article{a2020, author = {Ann}, title = {One}, year = {2020}}\n",
    )
    git(lab.root, "add", "specs")
    git(lab.root, "commit", "-m", "references")
    git(lab.root, "branch", "-f", "main")
    write(
        lab,
        "specs/references.bib",
        "@article{a2020, author = {Eve}, title = {One}, year = {2020}}\n",
    )


# Functions of the project


@proposal("refused", "trust.untrusted")
def a_graph_in_a_file_of_the_machine(lab: Lab) -> None:
    module = "neuroledger.families.efficiency.graphs.onnx_graph:from_onnx"
    attacker(lab, name="torch", module=module, arguments={"source": "/tmp/any.onnx"})


@proposal("refused", "spec.value")
def a_path_for_a_function_that_takes_numbers(lab: Lab) -> None:
    module = "neuroledger.families.alignment.networks.recurrent:Recurrent"
    attacker(lab, name="torch", module=module, arguments={"steps": "/etc/passwd"})


# Files that DVC or `fetch` write, which git does not hold


@proposal("refused", "spec.value")
def a_data_set_whose_file_python_imports(lab: Lab) -> None:
    pinned_as(lab, "brainscore", "__init__.py")


@proposal("refused", "spec.value")
def a_data_set_that_is_the_folder_of_models(lab: Lab) -> None:
    pinned_as(lab, "models", "weights.nc")


def pinned_as(lab: Lab, id: str, name: str) -> None:
    """Add a data set with one file of this name, which is code, in the embedded remote."""
    file = write(lab, f"data/{id}/{name}", f"import os; os.system('{COMMAND}')\n")
    content = file.read_bytes()
    point(lab, file)
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
        "datasets", id, license="CC0-1.0", simulated=True, files={name: pin}, **fields
    )


# Python's tools


@proposal("needs a person", "review.code")
def files_by_which_python_and_its_tools_run_code(lab: Lab) -> None:
    code = f"open('CANARY', 'w'); import os; os.system('{COMMAND}')\n"
    for name in (
        "conftest.py",
        "tests/conftest.py",
        "specs/conftest.py",
        "noxfile.py",
        "setup.py",
    ):
        write(lab, name, code)
    for name in ("evil.pth", "src/evil.pth"):
        write(lab, name, f"import os; os.system('{COMMAND}')\n")
    write(lab, "src/evil.egg-link", "/tmp\n.")
    points = "[neuroledger.components]\nevil = evil\n[pytest11]\nevil = conftest\n"
    write(lab, "neuroledger.egg-info/entry_points.txt", points)
    write(lab, "evil-1.dist-info/entry_points.txt", points)
    write(
        lab,
        "evil-1.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: evil\nVersion: 1\n",
    )
    write(lab, "evil.py", code)
    write(lab, "pytest.ini", "[pytest]\naddopts = -p evil\n")
    write(lab, "tox.ini", f"[testenv]\ncommands = {COMMAND}\n")
    write(lab, ".envrc", COMMAND + "\n")
    write(
        lab,
        ".vscode/settings.json",
        json.dumps({"python.defaultInterpreterPath": "./evil"}),
    )


@proposal("needs a person", "review.code")
def files_that_github_obeys(lab: Lab) -> None:
    write(lab, ".github/CODEOWNERS", "* @eve\n")
    write(
        lab,
        ".github/actions/x/action.yml",
        f"runs: {{using: composite, steps: [{{run: {COMMAND}, shell: sh}}]}}\n",
    )
    write(lab, ".github/dependabot.yml", "version: 2\n")


@proposal("needs a person", "review.code")
def a_schema_that_editors_fetch(lab: Lab) -> None:
    path = lab.root / "specs" / "schema" / "model.json"
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(plain | {"$ref": "https://example.org/evil.json"}))


@proposal("needs a person", "review.code")
def a_schema_of_no_kind(lab: Lab) -> None:
    write(lab, "specs/schema/evil.json", "{}")


@proposal("needs a person", "review.code")
def a_notebook_among_the_tutorials(lab: Lab) -> None:
    cell = {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": f"!{COMMAND}",
    }
    write(
        lab,
        "docs/tutorials/x.ipynb",
        json.dumps(
            {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        ),
    )


@proposal("needs a person", "review.code")
def a_page_that_can_be_executed(lab: Lab) -> None:
    write(lab, "docs/page.md", f"#!/bin/sh\n{COMMAND}\n").chmod(0o755)


@proposal("refused", "review.pointer-wrong")
def a_pointer_whose_name_differs_in_case(lab: Lab) -> None:
    path = lab.data / "Responses.nc"
    path.write_bytes((lab.data / "responses.nc").read_bytes())
    point(lab, path)
