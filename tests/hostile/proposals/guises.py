"""More proposals: attacks disguised as small corrections, and honest ones that must not be mistaken for them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import unicodedata
from typing import Any

import yaml

from tests.engine.lab import Lab
from tests.hostile.proposals.corpus import (
    COMMAND,
    PAGE,
    RIDGE,
    a_data_set_with_its_attribution,
    calibrated,
    commit,
    git,
    proposal,
    rerecord,
    stages,
    write,
)
from tests.report.ledger import keep, record

BIBLIOGRAPHY = """@article{ann2020,
  author = {Ann},
  title = {One},
  year = {2020}
}

@article{bob2021,
  author = {Bob},
  title = {Two},
  year = {2021}
}
"""


def merged(lab: Lab) -> None:
    """Make the content of the folder the base of the proposal."""
    git(lab.root, "add", "-A")
    git(lab.root, "commit", "--allow-empty", "-m", "base")
    git(lab.root, "branch", "-f", "main")


def edited(lab: Lab, kind: str, id: str, **fields: object) -> None:
    """A spec of the base with these fields replaced; None removes one."""
    path = lab.root / "specs" / kind / f"{id}.yaml"
    line, _, text = path.read_text().partition("\n")
    plain = {
        name: value
        for name, value in (yaml.safe_load(text) | fields).items()
        if value is not None
    }
    path.write_text(f"{line}\n{yaml.safe_dump(plain, sort_keys=False)}")


def raw(lab: Lab, entries: str) -> None:
    """Commit the tree of HEAD with entries (as `git mktree` reads them) that git itself would not add."""
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
    inner = git_output("mktree", given=f"100644 blob {blob}\t.git\n")
    tree = git_output(
        "mktree",
        given=f"{git_output('ls-tree', 'HEAD')}\n{entries.format(blob=blob, inner=inner)}",
    )
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    git_output(
        "update-ref",
        "HEAD",
        git_output(*who, "commit-tree", tree, "-p", "HEAD", "-m", "raw"),
    )


# Fields of somebody else's spec from which no score follows, and much else does


@proposal("needs a person", "review.weakened")
def a_metric_whose_chance_level_lets_every_floor_pass(lab: Lab) -> None:
    lab.spec("metrics", "own", compare={"name": "rdm"}, scale="similarity")
    merged(lab)
    edited(lab, "metrics", "own", chance_level=0.98)


@proposal("needs a person", "review.weakened")
def simulated_data_that_are_called_recorded(lab: Lab) -> None:
    edited(lab, "datasets", "lab", simulated=None)


@proposal("needs a person", "review.weakened")
def data_under_a_licence_that_allows_more(lab: Lab) -> None:
    edited(lab, "datasets", "lab", license="CC-BY-NC-4.0")
    merged(lab)
    edited(lab, "datasets", "lab", license="CC0-1.0")


@proposal("needs a person", "review.weakened")
def private_data_that_are_called_public(lab: Lab) -> None:
    pin = {"sha256": "0" * 64, "size": 1, "url": "https://example.org/a.nc"}
    more = {
        "expectations": {"assembly": [{"check": "values_vary"}]},
        "reader": {"name": "netcdf"},
    }
    lab.spec(
        "datasets",
        "more",
        license="CC0-1.0",
        access="private",
        simulated=True,
        files={"a.nc": pin},
        **more,
    )
    merged(lab)
    edited(lab, "datasets", "more", access="public")


@proposal("needs a person", "review.weakened")
def a_model_that_forgets_what_it_was_trained_on(lab: Lab) -> None:
    edited(lab, "models", "pixels4", pretraining=["lab"])
    merged(lab)
    edited(lab, "models", "pixels4", pretraining=None)


@proposal("needs a person", "review.weakened")
def a_competitor_that_becomes_a_control(lab: Lab) -> None:
    edited(lab, "models", "pixels4", control="negative")


@proposal("needs a person", "review.weakened")
def a_competitor_that_is_said_to_be_unavailable(lab: Lab) -> None:
    edited(lab, "models", "pixels4", unavailable="its authors withdrew it")


@proposal("needs a person", "review.weakened")
def a_benchmark_that_is_said_to_be_superseded(lab: Lab) -> None:
    lab.benchmark("lab.V4-pls", metric="pls")
    edited(lab, "benchmarks", RIDGE, superseded_by="lab.V4-pls")


@proposal("needs a person", "review.weakened")
def a_benchmark_whose_defects_are_forgotten(lab: Lab) -> None:
    edited(lab, "benchmarks", RIDGE, defects=["its neuroids are few"])
    merged(lab)
    edited(lab, "benchmarks", RIDGE, defects=None)


@proposal("needs a person", "review.weakened")
def a_published_figure_of_a_competitor_that_falls(lab: Lab) -> None:
    git_output = {"model": "theirs", "value": 0.9, "source": "ann2020"}
    edited(lab, "benchmarks", RIDGE, published=[git_output])
    merged(lab)
    edited(lab, "benchmarks", RIDGE, published=[git_output | {"value": 0.1}])


@proposal("needs a person", "review.weakened")
def a_benchmark_that_leaves_its_group(lab: Lab) -> None:
    edited(lab, "benchmarks", RIDGE, parent="IT")


@proposal("needs a person", "review.weakened")
def a_suite_that_forgets_a_competitor(lab: Lab) -> None:
    edited(lab, "suites", "lab", models=["noise"])


@proposal("needs a person", "review.weakened")
def a_suite_that_forgets_a_benchmark(lab: Lab) -> None:
    lab.benchmark("lab.V4-pls", metric="pls")
    edited(lab, "suites", "lab", version=2, benchmarks=["lab.V4-pls"])


@proposal("needs a person", "review.weakened")
def a_data_set_that_cites_nobody_any_more(lab: Lab) -> None:
    write(lab, "specs/references.bib", BIBLIOGRAPHY)
    edited(lab, "datasets", "lab", cite=["ann2020"])
    merged(lab)
    edited(lab, "datasets", "lab", cite=None)


# The bibliography, pages and attributions


def bibliography(lab: Lab, text: str) -> None:
    write(lab, "specs/references.bib", BIBLIOGRAPHY)
    merged(lab)
    write(lab, "specs/references.bib", text)


@proposal("needs a person", "review.spec")
def references_whose_authors_change_places(lab: Lab) -> None:
    swapped = (
        BIBLIOGRAPHY.replace("{Ann}", "{?}")
        .replace("{Bob}", "{Ann}")
        .replace("{?}", "{Bob}")
    )
    bibliography(lab, swapped)


@proposal("needs a person", "review.spec")
def a_reference_that_gains_another_author(lab: Lab) -> None:
    bibliography(lab, BIBLIOGRAPHY.replace("{Ann},", "{Ann},\n  editor = {Eve},", 1))


@proposal("refused")
def a_reference_before_another_of_its_key(lab: Lab) -> None:
    bibliography(
        lab,
        "@article{ann2020,\n  author = {Eve},\n  title = {Zero}\n}\n\n" + BIBLIOGRAPHY,
    )


@proposal("refused", "spec.bibliography")
def references_inside_a_comment(lab: Lab) -> None:
    bibliography(lab, "@comment{\n" + BIBLIOGRAPHY + "}\n")


@proposal("needs a person", "review.removed")
def documentation_that_disappears(lab: Lab) -> None:
    (lab.root / "docs" / "page.md").unlink()


@proposal("needs a person", "review.removed")
def an_attribution_that_names_nobody_any_more(lab: Lab) -> None:
    path = write(
        lab, "data/lab/ATTRIBUTION.md", "# Responses\n\nBy A. Author, CC-BY-4.0.\n"
    )
    merged(lab)
    path.write_text("# Responses\n")


@proposal("clean", "review.page")
def a_page_whose_image_leads_away_by_backslashes(lab: Lab) -> None:
    write(lab, "docs/page.md", PAGE + "\n![x](/\\example.org/who-reads-this.png)\n")


@proposal("clean", "review.page")
def a_page_whose_image_leads_away_by_names_of_signs(lab: Lab) -> None:
    write(
        lab, "docs/page.md", PAGE + "\n![x](&sol;&sol;example.org/who-reads-this.png)\n"
    )


@proposal("clean", "review.page")
def a_page_whose_image_leads_away_over_a_tab(lab: Lab) -> None:
    write(lab, "docs/page.md", PAGE + "\n![x](</\t/example.org/who-reads-this.png>)\n")


@proposal("clean", "review.page")
def a_page_whose_reference_of_two_lines_is_a_script(lab: Lab) -> None:
    write(
        lab,
        "docs/page.md",
        PAGE + "\n[one\ntwo]: javascript:alert(1)\n\n[click][one two]\n",
    )


@proposal("needs a person", "review.code")
def a_page_of_a_name_that_looks_like_another(lab: Lab) -> None:
    write(lab, "docs/p\u0430ge.md", PAGE)


@proposal("needs a person", "review.code")
def a_page_that_takes_for_ever_to_examine(lab: Lab) -> None:
    write(lab, "docs/page.md", PAGE + "![x](a" * 600_000)


@proposal("refused", "review.pointer-wrong")
def a_remote_that_takes_for_ever_to_find(lab: Lab) -> None:
    write(lab, ".dvc/config", 'remote "a"\n' * 400_000)
    pointer = lab.data / "responses.nc.dvc"
    plain = yaml.safe_load(pointer.read_text())
    plain["outs"][0]["remote"] = "elsewhere"
    pointer.write_text(yaml.safe_dump(plain))


@proposal("refused", "review.size")
def pages_without_end(lab: Lab) -> None:
    for number in range(21):
        write(lab, f"docs/{number}.md", "x\n" * 2_400_000)


@proposal("refused", "review.size")
def paths_without_end(lab: Lab) -> None:
    for number in range(5_001):
        write(lab, f"docs/many/{number}.md", "x\n")


# Names


@proposal("refused", "review.path")
def a_folder_of_the_name_of_a_file_in_another_case(lab: Lab) -> None:
    write(lab, "docs/PAGE.md/other.md", "# Other\n")


@proposal("refused", "review.path")
def a_folder_of_data_in_another_case(lab: Lab) -> None:
    write(lab, "data/LAB/ATTRIBUTION.md", "# By nobody\n")
    lab.spec("datasets", "LAB", license="CC0-1.0", unavailable="not yet published")
    (lab.root / "specs" / "datasets" / "more").mkdir()
    (lab.root / "specs" / "datasets" / "LAB.yaml").rename(
        lab.root / "specs/datasets/more/LAB.yaml"
    )


@proposal("refused", "review.path")
def two_folders_that_are_one_when_composed(lab: Lab) -> None:
    for number, form in enumerate(("NFC", "NFD")):
        write(lab, unicodedata.normalize(form, f"docs/caf\u00e9/{number}.txt"), "x\n")


@proposal("refused")
def a_file_that_says_where_the_repository_lies(lab: Lab) -> None:
    raw(lab, "040000 tree {inner}\tvendor\n")


@proposal("refused")
def a_name_with_a_stream_of_its_own(lab: Lab) -> None:
    raw(lab, "100644 blob {blob}\tREADME.md::$DATA\n")


# Histories


def git_output(lab: Lab, *words: str, date: str = "") -> str:
    settings = (
        {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        if date
        else dict[str, str]()
    )
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", *who, *words],
        cwd=lab.root,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@proposal("needs a person", "review.code")
def a_merge_that_undoes_what_it_merges(lab: Lab) -> None:
    write(lab, "docs/other.md", "# Mine\n")
    commit(lab)
    git_output(lab, "checkout", "-q", "main")
    write(lab, "src/module.py", "x = 'mended'\n")
    git_output(lab, "commit", "-qam", "mended")
    git_output(lab, "checkout", "-q", "proposal")
    git_output(lab, "merge", "-q", "-s", "ours", "-m", "merged", "main")


@proposal("needs a person", "review.code")
def code_that_was_renamed_to_a_page(lab: Lab) -> None:
    (lab.root / "src" / "module.py").rename(lab.root / "docs" / "module.md")


# Records


@proposal("refused", "spec.control")
def a_record_without_the_controls_of_its_benchmark(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain.update(controls={}))


@proposal("refused", "record.unreadable")
def a_control_that_passed_beyond_its_bound(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["controls"]["noise"].update(value=0.7))


@proposal("refused", "record.unreadable")
def a_control_that_passed_without_a_value(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["controls"]["noise"].update(value=None))


@proposal("refused", "spec.control")
def a_control_of_another_bound_than_declared(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["controls"]["noise"].update(value=0.7, bound=0.9))


@proposal("refused", "record.unreadable")
def a_headline_that_is_none_of_its_scores(lab: Lab) -> None:
    rerecord(
        lab,
        lambda plain: plain.update(
            scores={"ridge": plain["score"] | {"value": 0.1, "low": 0.0}}
        ),
    )


@proposal("needs a person", "review.record-moved")
def a_score_outside_its_interval(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(value=0.99))


@proposal("refused", "record.misplaced")
def a_record_of_some_of_its_data_that_is_called_whole(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["request"].update(limit=3))


@proposal("refused", "record.unreadable")
def a_record_under_an_id_of_its_own(lab: Lab) -> None:
    """Score and id are changed, so that the record seems to have other inputs."""

    def change(plain: dict[str, Any]) -> None:
        plain["score"].update(value=0.95, low=0.94, high=0.96)
        plain["id"] = "0" * 64

    rerecord(lab, change)


@proposal("needs a person", "record.stale")
def a_record_of_data_that_the_proposal_does_not_have(lab: Lab) -> None:
    def change(plain: dict[str, Any]) -> None:
        plain["score"].update(value=0.95, low=0.94, high=0.96)
        plain["inputs"]["dataset"] = {
            "id": "lab",
            "version": 7,
            "spec_sha256": "0" * 64,
        }

    rerecord(lab, change)


@proposal("refused", "record.misplaced")
def a_record_of_inputs_of_another_model(lab: Lab) -> None:
    rerecord(
        lab, lambda plain: plain["inputs"].update(model={"id": "alexnet", "version": 1})
    )


@proposal("refused", "record.unreadable")
def a_record_of_a_schema_of_the_future(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain.update(schema_version=99))


@proposal("refused", "record.unreadable")
def a_record_in_other_digits(lab: Lab) -> None:
    path = lab.root / "results" / "records" / RIDGE / "pixels4.json"
    path.write_text(path.read_text().replace('"value": 0.5', '"value": -Infinity', 1))


@proposal("refused", "record.calibration")
def a_calibration_of_a_benchmark_that_does_not_exist(lab: Lab) -> None:
    path = calibrated(lab)
    plain = json.loads(path.read_text())
    path.unlink()
    write(
        lab,
        "results/calibration/ghost.json",
        json.dumps(plain | {"benchmark": "ghost"}),
    )


@proposal("needs a person", "review.code")
def metrics_that_a_record_no_longer_has(lab: Lab) -> None:
    rerecord(lab, lambda plain: plain["score"].update(value=1.0, low=None, high=None))
    merged(lab)
    write(lab, f"results/metrics/{RIDGE}.json", json.dumps({"pixels4": 0.99}))


# Lists and files


def listed(lab: Lab, file: str, **row: object) -> None:
    """A data set whose files are listed in a table, with one additional row."""
    line = json.dumps(
        {"name": "a.nc", "sha256": "0" * 64, "size": 1, "url": "https://example.org/x"}
        | row
    )
    write(lab, f"specs/datasets/{file}", line + "\n")
    table = {
        "table": file,
        "sha256": hashlib.sha256(f"{line}\n".encode()).hexdigest(),
        "rows": 1,
    }
    more = {
        "expectations": {"assembly": [{"check": "values_vary"}]},
        "reader": {"name": "netcdf"},
    }
    lab.spec(
        "datasets",
        "more",
        license="CC0-1.0",
        simulated=True,
        lists={"files": table},
        **more,
    )


@proposal("refused", "spec.list")
def a_table_whose_line_leads_out_of_its_folder(lab: Lab) -> None:
    listed(lab, "more.files.jsonl", name="../../src/module.py")


@proposal("refused", "spec.address")
def a_table_whose_line_is_a_file_of_the_reader(lab: Lab) -> None:
    listed(lab, "more.files.jsonl", url="file:///etc/passwd")


@proposal("refused")
def a_table_whose_template_leads_elsewhere(lab: Lab) -> None:
    listed(lab, "more.files.jsonl", url=None, at="x")
    path = lab.root / "specs" / "datasets" / "more.yaml"
    line = json.dumps({"name": "a.nc", "sha256": "0" * 64, "size": 1, "at": "x"}) + "\n"
    write(lab, "specs/datasets/more.files.jsonl", line)
    plain = yaml.safe_load(path.read_text().partition("\n")[2])
    table = {
        "table": "more.files.jsonl",
        "sha256": hashlib.sha256(line.encode()).hexdigest(),
        "rows": 1,
    }
    table["urls"] = {"x": "https://user:pw@example.org/{name}"}
    path.write_text(
        path.read_text().partition("\n")[0]
        + "\n"
        + yaml.safe_dump(plain | {"lists": {"files": table}})
    )


@proposal("refused", "spec.list")
def a_table_whose_line_is_there_twice(lab: Lab) -> None:
    listed(lab, "more.files.jsonl")
    path = lab.root / "specs" / "datasets" / "more.files.jsonl"
    text = path.read_text() * 2
    path.write_text(text)
    spec = lab.root / "specs" / "datasets" / "more.yaml"
    old = yaml.safe_load(spec.read_text().partition("\n")[2])["lists"]["files"]
    new = hashlib.sha256(text.encode()).hexdigest()
    spec.write_text(
        spec.read_text().replace(old["sha256"], new).replace("rows: 1", "rows: 2")
    )


@proposal("needs a person", "review.code")
def rules_that_hide_data_from_dvc(lab: Lab) -> None:
    write(lab, ".dvcignore", "data/*\n")


@proposal("refused", "review.nested")
def rules_that_hide_data_from_dvc_beside_them(lab: Lab) -> None:
    write(lab, "data/lab/.dvcignore", "*\n")


@proposal("needs a person", "review.code")
def a_pipeline_that_no_longer_depends_on_its_data(lab: Lab) -> None:
    stages(lab, "data/lab/responses.nc")
    merged(lab)
    stages(lab)


@proposal("needs a person", "review.code")
def other_parameters(lab: Lab) -> None:
    write(lab, "params.yaml", "suite: lab\nseed: 7\n")


@proposal("needs a person", "review.code")
def a_makefile_and_settings_of_the_site(lab: Lab) -> None:
    write(lab, "Makefile", f"all:\n\t{COMMAND}\n")
    write(lab, "mkdocs.yml", "plugins: [evil]\nhooks: [docs/evil.py]\n")
    write(lab, "docs/site.js", "fetch('https://example.org')\n")


# Honest proposals


@proposal("clean", "review.spec")
def a_corrected_title_and_description(lab: Lab) -> None:
    edited(
        lab,
        "benchmarks",
        RIDGE,
        title="Responses in V4, by ridge regression",
        description="As published.",
    )


@proposal("clean", "review.spec")
def a_new_suite_of_what_is_there(lab: Lab) -> None:
    lab.spec("suites", "small", benchmarks=[RIDGE], models=["pixels4", "noise"])


@proposal("clean", "review.spec")
def a_suite_that_gains_a_model(lab: Lab) -> None:
    lab.spec("models", "pixels8", builder={"name": "pixels", "size": 8})
    edited(lab, "suites", "lab", models=["pixels4", "pixels8"])


@proposal("clean", "review.spec")
def a_citation_with_its_reference(lab: Lab) -> None:
    write(lab, "specs/references.bib", BIBLIOGRAPHY)
    merged(lab)
    text = BIBLIOGRAPHY.replace(
        "\n@article{bob", "\n@article{cy2022,\n  title = {Three}\n}\n\n@article{bob"
    )
    write(lab, "specs/references.bib", text)
    edited(lab, "datasets", "lab", cite=["cy2022"])


@proposal("clean", "review.spec")
def a_data_set_with_pins_at_its_publisher(lab: Lab) -> None:
    pin = {
        "sha256": hashlib.sha256(b"x").hexdigest(),
        "size": 1,
        "url": "https://example.org/a.nc",
    }
    more = {
        "expectations": {"assembly": [{"check": "values_vary"}]},
        "reader": {"name": "netcdf"},
    }
    lab.spec(
        "datasets",
        "more",
        license="CC-BY-4.0",
        simulated=True,
        files={"a.nc": pin},
        **more,
    )


@proposal("clean", "review.spec")
def a_data_set_whose_files_stand_in_a_table(lab: Lab) -> None:
    listed(lab, "more.files.jsonl")


@proposal("clean", "review.record")
def a_model_with_its_record(lab: Lab) -> None:
    lab.spec("models", "pixels8", builder={"name": "pixels", "size": 8})
    keep(lab.open(), record("pixels8", RIDGE, 0.6))


@proposal("clean", "review.calibration")
def a_benchmark_with_its_calibration_and_pages(lab: Lab) -> None:
    calibrated(lab)
    write(
        lab,
        "docs/page.md",
        PAGE + '\n![curve](figures/curve.png "Coverage") and [more](page.md)\n',
    )


@proposal("clean", "review.spec")
def a_benchmark_of_a_new_version_with_stricter_gates(lab: Lab) -> None:
    edited(
        lab,
        "benchmarks",
        RIDGE,
        version=2,
        controls={
            "positive": ["pixels4"],
            "negative": ["noise"],
            "floor_at_most": 0.05,
        },
    )


@proposal("clean", "review.pointer")
def a_data_set_with_a_benchmark_of_it(lab: Lab) -> None:
    a_data_set_with_its_attribution(lab)
    lab.benchmark("more.V4-ridge", dataset="more")


@proposal("clean", "review.spec")
def more_expectations_of_a_data_set(lab: Lab) -> None:
    path = lab.root / "specs" / "datasets" / "lab.yaml"
    held = yaml.safe_load(path.read_text().partition("\n")[2])["expectations"]
    held["assembly"].append({"check": "values_finite"})
    edited(lab, "datasets", "lab", expectations=held)


@proposal("clean", "review.spec")
def a_source_and_steps_that_say_more(lab: Lab) -> None:
    edited(
        lab,
        "datasets",
        "lab",
        source="https://example.org/lab",
        species="macaque",
        tags=["vision"],
    )
