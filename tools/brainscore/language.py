"""Brain-Score's language benchmarks as specs of this repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tools.brainscore.upstream import benchmarks

Spec = dict[str, Any]
Row = Mapping[str, str]

BUCKET = "https://brainscore-storage.s3.amazonaws.com/brainscore-language"
# The suites that Brain-Score's package contains, byte for byte; sizes and hashes are in suites.csv.
SUITES = (
    "https://raw.githubusercontent.com/brain-score/language/0e0bb4a2d8df5d3c30fe26ec4528f27a188e1cdc/"
    "brainscore_language/benchmarks/syntaxgym/suites/syntaxgym-2020"
)
ONE_NEUROID = "Refused: the data are means over a language network; one value per sentence gives no dissimilarity matrix."

# SHA-1 of each assembly; its title; its references; the coordinate of passages; the coordinate of subjects.
RECORDED: Mapping[str, tuple[str, str, tuple[str, ...], str, str]] = {
    "Pereira2018.language": ("f8434b4022f5b2c862f0ff2854d5b3f5f2a7fb96",
        "fMRI of people reading passages", ("pereira2018",), "passage_label", "subject"),
    "Blank2014.fROI": ("af1e868821b897cb1684e4c8dcd33977121ef552",
        "fMRI of people listening to natural stories", ("blank2014",), "story", "subject_id"),
    "Fedorenko2016.language": ("2966b6d78e972a72068aa6907377483f427e8d9a",
        "Intracranial recordings of people reading sentences word by word",
        ("fedorenko2016",), "sentence_id", "subject_UID"),
    "Tuckute2024.language": ("5c8fc7f3e24cc1af5f5296459377b638b6492641",
        "fMRI of people reading diverse sentences, averaged over the language network",
        ("tuckute2024",), "stimulus_id", "subject"),
    "Futrell2018": ("381ccc8038fbdb31235b5f3e1d350f359b5e287f",
        "Reading times of people reading natural stories word by word", ("futrell2018",), "", "subject_id"),
}  # fmt: skip
# Suites that are pinned; their specs state expectations of the content.
READ = {"syntaxgym.subordination_src-src"}
HIERARCHY: Mapping[str, str] = {
    "neural_language": "average_language",
    "behavior_language": "average_language",
    "Pereira2018-linear": "neural_language",
    "Pereira2018-ridge": "neural_language",
    "SyntaxGym": "engineering_language",
}


def specs() -> Iterator[tuple[str, str, Spec]]:
    """Kind, registry key and content of each spec: data sets, benchmarks, the suite."""
    rows = benchmarks("language.csv")
    for id in dict.fromkeys(row["dataset"] for row in rows.values()):
        yield "dataset", id, _dataset(id)
    for key, row in rows.items():
        yield "benchmark", key, _benchmark(key, row)
    yield "suite", "brainscore.language", {
        "id": "brainscore.language", "version": 1, "title": "Brain-Score language: all benchmarks in its registry",
        "description": "Groups weigh equally: a group's score is the mean of its members, as on Brain-Score's board.",
        "hierarchy": dict(HIERARCHY), "cite": ["schrimpf2021"], "benchmarks": list(rows),
    }  # fmt: skip


def _dataset(id: str) -> Spec:
    spec: Spec = {"id": id, "version": 1}
    if id in RECORDED:
        sha1, what, cite, _, subject = RECORDED[id]
        name = f"assy_{id.replace('.', '_')}.nc"
        behaviour = id == "Futrell2018"
        stated = {"url": f"{BUCKET}/{name}", "sha1": sha1}
        dims: dict[str, str] = {"subject": "neuroid"} if behaviour else {}
        steps: list[Spec] = (
            [{"step": "rename", "dims": dims, "coords": {}}] if dims else []
        )
        if behaviour:
            steps.append(
                {
                    "step": "label",
                    "dim": "neuroid",
                    "coord": "neuroid_id",
                    "of": [subject],
                }
            )
            steps.append(
                {"step": "label", "dim": "presentation", "coord": "corpus", "value": id}
            )
        elif subject != "subject":
            steps.append({"step": "rename", "coords": {subject: "subject"}})
        text = "word" if behaviour else "stimulus"
        reader: Spec = {"name": "brainio", "assembly": name, "texts": text}
        return spec | {
            "title": f"{what}: {id} (Brain-Score package)", "license": "LicenseRef-unknown",
            "license_note": "Brain-Score's registry states no licence; ask the authors.", "access": "public",
            "species": "Homo sapiens", "modality": "behaviour" if behaviour else "fmri", "stimuli": "text",
            "cite": [*cite, "schrimpf2021"], "downloads": {name: stated},
            "reader": reader | ({"prepare": steps} if steps else {}), "unavailable": _not_here(id),
        }  # fmt: skip
    if id == "wikitext-2":
        return spec | {
            "title": "WikiText-2, test split: Wikipedia articles", "license": "CC-BY-SA-3.0", "stimuli": "text",
            "cite": ["merity2017"], "reader": {"name": "next_words"}, "unavailable": _by_hand(id, "wiki.test.raw"),
            "access_steps": ["Obtain wiki.test.raw from WikiText-2 (raw) as published by its authors."],
        }  # fmt: skip
    suite = id.removeprefix("syntaxgym.")
    spec |= {
        "title": f"SyntaxGym suite {suite}",
        "license": "MIT",
        "stimuli": "text",
        "cite": ["gauthier2020", "hu2020"],
    }
    stated = benchmarks("suites.csv", "suite")[suite]
    file = {
        f"{suite}.json": {
            "url": f"{SUITES}/{suite}.json",
            "size": int(stated["size"]),
            "sha256": stated["sha256"],
        }
    }
    if id in READ:
        return spec | {
            "files": file, "reader": {"name": "syntax_suite"},
            "expectations": {"stimuli": [
                {"check": "row_count", "count": 460}, {"check": "unique", "column": "stimulus_id"},
                {"check": "equal_set", "column": "region", "values": ["1", "2", "3", "4", "5"]},
            ]},
        }  # fmt: skip
    return spec | {
        "downloads": file,
        "reader": {"name": "syntax_suite"},
        "unavailable": _not_here(id),
    }


def _not_here(id: str) -> str:
    return f"Not downloaded yet: `neuroledger import brainscore {id}` downloads and pins its file."


def _by_hand(id: str, name: str) -> str:
    return f"Not downloaded yet: {name} has no published checksum; pin a download with `neuroledger pin {id} --from FOLDER`."


def _benchmark(key: str, row: Row) -> Spec:
    dataset = row["dataset"]
    parent = row["parent"]
    spec: Spec = {"id": key, "version": int(row["version"])}
    cite = RECORDED[dataset][2] if dataset in RECORDED else ()
    if row["metric"] == "syntaxgym":
        content: Spec = {
            "title": f"Syntactic generalisation: {dataset.removeprefix('syntaxgym.')}", "parent": parent, "dataset": dataset,
            "paradigm": {"name": "reading", "give": "reading_times", "passage": "sentence", "unread": 0.0},
            "metric": {"name": "formula", "formulas": [], "aggregate": [
                {"over": "formula", "with": "min"}, {"over": "item", "with": "mean"}]},
            "normalise": "none",
        }  # fmt: skip
        cite = ("gauthier2020", "hu2020")
    elif row["metric"] == "accuracy":
        content = {
            "title": "Next-word prediction in Wikipedia articles", "parent": parent, "dataset": dataset,
            "paradigm": {"name": "reading", "give": "next_word"}, "metric": "accuracy", "normalise": "none",
        }  # fmt: skip
        cite = ("merity2017",)
    elif row["metric"] == "pearsonr":
        content = {
            "title": "Reading times in natural stories, predicted from surprisal", "parent": parent, "dataset": dataset,
            "paradigm": {"name": "reading", "give": "reading_times", "passage": "corpus", "average": "neuroid",
                         "score": {"word_within_sentence_id": {"above": 1}}, "ceiling_from": "all"},
            "metric": "reading_correlation", "ceiling": "reader_consistency",
            "normalise": {"formula": "ratio", "clip": True},
        }  # fmt: skip
    else:
        content = _recorded(key, row)
    content["compat"] = "brainscore"
    content["cite"] = [*cite, "schrimpf2021"]
    content["tags"] = ["brainscore", "language"]
    if row["ceiling"]:
        content["notes"] = [f"Ceiling in Brain-Score's tests: {row['ceiling']}."]
    return spec | content


def _recorded(key: str, row: Row) -> Spec:
    dataset = row["dataset"]
    _, what, _, passage, _ = RECORDED[dataset]
    splits: Spec = {"stratify": None}
    estimator: Spec = {"name": "linear"}
    metric: Any = {"name": "linear_predictivity_cv", "splits": splits}
    if row["metric"] == "ridge":
        estimator = {
            "name": "ridge_cv",
            "alphas": [float(f"1e{power}") for power in range(-3, 4)],
        }
        if dataset != "Tuckute2024.language":
            groups = "story" if dataset.startswith("Pereira2018") else passage
            splits = {"name": "group", "groups": groups, "seed": 1234, "train": None}
            splits["folds"] = 8 if dataset == "Blank2014.fROI" else 10
        metric = {"name": "ridgecv", "estimator": estimator, "splits": splits}
    elif row["metric"] in {"rdm", "cka"}:
        metric = (
            {"name": "cka_cv", "unbiased": False, "splits": splits}
            if row["metric"] == "cka"
            else "rdm_cv"
        )
    content: Spec = {
        "title": f"{what}: {key.split('-', 1)[1].replace('-', ' ')}", "parent": row["parent"], "dataset": dataset,
        "paradigm": {"name": "reading", "give": "responses", "region": "language_system", "passage": passage},
        "metric": metric,
    }  # fmt: skip
    if dataset.startswith("Pereira2018"):
        content["select"] = {"experiment": key.split(".")[1].split("-")[0]}
    if dataset == "Tuckute2024.language":
        del content["paradigm"]["passage"]
        if row["metric"] == "rdm":
            content["unavailable"] = ONE_NEUROID
        return content | {"normalise": "none"}
    ceiling = {
        "name": "extrapolated_predictivity",
        "estimator": estimator,
        "splits": splits,
    }
    return content | {
        "ceiling": ceiling,
        "normalise": {"formula": "ratio", "clip": True},
    }
