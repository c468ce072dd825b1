"""Honest proposals of every kind: each is clean, or needs a person for the reason that its code states."""

from __future__ import annotations

from typing import Any

import yaml

from tests.engine.lab import Lab
from tests.hostile.proposals.corpus import (
    PAGE,
    PROPOSALS,
    RIDGE,
    Proposal,
    a_data_set_with_its_attribution,
    embedded,
    git,
    new_key,
    point,
    signed,
    signed_with,
    write,
)
from tests.hostile.proposals.guises import BIBLIOGRAPHY, edited, merged
from tests.report.ledger import keep, record

PUBLISHED: dict[str, Any] = {
    "url": "https://example.org/a.nc",
    "size": 1,
    "sha256": "0" * 64,
}
GATES: dict[str, Any] = {
    "expectations": {"assembly": [{"check": "values_vary"}]},
    "reader": {"name": "netcdf"},
}
CONV: dict[str, Any] = {"in_channels": 3, "out_channels": 2, "kernel_size": 3}
EDITOR = "# yaml-language-server"

# New specs: name → kind, fields, and the code that a review reports.
NEW_SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "a_metric": (
        "metrics",
        {"compare": {"name": "regression", "estimator": {"name": "ridge"}}, "scale": "correlation",
         "splits": {"folds": 5}, "aggregate": [{"over": "neuroid", "with": "median"}, {"over": "split", "with": "mean"}]},
    ),
    "a_ceiling": (
        "ceilings",
        {"compare": {"name": "internal_consistency"}, "scale": "reliability",
         "aggregate": [{"over": "neuroid", "with": "median"}, {"over": "split", "with": "mean"}]},
    ),
    "a_network_of_one_layer": (
        "models",
        {"builder": {"name": "torch", "module": "torch.nn:Conv2d", "arguments": CONV}, "regions": {"V4": "output"}},
    ),
    "a_network_with_published_weights": (
        "models",
        {"builder": {"name": "torch", "module": "torch.nn:Conv2d", "arguments": CONV},
         "weights": {"w.safetensors": PUBLISHED | {"url": "https://example.org/w.safetensors"}}, "license": "MIT"},
    ),
    "a_forest_as_a_decoder": (
        "models", {"builder": {"name": "sklearn_decoder", "path": "sklearn.ensemble.RandomForestClassifier"}},
    ),
    "a_network_of_the_project": (
        "models",
        {"builder": {"name": "torch_decoder",
                     "path": "neuroledger.families.decoding.models.convolutional_decoders.eegnet",
                     "parameters": {"depth": 3}}},
    ),
    "a_model_with_what_it_was_trained_on": (
        "models", {"builder": {"name": "pixels", "size": 8}, "pretraining": ["ImageNet"], "notes": ["Small."]},
    ),
    "a_model_that_is_described_only": ("models", {"unavailable": "Its weights are not published."}),
    "a_data_set_at_its_publisher": ("datasets", {"license": "CC-BY-4.0", "files": {"a.nc": PUBLISHED}, **GATES}),
    "a_data_set_that_cannot_be_had": ("datasets", {"license": "LicenseRef-unstated", "unavailable": "Ask its authors."}),
    "a_private_data_set": (
        "datasets",
        {"license": "LicenseRef-private", "access": "private", "access_steps": ["Ask the laboratory."],
         "files": {"a.nc": {"size": 1, "sha256": "0" * 64}}, **GATES},
    ),
    "a_suite_with_groups": ("suites", {"benchmarks": [RIDGE], "hierarchy": {"V4": "vision"}, "models": ["pixels4"]}),
    "a_suite_of_suites": ("suites", {"includes": ["lab"]}),
    "a_suite_with_published_figures": (
        "suites",
        {"benchmarks": [RIDGE], "published": [{"model": "a net", "value": 0.5, "source": "https://example.org/paper"}]},
    ),
}  # fmt: skip


def a_spec_without_the_comment_for_editors(lab: Lab) -> None:
    path = lab.benchmark("lab.V4-pls", metric="pls")
    path.write_text(path.read_text().partition("\n")[2])


def a_benchmark_that_cannot_be_scored_yet(lab: Lab) -> None:
    lab.benchmark(
        "lab.V4-pls",
        metric="pls",
        unavailable="Its recordings are under embargo until 2027.",
    )


def a_benchmark_of_every_field(lab: Lab) -> None:
    lab.benchmark(
        "lab.V4-pls",
        metric="pls",
        tags=["vision"],
        notes=["A note."],
        generalise=["stimulus"],
    )


def a_new_page_of_prose(lab: Lab) -> None:
    write(
        lab,
        "docs/recording.md",
        "# How we recorded\n\nWith *arrays* of 96 electrodes, see [a page](page.md).\n",
    )


def a_table_and_a_formula_in_a_page(lab: Lab) -> None:
    write(
        lab,
        "docs/page.md",
        PAGE
        + "\n| area | r |\n|---|--:|\n| V4 | 0.5 |\n\nThe ceiling is $r^2/\\rho$.\n",
    )


def an_entry_in_the_change_log(lab: Lab) -> None:
    write(lab, "CHANGELOG.md", "# Changes\n\n* A benchmark of V4.\n")


def a_corrected_word_in_the_readme(lab: Lab) -> None:
    write(lab, "README.md", "# A laboratroy\n")
    merged(lab)
    write(lab, "README.md", "# A laboratory\n")


def a_reference_alone(lab: Lab) -> None:
    write(lab, "specs/references.bib", BIBLIOGRAPHY)
    merged(lab)
    write(
        lab,
        "specs/references.bib",
        BIBLIOGRAPHY + "\n@article{cy2022,\n  title = {Three}\n}\n",
    )


def a_new_version_of_a_data_set(lab: Lab) -> None:
    responses = lab.data / "responses.nc"
    responses.write_bytes(responses.read_bytes() + b"more")
    (lab.data / ".gitignore").unlink()
    pins = embedded(lab)
    for pinned in sorted(lab.data / name for name in pins):
        point(lab, pinned)
    edited(lab, "datasets", "lab", version=2, files=pins)


def records_of_two_models_with_a_signature(lab: Lab) -> None:
    lab.spec("models", "pixels8", builder={"name": "pixels", "size": 8})
    keep(lab.open(), record("pixels8", RIDGE, 0.6), record("pixels4", RIDGE, 0.5))
    signed(lab, "pixels8", "pixels4")


def a_signature_of_new_numbers_for_that_of_the_old_ones(lab: Lab) -> None:
    """One key signs again, and what it signs replaces its earlier signatures, of which one is of other numbers."""
    with new_key() as key:
        signed_with(lab, key, "pixels4", "noise")
        keep(lab.open(), record("pixels4", RIDGE, 0.6))
        merged(lab)
        signed_with(lab, key, "pixels4")


def a_licence_beside_the_data(lab: Lab) -> None:
    write(lab, "data/lab/LICENSE", "Creative Commons Zero\n")


def more_names_in_an_attribution(lab: Lab) -> None:
    a_data_set_with_its_attribution(lab)
    merged(lab)
    write(
        lab,
        "data/more/ATTRIBUTION.md",
        "# Responses\n\nBy A. Author, CC0-1.0.\n\nAnd B. Author.\n",
    )


def a_model_that_is_withdrawn(lab: Lab) -> None:
    lab.spec("models", "pixels8", builder={"name": "pixels", "size": 8})
    merged(lab)
    (lab.root / "specs" / "models" / "pixels8.yaml").unlink()


def a_record_that_is_withdrawn(lab: Lab) -> None:
    (lab.root / "results" / "records" / RIDGE / "pixels4.json").unlink()


def a_page_that_shows_commands(lab: Lab) -> None:
    write(lab, "docs/how.md", "# How to score\n\n```sh\nneuroledger run\n```\n")


def a_licence_that_was_stated_wrongly(lab: Lab) -> None:
    edited(lab, "datasets", "lab", license="CC-BY-4.0")


def a_metric_in_code_with_its_spec(lab: Lab) -> None:
    write(lab, "src/neuroledger/families/alignment/metrics/mine.py", "x = 1\n")


def another_suite_by_default(lab: Lab) -> None:
    write(lab, "params.yaml", "suite: lab\nseed: 1\n")


def an_expectation_that_was_too_strict(lab: Lab) -> None:
    path = lab.root / "specs" / "datasets" / "lab.yaml"
    held = yaml.safe_load(path.read_text().partition("\n")[2])["expectations"]
    edited(lab, "datasets", "lab", version=2, expectations=held | {"stimuli": []})


def a_correction_after_a_review(lab: Lab) -> None:
    lab.benchmark("lab.V4-pls", metric="pls", title="A typng error")
    git(lab.root, "add", "-A")
    git(lab.root, "commit", "-m", "a benchmark")
    lab.benchmark("lab.V4-pls", metric="pls", title="A typing error")


CHANGES = (
    ("clean", "spec.schema-line", a_spec_without_the_comment_for_editors),
    ("clean", "review.spec", a_benchmark_that_cannot_be_scored_yet),
    ("clean", "review.spec", a_benchmark_of_every_field),
    ("clean", "review.spec", a_correction_after_a_review),
    ("clean", "review.spec", a_reference_alone),
    ("clean", "review.pointer", a_new_version_of_a_data_set),
    ("clean", "review.page", a_new_page_of_prose),
    ("clean", "review.page", a_table_and_a_formula_in_a_page),
    ("clean", "review.page", a_page_that_shows_commands),
    ("clean", "review.page", an_entry_in_the_change_log),
    ("clean", "review.page", a_corrected_word_in_the_readme),
    ("clean", "review.page", more_names_in_an_attribution),
    ("clean", "review.signature", records_of_two_models_with_a_signature),
    ("clean", "review.signature", a_signature_of_new_numbers_for_that_of_the_old_ones),
    ("needs a person", "review.code", a_licence_beside_the_data),
    ("needs a person", "review.removed", a_model_that_is_withdrawn),
    ("needs a person", "review.removed", a_record_that_is_withdrawn),
    ("needs a person", "review.weakened", a_licence_that_was_stated_wrongly),
    ("needs a person", "review.code", a_metric_in_code_with_its_spec),
    ("needs a person", "review.code", another_suite_by_default),
    ("needs a person", "review.waived", an_expectation_that_was_too_strict),
)


def _new_spec(name: str, kind: str, fields: dict[str, Any]) -> Proposal:
    return Proposal(
        name, lambda lab: void(lab.spec(kind, name, **fields)), "clean", "review.spec"
    )


def void(_: object) -> None:
    """Nothing, from what a change returns."""


HONEST = [
    Proposal(change.__name__, change, verdict, code)
    for verdict, code, change in CHANGES
]
HONEST += [_new_spec(name, kind, fields) for name, (kind, fields) in NEW_SPECS.items()]
PROPOSALS.extend(HONEST)
