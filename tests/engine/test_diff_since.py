"""Every finding of a review, with path, severity, message and fix, on trees in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from neuroledger.data.gate.validation import ValidationReport, identity, seal
from neuroledger.engine import diff_since
from neuroledger.engine.diff_since import (
    LONGEST_PAGE,
    ONLY_SAYS,
    Proposal,
    Review,
    record_in,
)
from neuroledger.engine.record import Record
from neuroledger.engine.records.refresh import refreshed
from neuroledger.errors import Finding
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.document import parse
from neuroledger.spec.kinds import BenchmarkSpec, DatasetSpec
from neuroledger.spec.load import spec_of
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from neuroledger.store.git_trees import FILE, LINK, MODULE, MOST_BYTES, Entry, Tree
from tests.report.ledger import CONTROLS, record, with_score
from tests.varying import of_items

BYTES = b"four"
MD5 = hashlib.md5(BYTES).hexdigest()
STORED = f".dvcstore/files/md5/{MD5[:2]}/{MD5[2:]}"
BENCHMARK, DATASET = "specs/benchmarks/lab.V4.yaml", "specs/datasets/lab.yaml"
MODEL, SUITE, METRIC = (
    "specs/models/ant.yaml",
    "specs/suites/lab.yaml",
    "specs/metrics/own.yaml",
)
POINTER, RECORD = "data/lab/r.nc.dvc", "results/records/lab.V4/ant.json"
REPORT, CALIBRATION = "results/validation/lab.json", "results/calibration/lab.V4.json"
CONFIG = """['remote "embedded"']
    url = ../.dvcstore
['remote "far"']
    url = s3://bucket/lab
"""

Content = str | bytes | Entry | None
Findings = list[tuple[str, str, str, str, str]]


def spec(id: str, **fields: Any) -> str:
    plain = {"id": id, "version": 1, "title": f"The {id}"} | fields
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in plain.items())


def dataset(id: str = "lab", **fields: Any) -> str:
    pin = {"dvc": True, "size": 4, "sha256": hashlib.sha256(BYTES).hexdigest()}
    checks = {
        "stimuli": [{"check": "unique", "column": "stimulus_id"}],
        "assembly": [{"check": "values_vary"}, {"check": "repetitions", "count": 2}],
    }
    known = {
        "license": "CC0-1.0",
        "reader": {"name": "netcdf"},
        "files": {"r.nc": pin},
        "expectations": checks,
    }
    return spec(id, **known | fields)


def benchmark(id: str = "lab.V4", **fields: Any) -> str:
    known = {
        "parent": "V4", "dataset": "lab", "paradigm": {"name": "recording", "region": "V4"}, "metric": "ridge",
        "controls": {"positive": ["pixels4"], "negative": ["noise"]},
    }  # fmt: skip
    return spec(id, **known | fields)


def model(**fields: Any) -> str:
    return spec("ant", **{"builder": {"name": "pixels", "size": 4}} | fields)


def suite(**fields: Any) -> str:
    return spec("lab", **{"benchmarks": ["lab.V4"], "models": ["ant"]} | fields)


def metric(**fields: Any) -> str:
    return spec(
        "own", **{"compare": {"name": "ridge"}, "scale": "correlation"} | fields
    )


def pointer(**fields: Any) -> str:
    return yaml.safe_dump(
        {"outs": [{"md5": MD5, "size": 4, "hash": "md5", "path": "r.nc"} | fields]}
    )


def record_text(value: float | None = 0.5, model: str = "ant", **fields: Any) -> str:
    return json.dumps(record(model, "lab.V4", value, **fields).model_dump(mode="json"))


START: dict[str, Content] = {
    ".dvc/config": CONFIG,
    STORED: BYTES,
    POINTER: pointer(),
    DATASET: dataset(),
    BENCHMARK: benchmark(),
    MODEL: model(),
    SUITE: suite(),
    METRIC: metric(),
    RECORD: record_text(),
    "docs/page.md": "# Page\n",
    "src/module.py": "x = 1\n",
}


def tree(files: Mapping[str, Content]) -> Tree:
    entries: dict[str, Entry] = {}
    contents: dict[str, bytes] = {}
    for path, value in files.items():
        if isinstance(value, Entry):
            entries[path] = value
        elif value is not None:
            content = value.encode() if isinstance(value, str) else value
            id = hashlib.sha1(content).hexdigest()
            entries[path], contents[id] = Entry(FILE, id, len(content)), content
    return Tree(Path("no-folder"), entries, contents)


def findings_of(
    change: Mapping[str, Content], *, before: Mapping[str, Content] | None = None
) -> Findings:
    """Return the findings on a proposal that changes these paths: severity, code, place, what, fix."""
    start = START | dict(before or {})
    result = Proposal(tree(start), tree(start | dict(change))).findings()
    return [
        (item.severity, item.code, item.where, item.what, item.fix) for item in result
    ]


def codes(
    change: Mapping[str, Content], *, before: Mapping[str, Content] | None = None
) -> list[tuple[str, str]]:
    return [
        (severity, code) for severity, code, *_ in findings_of(change, before=before)
    ]


CODE = "read it before you run anything of this proposal"
REMOTE = "store large files at a URL or on S3"


def test_the_most_severe_finding_is_the_verdict() -> None:
    note, warning, error = (
        Finding("review.code", severity, "a", "b")
        for severity in ("note", "warning", "error")
    )
    assert Review("c", ()).verdict == "clean"
    assert Review("c", (note,)).verdict == "clean"
    assert Review("c", (warning, note)).verdict == "needs a person"
    assert Review("c", (note, error, warning)).verdict == "refused"


def test_paths_are_added_changed_or_removed_in_their_order() -> None:
    proposal = Proposal(
        tree({"b": "1", "c": "1", "d": "1"}), tree({"d": "1", "c": "2", "a": "1"})
    )
    assert list(proposal.changed.items()) == [
        ("a", "added"),
        ("b", "removed"),
        ("c", "changed"),
    ]


def test_a_change_of_mode_alone_is_reported_as_code() -> None:
    base = tree(START)
    entries = {
        **base.entries,
        "docs/page.md": replace(base.entries["docs/page.md"], mode="100755"),
    }
    result = Proposal(base, replace(base, entries=entries)).findings()
    assert [
        (item.severity, item.code, item.where, item.what, item.fix) for item in result
    ] == [
        (
            "warning",
            "review.code",
            "docs/page.md",
            "changed: the file is executable",
            "",
        )
    ]


# How much


def test_five_thousand_paths_are_reviewed_and_one_more_is_not() -> None:
    many: dict[str, Content] = {f"docs/{number}.md": "a" for number in range(5000)}
    assert {code for _, code in codes(many)} == {"review.page"}
    words = "5,001 paths with 0 MB changed; at most 5,000 with 100 MB can be reviewed at once"
    assert findings_of(many | {"docs/last.md": "b"}) == [
        ("error", "review.size", "proposal", words, "divide the proposal")
    ]


def test_a_hundred_megabytes_are_reviewed_and_one_byte_more_is_not() -> None:
    def big(size: int) -> dict[str, Content]:
        return {"src/a": Entry(FILE, "a", 50_000_000), "src/b": Entry(FILE, "b", size)}

    findings = findings_of(big(50_000_000))
    assert (
        "error",
        "review.size",
        "src/a",
        "50.0 MB; at most 5 MB per file are allowed",
        REMOTE,
    ) in findings
    assert "proposal" not in {where for _, _, where, *_ in findings}
    words = (
        "2 paths with 100 MB changed; at most 5,000 with 100 MB can be reviewed at once"
    )
    assert findings_of(big(50_000_001)) == [
        ("error", "review.size", "proposal", words, "divide the proposal")
    ]
    gone = dict.fromkeys(big(50_000_001))
    assert "proposal" not in {
        where for _, _, where, *_ in findings_of(gone, before=big(50_000_001))
    }


def test_a_file_of_five_megabytes_is_allowed_and_one_byte_more_is_not() -> None:
    content = b"a" * MOST_BYTES
    assert codes({"src/a": content}) == [("warning", "review.code")]
    assert findings_of({"src/a": content + b"a"}) == [
        (
            "error",
            "review.size",
            "src/a",
            "5.0 MB; at most 5 MB per file are allowed",
            REMOTE,
        )
    ]


def test_an_embedded_remote_of_fifty_megabytes_is_allowed_and_one_byte_more_is_not() -> (
    None
):
    full: dict[str, Content] = {
        f".dvcstore/files/md5/aa/{number}": Entry(FILE, f"{number}", 5_000_000)
        for number in range(10)
    }
    less = {
        ".dvcstore/files/md5/aa/9": Entry(FILE, "9", 4_999_996)
    }  # and four bytes of the start
    again = {POINTER: None, DATASET: dataset(reader={"name": "csv"})}
    assert "review.size" not in [
        code for _, code in codes({STORED: None}, before=full | less | again)
    ]
    over = full | {".dvcstore/files/md5/aa/x": b"x"}
    words = "the embedded remote has 50 MB; at most 50 MB are allowed"
    finding = ("error", "review.size", ".dvcstore", words, REMOTE)
    assert finding not in findings_of({"docs/page.md": "# Other\n"}, before=over)
    assert finding in findings_of({".dvcstore/files/md5/aa/y": b"y"}, before=over)
    exact = full | less | {".dvcstore/files/md5/aa/x": Entry(FILE, "x", 0)}
    assert finding not in findings_of({".dvcstore/files/md5/aa/y": b""}, before=exact)


# What a path may not be


@pytest.mark.parametrize(
    "path", ["docs/a\u202eb.md", "docs/a\ufffd.md", "docs/a\x07.md"]
)
def test_hidden_characters_are_reported_even_in_removed_paths(path: str) -> None:
    words = "the path contains an invisible or control character"
    finding = ("error", "review.hidden-character", path, words, "")
    assert findings_of({path: "a"}) == [finding]
    assert findings_of({path: None}, before={path: "a"}) == [finding]


@pytest.mark.parametrize(
    ("mode", "words"),
    [(LINK, "the path is a link"), (MODULE, "the path is a submodule")],
)
def test_links_and_submodules_are_refused(mode: str, words: str) -> None:
    assert findings_of({"docs/other": Entry(mode, "a", 0)}) == [
        ("error", "review.link", "docs/other", words, "commit the file itself")
    ]


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("docs/dvc.yaml", "dvc.yaml"), ("docs/dvc.lock", "dvc.lock"), ("docs/.dvcignore", ".dvcignore"),
        ("docs/.gitattributes", ".gitattributes"), (".gitmodules", ".gitmodules"), ("docs/.dvc/config", ".dvc"),
        (".git/config", ".git"), (".dvc/tmp/x", ".dvc"), (".dvc", ".dvc"), (".dvc/.gitmodules", ".dvc"),
    ],
)  # fmt: skip
def test_files_that_configure_git_or_dvc_from_inside_are_refused(
    path: str, part: str
) -> None:
    words = f"{part} configures git or DVC from inside the repository"
    assert ("error", "review.nested", path, words, "remove it") in findings_of(
        {path: "a"}
    )


@pytest.mark.parametrize(
    "path",
    [
        ".gitattributes",
        ".gitignore",
        ".dvcignore",
        "dvc.yaml",
        ".dvc/config",
        "docs/.gitignore",
    ],
)
def test_settings_in_their_usual_place_need_a_person(path: str) -> None:
    old = START.get(path)
    before = f"{old}# more\n" if isinstance(old, str) else "a: 1\n"
    assert findings_of({path: before}) == [
        (
            "warning",
            "review.code",
            path,
            f"{'changed' if old else 'added'}: code or settings",
            CODE,
        )
    ]


@pytest.mark.parametrize("path", ["r.dvc", "specs/data/r.dvc"])
def test_pointers_outside_data_are_refused(path: str) -> None:
    assert (
        "error",
        "review.pointer-wrong",
        path,
        "a DVC pointer outside data/",
        "remove it",
    ) in findings_of({path: "a: 1\n"})


def test_the_longest_names_and_paths() -> None:
    finding = ("error", "review.path")
    assert finding not in codes({"src/" + "a" * 240: "a"})
    assert finding in codes({"src/" + "a" * 241: "a"})
    assert finding in codes({"src/" + "ä" * 121: "a"})  # bytes count, not characters
    deep = "/".join(["a" * 99] * 10)
    assert len(deep) == 999 and finding not in codes({deep + "b": "a"})
    (findings,) = findings_of({deep + "bb": "a"})
    assert findings == (
        "error",
        "review.path",
        deep + "bb",
        "not a valid file name on every system",
        "rename it",
    )


@pytest.mark.parametrize(
    "name",
    [
        "con",
        "AUX.txt",
        "nul",
        "prn.a.b",
        "com1",
        "lpt9.md",
        "a:b",
        "a<b",
        "what?",
        "a\\b",
        "end.",
        "end ",
        "GIT~1",
        ".GIT",
    ],
)
def test_file_names_that_are_invalid_on_some_systems_are_refused(name: str) -> None:
    findings = (
        "error",
        "review.path",
        f"src/{name}",
        "not a valid file name on every system",
        "rename it",
    )
    assert findings in findings_of({f"src/{name}": "a"})
    assert ("error", "review.path") in codes({f"src/{name}/a": "a"})


@pytest.mark.parametrize("name", ["constant", "com", "lpt.md", "a.b", "git~x", "x.git"])
def test_file_names_that_resemble_invalid_ones_are_allowed(name: str) -> None:
    assert codes({f"src/{name}": "a"}) == [("warning", "review.code")]


def test_prepared_windows_are_refused_only_below_data() -> None:
    words = "prepared windows must be computed from pinned files, not contributed"
    assert findings_of({"data/lab/prepared/a.md": "a"}) == [
        ("error", "review.prepared", "data/lab/prepared/a.md", words, "remove it")
    ]
    assert ("error", "review.prepared") not in codes(
        {"docs/prepared/a.md": "a"}
    ) + codes({"src/prepared": "a"})


def test_hidden_characters_are_reported_with_line_and_column() -> None:
    content = "# Page\r\n\tplain\tä\nab\u200bc\u202e\n\u200b"
    result = [
        *Proposal(tree(START), tree(START | {"docs/page.md": content})).findings()
    ]
    words = "the character U+200B hides or reorders the displayed text"
    assert result == [
        Finding(
            "review.hidden-character", "error", "docs/page.md", words, "remove it", 3, 3
        )
    ]
    assert codes({"docs/page.md": "\ufeff# Page\r\n\tä\n"}) == [("note", "review.page")]
    assert codes({"docs/page.md": "# \ufeffPage\n"}) == [
        ("error", "review.hidden-character")
    ]
    (findings,) = findings_of({"docs/page.md": b"\xff"})
    assert findings[3:] == ("not UTF-8 text", "commit text, or let DVC track it")


def test_escaped_hidden_characters_are_reported_in_yaml_and_json() -> None:
    output = "'a\\u202eb'"
    words = f"an escaped character hides or reorders the displayed text: {output}"
    for path, text in {
        "docs/a.yaml": 'a: "a\\u202eb"\n',
        "docs/a.json": '{"a": {"b": ["x", "a\\u202eb"]}}',
        "docs/a.jsonl": '{"a": "x"}\n{"a\\u202eb": 1}\n',
    }.items():
        assert (
            "error",
            "review.hidden-character",
            path,
            words,
            "remove it",
        ) in findings_of({path: text})
    assert (
        codes({"docs/a.json": '{"a": "x\\n\\t\\r"}', "docs/a.txt": '"a\\u202eb"'})
        == [("warning", "review.code")] * 2
    )
    long = '{"a": "' + "b" * 100 + '\\u202e"}'
    (findings,) = [
        item
        for item in findings_of({"docs/a.json": long})
        if item[1] == "review.hidden-character"
    ]
    assert findings[3].endswith(repr("b" * 60))


def test_secrets_in_addresses_are_reported_in_data_pages_and_settings() -> None:
    address = "https://user:word@example.org/a"
    words = "the address at example.org contains a user name or password, which everybody could read"
    for path, text in {
        "docs/a.yaml": f"a: {address}\n",
        "docs/a.json": json.dumps({"a": address}),
        "docs/a.jsonl": f'{{"a": "x"}}\n{{"a": "{address}"}}\n',
        "docs/a.md": f"See {address}\n",
        "specs/more.bib": f"url = {address}\n",
        ".dvc/more": f"url = {address}\n",
    }.items():
        assert [
            item for item in findings_of({path: text}) if item[1] == "spec.address"
        ] == [
            (
                "error",
                "spec.address",
                path,
                words,
                "remove it, and change the password; store such settings in the remote's configuration",
            )
        ], path
    assert codes({"docs/a.txt": address}) == [("warning", "review.code")]
    assert ("error", "spec.address") not in codes(
        {"docs/a.md": "See file:///etc/x and http://localhost/\n"}
    )
    text = f"{CONFIG}    password = word\n"
    fix = "store it in .dvc/config.local, and replace it, because it was published"
    assert findings_of({".dvc/config": text}) == [
        (
            "error",
            "spec.address",
            ".dvc/config",
            "password is a secret in a public file",
            fix,
        )
    ]
    assert ("error", "spec.address") not in codes({"docs/a.md": "password = word\n"})


def test_address_patterns_in_schemas_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(diff_since, "schema_texts", lambda *, plugins: {})
    assert codes({"specs/schema/x.json": '{"a": "https://u:p@example.org"}'}) == [
        ("warning", "review.code")
    ]


# Specs


def test_added_and_removed_specs() -> None:
    path = "specs/benchmarks/lab.IT.yaml"
    assert findings_of({path: benchmark("lab.IT")}) == [
        ("note", "review.spec", path, "benchmark added", "")
    ]
    assert findings_of({SUITE: None}) == [
        (
            "warning",
            "review.removed",
            SUITE,
            "suite removed; its records become stale",
            "",
        )
    ]
    assert findings_of({BENCHMARK: benchmark()}, before={BENCHMARK: "id: x\n"}) == [
        (
            "note",
            "review.spec",
            BENCHMARK,
            "benchmark changed; it was unreadable before",
            "",
        )
    ]


def test_an_unreadable_spec_is_reported_with_the_findings_of_the_loader() -> None:
    findings = findings_of({BENCHMARK: benchmark(colour="red")})
    assert [(item[0], item[2]) for item in findings] == [
        ("error", BENCHMARK)
    ] and "colour" in findings[0][3]


def test_a_change_of_layout_is_a_note() -> None:
    assert findings_of({BENCHMARK: "\ufeff# a comment\n" + benchmark()}) == [
        ("note", "review.spec", BENCHMARK, "benchmark changed: layout", "")
    ]


@pytest.mark.parametrize(
    ("path", "text", "fields"),
    [
        (BENCHMARK, benchmark(title="Another", description="more", tags=["x"]), "title, description, tags"),
        (DATASET, dataset(source="a paper", species="a cat"), "source, species"),
        (MODEL, model(license="MIT", benchmarks=["lab.V4"]), "benchmarks, license"),
        (SUITE, suite(models=["ant", "bee"], released="2026-01-01"), "models, released"),
        (METRIC, metric(description="more"), "description"),
    ],
)  # fmt: skip
def test_descriptive_fields_may_change_without_a_new_version(
    path: str, text: str, fields: str
) -> None:
    kind = path.split("/")[1][:-1]
    findings = [
        item for item in findings_of({path: text}) if item[1] != "review.weakened"
    ]
    assert findings == [("note", "review.spec", path, f"{kind} changed: {fields}", "")]


@pytest.mark.parametrize(
    ("path", "text", "fields"),
    [
        (BENCHMARK, benchmark(select={"region": "IT"}), "select"),
        (DATASET, dataset(degrees=8.0), "degrees"),
        (MODEL, model(builder={"name": "pixels", "size": 8}), "builder"),
        (SUITE, suite(family="parent"), "family"),
        (METRIC, metric(scale="accuracy", unit="s"), "scale, unit"),
        (BENCHMARK, benchmark(version=1, metric="pls", title="Another"), "metric"),
    ],
)
def test_fields_that_affect_scores_need_a_new_version(
    path: str, text: str, fields: str
) -> None:
    findings = [item for item in findings_of({path: text}) if item[0] == "error"]
    what = f"{fields} changed, but `version` is 1"
    assert findings == [("error", "review.version", path, what, "write `version: 2`")]
    raised = findings_of({path: text.replace("version: 1", "version: 2")})
    assert [item[0] for item in raised] == ["note"]
    assert raised[0][3].startswith(
        f"{path.split('/')[1][:-1]} changed: version 1 → 2: "
    )


def test_a_lower_version_is_refused_at_the_line_of_the_version() -> None:
    high = benchmark(version=3)
    result = Proposal(
        tree(START | {BENCHMARK: high}), tree(START | {BENCHMARK: benchmark(version=2)})
    ).findings()
    (findings,) = [item for item in result if item.severity == "error"]
    words = "version changed, but `version` is 2"
    assert findings == Finding(
        "review.version", "error", BENCHMARK, words, "write `version: 4`", 2, 10
    )


def test_a_spec_that_was_unavailable_may_change_without_a_new_version() -> None:
    closed = benchmark(unavailable="lost")
    assert ("error", "review.version") not in codes(
        {BENCHMARK: benchmark(metric="pls")}, before={BENCHMARK: closed}
    )


def test_pins_that_moved_are_named() -> None:
    pins = {
        name: {"dvc": True, "size": 4, "sha256": digit * 64}
        for name, digit in (("a", "1"), ("b", "2"))
    }
    moved = pins | {"b": pins["b"] | {"sha256": "3" * 64}, "c": dict(pins["a"])}
    old, new = ({"weights": item} for item in (pins, moved))
    findings = findings_of(
        {MODEL: model(version=2, **new)}, before={MODEL: model(**old)}
    )
    assert findings == [
        (
            "note",
            "review.spec",
            MODEL,
            "model changed: version 1 → 2: weights; pins moved: b",
            "",
        )
    ]


FIELDS = "they affect how scores are interpreted or attributed: "


@pytest.mark.parametrize(
    ("path", "old", "new", "fields"),
    [
        (DATASET, dataset(), dataset(access="private", access_steps=["ask"]), "access"),
        (
            DATASET,
            dataset(),
            dataset(license="MIT", license_note="x", simulated=True),
            "license, license_note, simulated",
        ),
        (DATASET, dataset(defects=["x"]), dataset(), "defects"),
        (DATASET, dataset(), dataset(unavailable="lost"), "unavailable"),
        (DATASET, dataset(), dataset(unread="odd"), "unread"),
        (DATASET, dataset(), dataset(stimuli="sound"), "stimuli"),
        (DATASET, dataset(cite=["a", "b"]), dataset(cite=["b", "c"]), "cite"),
        (METRIC, metric(), metric(chance_level=0.5), "chance_level"),
        (
            BENCHMARK,
            benchmark(),
            benchmark(parent="IT", superseded_by="x"),
            "parent, superseded_by",
        ),
        (
            MODEL,
            model(),
            model(control="negative", pretraining=["imagenet"]),
            "pretraining, control",
        ),
        (SUITE, suite(models=["ant", "bee"]), suite(models=["bee"]), "models"),
        (
            SUITE,
            suite(version=1, benchmarks=["a", "b"]),
            suite(version=2, benchmarks=["b"]),
            "benchmarks",
        ),
        (SUITE, suite(version=1, includes=["a"]), suite(version=2), "includes"),
    ],
)
def test_fields_that_affect_interpretation_need_a_person(
    path: str, old: str, new: str, fields: str
) -> None:
    findings = [
        item
        for item in findings_of({path: new}, before={path: old})
        if item[1] == "review.weakened"
    ]
    assert findings == [
        (
            "warning",
            "review.weakened",
            path,
            FIELDS + fields,
            "compare them with the base branch",
        )
    ]


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (DATASET, dataset(unavailable="lost"), dataset()),
        (DATASET, dataset(unread="odd"), dataset()),
        (DATASET, dataset(cite=["a"]), dataset(cite=["b", "a"])),
        (
            SUITE,
            suite(benchmarks=["a"]),
            suite(version=2, benchmarks=["b", {"id": "a", "version": 3}]),
        ),
        (SUITE, suite(), suite(models=["bee", "ant"])),
    ],
)
def test_additions_to_lists_and_availability_need_no_person(
    path: str, old: str, new: str
) -> None:
    assert {severity for severity, _ in codes({path: new}, before={path: old})} == {
        "note"
    }


def test_a_changed_weight_in_a_suite_needs_a_person() -> None:
    new = suite(version=2, benchmarks=[{"id": "lab.V4", "weight": 2}])
    assert ("warning", "review.weakened") in codes({SUITE: new})


def test_models_and_release_of_a_suite_are_descriptive() -> None:
    assert {"models", "released", "title"} <= set(ONLY_SAYS["suites"])
    assert set(ONLY_SAYS) == {"benchmarks", "datasets", "models", "suites"}


def test_waived_gates_are_named_once_each_and_at_any_depth() -> None:
    splits = {"name": "group", "by": "subject"}
    steps = [
        {"name": "crossed", "waive": ["within", "across"]},
        {"waive": ["across", 3]},
        {"waive": "text"},
    ]
    paradigm = {"name": "recording", "splits": splits, "more": {"steps": steps}}
    path = "specs/benchmarks/lab.IT.yaml"
    findings = findings_of({path: benchmark("lab.IT", paradigm=paradigm)})
    words = "gates against leakage are waived: 3, across, within"
    assert findings == [
        ("warning", "review.waived", path, words, ""), ("note", "review.spec", path, "benchmark added", "")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("controls", "words"),
    [
        ({"positive": ["other"], "negative": ["noise"]}, "controls removed: pixels4"),
        ({"positive": ["pixels4"]}, "controls removed: noise"),
        ({}, "controls removed: pixels4, noise"),
    ],
)
def test_removed_controls_are_named(controls: dict[str, Any], words: str) -> None:
    findings = [
        item
        for item in findings_of({BENCHMARK: benchmark(version=2, controls=controls)})
        if item[1] == "review.controls"
    ]
    assert findings == [("warning", "review.controls", BENCHMARK, words, "")]


@pytest.mark.parametrize(
    ("bounds", "easier"),
    [
        ({"ceiling_at_least": 0.79}, True), ({"ceiling_at_least": 0.8}, False), ({"ceiling_at_least": 0.9}, False),
        ({"itself_at_most": 10.1}, True), ({"itself_at_most": 10.0}, False), ({"itself_at_most": 5.0}, False),
        ({"floor_at_most": 0.11}, True), ({"floor_at_most": 0.1}, False), ({"floor_at_most": 0.0}, False),
        ({"ceiling_at_least": 0.5, "itself_at_most": 20.0}, True),
    ],
)  # fmt: skip
def test_controls_that_pass_more_easily_than_by_default_need_a_person(
    bounds: dict[str, float], easier: bool
) -> None:
    controls = {"positive": ["pixels4"], "negative": ["noise"]} | bounds
    path = "specs/benchmarks/lab.IT.yaml"
    findings = [
        item
        for item in findings_of({path: benchmark("lab.IT", controls=controls)})
        if item[1] == "review.controls"
    ]
    words = "controls pass more easily than by default"
    assert findings == [("warning", "review.controls", path, words, "")] * easier


@pytest.mark.parametrize("controls", [{}, {"positive": ["a"]}, {"negative": ["a"]}])
def test_a_benchmark_without_control_models_is_noted(controls: dict[str, Any]) -> None:
    path = "specs/benchmarks/lab.IT.yaml"
    words = "no control model is declared; controls from the data may be the only ones"
    findings = findings_of({path: benchmark("lab.IT", controls=controls)})
    assert (("note", "review.controls", path, words, "") in findings) == (not controls)


def test_removed_and_changed_expectations_are_named() -> None:
    checks: dict[str, list[dict[str, Any]]] = {
        "stimuli": [],
        "assembly": [{"check": "repetitions", "count": 1}],
    }
    findings = [
        item
        for item in findings_of({DATASET: dataset(expectations=checks)})
        if item[1] == "review.waived"
    ]
    begin = "expectations removed or changed: "
    assert [item[3] for item in findings] == [
        f"{begin}unique",
        f"{begin}values_vary, repetitions",
    ]
    assert {item[:3] for item in findings} == {("warning", "review.waived", DATASET)}
    fresh = "specs/datasets/more.yaml"
    assert ("warning", "review.waived") not in codes(
        {fresh: dataset("more", expectations=checks)}
    )


# Lists, references, pages


LISTED = benchmark().replace("dataset: ", "# table: rows.jsonl\ndataset: ")


@pytest.mark.parametrize("name", ["rows.jsonl", "lab.V4.files.jsonl", "lab.V4.jsonl"])
@pytest.mark.parametrize("mark", ["", "'", '"'])
def test_a_table_is_examined_with_its_spec(name: str, mark: str) -> None:
    path = f"specs/benchmarks/{name}"
    named = f"{benchmark()}# table: {mark}{name}{mark}\n"
    result = findings_of({path: "{}\n"}, before={BENCHMARK: named})
    listed = (
        "note",
        "review.spec",
        path,
        "added: a table, compared with its hash in the spec",
        "",
    )
    if name == "rows.jsonl":  # of no spec's name
        assert result == [
            ("warning", "review.code", path, "added: code or settings", CODE)
        ]
    else:
        assert result == [
            ("note", "review.spec", BENCHMARK, "benchmark changed: layout", ""),
            listed,
        ]
        both = findings_of(
            {path: "{}\n", BENCHMARK: named + "# more\n"}, before={BENCHMARK: named}
        )
        assert sorted(both) == sorted(result)  # once, not twice
    other = f"{benchmark()}# table: x{name}\n"
    assert codes({path: "{}\n"}, before={BENCHMARK: other}) == [
        ("warning", "review.code")
    ]


def test_references_are_added_and_not_rewritten() -> None:
    path, old = (
        "specs/references.bib",
        "% ours\n@book{a,\n title = {A}}\n\n  @book{b, title = {B}}\n",
    )
    added = old.replace("\n\n  @book{b", "\n@book{c, title = {C}}\n@book{b")
    assert findings_of({path: added}, before={path: old}) == [
        ("note", "review.spec", path, "changed: references were added", "")
    ]
    changed = old.replace("{B}", "{Bee}")
    words = "existing entries changed: @book{b, title = {B}}"
    assert findings_of({path: changed}, before={path: old}) == [
        ("warning", "review.spec", path, words, "compare the entries")
    ]
    long = old.replace("{B}", "{" + "B" * 90 + "}")
    (findings,) = findings_of({path: old}, before={path: long})
    assert (
        findings[3]
        == "existing entries changed: " + ("@book{b, title = {" + "B" * 90)[:60]
    )
    assert (
        findings_of({path: "@book{a}"})[0][1]
        == findings_of({path: None}, before={path: old})[0][1]
        == "review.code"
    )


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs/a.md",
        "docs/a-b/c.d/e_f.md",
    ],
)
def test_pages_are_documentation(path: str) -> None:
    assert findings_of({path: "# A\n"}) == [
        ("note", "review.page", path, "added: documentation", "")
    ]
    assert findings_of({path: None}, before={path: "# A\n"}) == [
        ("warning", "review.removed", path, "documentation was removed", "")
    ]


@pytest.mark.parametrize(
    "path",
    [
        "AUTHORS.md",
        "docs/a.rst",
        "docs/ä.md",
        "docs/a b.md",
        "src/README.md",
        "docs/a.md.x",
    ],
)
def test_other_files_are_not_documentation(path: str) -> None:
    assert findings_of({path: "# A\n"}) == [
        ("warning", "review.code", path, "added: code or settings", CODE)
    ]
    assert (
        findings_of({path: None}, before={path: "# A\n"})[0][3]
        == "removed: code or settings"
    )


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint()\n```\n",
        "<script>alert(1)</script>",
        "[a](javascript:x)",
        "![a](https://example.org/x.png)",
    ],
)
def test_a_page_is_text_whatever_it_says(text: str) -> None:
    assert codes({"docs/page.md": f"# Page\n\n{text}\n"}) == [("note", "review.page")]


def test_a_page_that_is_too_long_for_the_site_needs_a_person() -> None:
    assert codes({"docs/page.md": "a" * LONGEST_PAGE}) == [("note", "review.page")]
    (finding,) = findings_of({"docs/page.md": "a" * (LONGEST_PAGE + 1)})
    assert finding[:2] == ("warning", "review.code")
    assert finding[3] == "changed: a page of 200,001 characters, more than 200,000"


NOTE = "data/lab/ATTRIBUTION.md"


def test_attributions_may_gain_words_but_not_lose_any() -> None:
    old = "By Zoe and Ann\n"
    assert findings_of({NOTE: old}) == [
        ("note", "review.page", NOTE, "added: documentation", "")
    ]
    assert findings_of({NOTE: "By Zoe, Bob and Zoe and Ann\n"}, before={NOTE: old}) == [
        ("note", "review.page", NOTE, "changed: documentation", "")
    ]
    assert findings_of({NOTE: "By\n"}, before={NOTE: "By Ann " + "a" * 70}) == [
        ("warning", "review.removed", NOTE, "removed from the attribution: Ann", "")
    ]
    (findings,) = findings_of({NOTE: "By\n"}, before={NOTE: "By " + "a" * 70})
    assert findings[3] == "removed from the attribution: " + "a" * 60
    words = "the attribution was removed, but the licence of the data may require it"
    assert findings_of({NOTE: None}, before={NOTE: old}) == [
        ("warning", "review.removed", NOTE, words, "restore it from the base branch")
    ]
    models = "data/models/ant/ATTRIBUTION.md"
    assert codes({models: "By Ann"}) == [("note", "review.page")]
    assert codes(
        {"docs/page.md": "# Other\n"}, before={"docs/page.md": "# Page of many words\n"}
    ) == [("note", "review.page")]


@pytest.mark.parametrize(
    "path",
    [
        "data/bee/ATTRIBUTION.md",
        "data/lab/more/ATTRIBUTION.md",
        "data/models/bee/ATTRIBUTION.md",
    ],
)
def test_an_attribution_without_a_data_set_is_not_documentation(path: str) -> None:
    assert codes({path: "By Ann"}) == [("warning", "review.code")]


# Pins, pointers and objects


def test_a_pointer_that_agrees_with_pin_and_object_is_a_note() -> None:
    assert findings_of({POINTER: pointer() + "# more\n"}) == [
        ("note", "review.pointer", POINTER, "changed: 4 bytes, as pinned", "")
    ]
    assert findings_of({POINTER: pointer()}, before={POINTER: None}) == [
        ("note", "review.pointer", POINTER, "added: 4 bytes, as pinned", "")
    ]
    findings = findings_of({DATASET: dataset(title="Another")})
    assert [item[1] for item in findings] == [
        "review.spec"
    ]  # examined, and nothing to say of what is as it was


AGAIN = "`dvc add` the file again"


@pytest.mark.parametrize(
    "text",
    [
        "[]\n", "outs: []\n", "outs: {}\n", "outs: [1]\n", "{}\n",
        yaml.safe_dump({"outs": [{"md5": MD5, "size": 4, "path": "r.nc"}] * 1 + [{"path": "x"}]}),
        pointer(size="4"), pointer(size=True), pointer(md5=MD5[:-1]), pointer(md5=MD5.upper()), pointer(md5=f"{MD5}0"),
        pointer(path="x.nc"), pointer(path="../r.nc"), pointer(hash="sha"), pointer(cloud="x"), pointer() + "cmd: x\n",
        yaml.safe_dump({"outs": [{"md5": MD5, "path": "r.nc"}]}), yaml.safe_dump({"outs": [{"size": 4, "path": "r.nc"}]}),
    ],
)  # fmt: skip
def test_a_pointer_must_have_one_output_and_nothing_else(text: str) -> None:
    words = "a pointer must have one output with md5, size and `path: r.nc`, and nothing else"
    assert findings_of({POINTER: text}) == [
        ("error", "review.pointer-wrong", POINTER, words, AGAIN)
    ]
    assert codes({"docs/page.md": "# Other\n"}, before={POINTER: text}) == [
        ("note", "review.page")
    ]


def test_a_pointer_without_a_hash_type_is_valid() -> None:
    out = yaml.safe_dump({"outs": [{"md5": MD5, "size": 4, "path": "r.nc"}]})
    assert codes({POINTER: out}) == [("note", "review.pointer")]


def wrong(
    change: Mapping[str, Content], words: str, fix: str, *, at: str = POINTER
) -> None:
    assert ("error", "review.pointer-wrong", at, words, fix) in findings_of(change)


def test_a_pointer_must_match_its_pin() -> None:
    unpinned = "pin it in its spec, or remove the pointer"
    other = {"r.nc": {"dvc": True, "size": 5, "sha256": "0" * 64}}
    elsewhere = {
        "r.nc": {"url": "https://example.org/r.nc", "size": 4, "sha256": "0" * 64}
    }
    again = "`dvc add` it again, and pin it"
    push = "`dvc add` and `dvc push` it again, and pin it"
    wrong(
        {"data/lab/x.nc.dvc": pointer(path="x.nc")},
        "no spec pins x.nc",
        unpinned,
        at="data/lab/x.nc.dvc",
    )
    wrong({DATASET: None}, "no spec pins r.nc", unpinned)
    wrong(
        {"data/bee/r.nc.dvc": pointer()},
        "no spec pins r.nc",
        unpinned,
        at="data/bee/r.nc.dvc",
    )
    wrong({DATASET: dataset(files=other)}, "4 bytes; the spec pins 5", again)
    wrong(
        {DATASET: dataset(files=elsewhere)},
        "4 bytes; the spec pins 4, which DVC does not provide",
        again,
    )
    same = {"r.nc": {"dvc": True, "size": 4, "sha256": "0" * 64}}
    wrong(
        {DATASET: dataset(files=same)},
        "the SHA-256 of the object differs from the pin in the spec",
        push,
    )
    wrong(
        {STORED: b"five5"},
        "the SHA-256 of the object differs from the pin in the spec",
        push,
    )
    wrong(
        {STORED: b"fuor"},
        "the SHA-256 of the object differs from the pin in the spec",
        push,
    )
    nobody = "the embedded remote lacks the object, so the file cannot be fetched"
    wrong({STORED: None}, nobody, "`dvc push`, and commit .dvcstore")
    wrong(
        {STORED: None, POINTER: pointer(remote="embedded")},
        nobody,
        "`dvc push`, and commit .dvcstore",
    )
    nowhere = "the remote 'near' is not configured, so the file cannot be fetched"
    wrong(
        {POINTER: pointer(remote="near")},
        nowhere,
        "use a remote of .dvc/config, or none",
    )


def test_weights_of_a_model_are_pinned_by_its_spec() -> None:
    path = "data/models/ant/w.pt.dvc"
    pin = {
        "w.pt": {"dvc": True, "size": 4, "sha256": hashlib.sha256(BYTES).hexdigest()}
    }
    findings = findings_of(
        {path: pointer(path="w.pt"), MODEL: model(version=2, weights=pin)}
    )
    assert ("note", "review.pointer", path, "added: 4 bytes, as pinned", "") in findings
    assert "error" not in {item[0] for item in findings}


def test_objects_of_another_remote_are_noted_as_verified_on_fetch() -> None:
    gone = {STORED: None, POINTER: pointer(remote="far")}
    assert (
        "note",
        "review.pointer",
        POINTER,
        "4 bytes of remote far, verified when fetched",
        "",
    ) in findings_of(gone)
    # An object that lies here is examined wherever the pointer leads.
    assert (
        "note",
        "review.pointer",
        POINTER,
        "changed: 4 bytes, as pinned",
        "",
    ) in findings_of({POINTER: pointer(remote="far")})


def test_objects_need_the_name_of_their_content_and_a_pointer() -> None:
    other = hashlib.md5(b"other").hexdigest()
    place = f".dvcstore/files/md5/{other[:2]}/{other[2:]}"
    unnamed = "the name of the object is not the MD5 of its content"
    assert (
        "error",
        "review.object-wrong",
        place,
        unnamed,
        "`dvc push` it again",
    ) in findings_of({place: b"otter"})
    assert findings_of({place: b"other"}) == [
        (
            "error",
            "review.object-wrong",
            place,
            "no pointer refers to this object",
            "remove it",
        )
    ]
    flat = f".dvcstore/files/md5/{other}"
    assert (
        "error",
        "review.object-wrong",
        flat,
        unnamed,
        "`dvc push` it again",
    ) in findings_of({flat: b"other"})
    assert findings_of({STORED: BYTES}, before={STORED: None}) == [
        ("note", "review.object", STORED, "4 bytes", "")
    ]
    broken = findings_of(
        {STORED: BYTES}, before={STORED: None, "data/lab/a.nc.dvc": "[]\n"}
    )
    assert broken == [("note", "review.object", STORED, "4 bytes", "")]


@pytest.mark.parametrize("path", [POINTER, STORED])
def test_removed_data_need_a_person(path: str) -> None:
    words = "data removed: they can no longer be fetched"
    assert ("warning", "review.removed", path, words, "") in findings_of({path: None})


def test_gitignore_may_list_only_files_of_dvc() -> None:
    path = "data/lab/.gitignore"
    assert findings_of({path: "/r.nc\n\n"}) == [
        (
            "note",
            "review.pointer",
            path,
            "added: git ignores the files that DVC provides",
            "",
        )
    ]
    for text in ("r.nc\n", "/r.nc\n/x.nc\n", "/r.nc\n*.nc\n"):
        assert findings_of({path: text}) == [
            ("warning", "review.code", path, "added: code or settings", CODE)
        ]
    assert codes({path: None}, before={path: "/r.nc\n"}) == [("warning", "review.code")]


def test_private_data_must_not_be_in_the_repository() -> None:
    closed = dataset(
        "shut",
        access="private",
        access_steps=["ask"],
        files={"r.nc": {"size": 4, "sha256": "0" * 64, "dvc": True}},
    )
    path = "specs/datasets/shut.yaml"
    words = "the data are private, but the public repository contains their bytes"
    finding = (
        "error",
        "review.private",
        path,
        words,
        "remove pointers and objects; use another remote",
    )
    far = yaml.safe_dump(
        {"outs": [{"md5": "1" * 32, "size": 4, "path": "r.nc", "remote": "far"}]}
    )
    beside: dict[str, Content] = {
        "data/shut/.gitignore": "/r.nc\n",
        "data/shut/ATTRIBUTION.md": "By Ann\n",
        "data/shut/r.nc.dvc": far,
    }
    assert finding not in findings_of({path: closed} | beside)
    assert finding not in findings_of(
        {path: dataset("shut")} | {"data/shut/r.nc.dvc": pointer()}
    )
    more: list[tuple[str, Content]] = [
        ("data/shut/r.nc", b"x"),
        ("data/shut/r.nc.dvc", pointer(md5="1" * 32)),
        ("data/shut/r.nc.dvc", pointer(remote="far")),  # its object is embedded
        ("data/shut/r.nc.dvc", "[]\n"),
    ]
    for place, text in more:
        assert finding in findings_of({path: closed} | beside | {place: text})


# Names of which there is one


def test_duplicate_spec_ids_are_refused() -> None:
    path = "specs/benchmarks/more/LAB.v4.yaml"
    words = f"its id is already taken by {BENCHMARK}"
    assert ("error", "spec.duplicate-id", path, words, "rename it") in findings_of(
        {path: benchmark("LAB.v4")}
    )
    findings = findings_of(
        {"docs/page.md": "# Other\n"}, before={path: benchmark("LAB.v4")}
    )
    assert findings == [
        ("note", "review.page", "docs/page.md", "changed: documentation", "")
    ]  # it was so before
    assert "spec.duplicate-id" in {
        item[1]
        for item in findings_of(
            {BENCHMARK: benchmark(title="Other")}, before={path: benchmark("LAB.v4")}
        )
    }
    assert ("error", "spec.duplicate-id") not in codes(
        {"specs/models/lab.V4.yaml": model()}
    )


def test_paths_that_differ_only_in_case_are_refused() -> None:
    other = "Docs/more.md"
    assert (
        "error",
        "review.path",
        other,
        "Docs is the same path as docs on some systems",
        "rename it",
    ) in findings_of({other: "a"}, before={"Alone": "a"}) or (
        "error",
        "review.path",
        "docs/page.md",
        "docs is the same path as Docs on some systems",
        "rename it",
    ) in findings_of({other: "a"})
    composed, apart = "src/\u00e4.py", "src/a\u0308.py"
    findings = [
        item
        for item in findings_of({composed: "a", apart: "a"})
        if item[1] == "review.path"
    ]
    assert findings == [
        (
            "error",
            "review.path",
            apart,
            f"{apart} is the same path as {composed} on some systems",
            "rename it",
        )
    ]
    findings = findings_of({"src/x.py": "a"}, before={composed: "a", apart: "a"})
    assert [item[1] for item in findings] == ["review.code"]


# The pipeline


STAGES = {
    "stages": {
        "score": {"cmd": "run", "deps": ["specs"]},
        "check": {"cmd": "check", "deps": ["a", "b"]},
    }
}


def stages(**deps: list[str]) -> str:
    plain = {name: dict(item) for name, item in STAGES["stages"].items()}
    for name, listed in deps.items():
        plain[name]["deps"] = listed
    return yaml.safe_dump({"stages": plain})


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        (stages(score=["specs", "data/lab/r.nc"]), True),
        (
            stages(score=["data/lab/r.nc", "specs"], check=["b", "a", "data/lab/r.nc"]),
            True,
        ),
        (stages(check=["b", "a"]), True),
        (stages(score=["data/lab/r.nc"]), False),
        (stages(score=["specs", "data/lab/x.nc"]), False),
        (stages(score=["specs", "data/lab/r.nc"], check=["a", "b", "c"]), False),
        (
            stages(score=["specs", "data/lab/r.nc"]).replace("cmd: run", "cmd: rm"),
            False,
        ),
        (stages(score=["specs", "data/lab/r.nc"]) + "vars: [x]\n", False),
        ("stages: []\n", False),
        ("[]\n", False),
        ("stages: {score: {cmd: run}}\n", False),
        ("stages: {new: {cmd: run, deps: []}}\n", False),
        ("stages: [\n", False),
    ],
)
def test_stages_may_only_gain_pinned_files(text: str, listed: bool) -> None:
    before = {"dvc.yaml": stages() + "# a comment\n"}
    note = (
        "note",
        "review.derived",
        "dvc.yaml",
        "changed: its stages list the data files that are pinned",
        "",
    )
    code = ("warning", "review.code", "dvc.yaml", "changed: code or settings", CODE)
    assert findings_of({"dvc.yaml": text}, before=before) == [note if listed else code]
    assert codes({"dvc.yaml": stages()}) == [
        ("warning", "review.code")
    ]  # added: nobody read it yet


def test_the_pipeline_lock_is_refused() -> None:
    words = "every clone writes its own lock, so locks of two proposals conflict"
    assert findings_of({"dvc.lock": "a: 1\n"}) == [
        (
            "error",
            "review.lock",
            "dvc.lock",
            f"added: {words}",
            "git rm --cached dvc.lock",
        )
    ]
    old: dict[str, Content] = {"dvc.lock": "a: 1\n"}
    assert findings_of({"dvc.lock": "a: 2\n"}, before=old) == [
        (
            "error",
            "review.lock",
            "dvc.lock",
            f"changed: {words}",
            "restore dvc.lock from the base branch",
        )
    ]
    derived = "removed: the pipeline writes this file; a proposal does not need it"
    assert findings_of({"dvc.lock": None}, before=old) == [
        ("note", "review.derived", "dvc.lock", derived, "")
    ]


@pytest.mark.parametrize(
    ("path", "derived"),
    [
        ("results/check.json", True), ("results/leaderboard.json", True), ("results/metrics/x.json", True),
        ("results/metrics/a/b", True), ("results/other.json", False), ("results/checkXjson", False), ("dvcXlock", False),
        ("specs/schema/model.json", False),
    ],
)  # fmt: skip
def test_outputs_of_the_pipeline_may_be_removed(path: str, derived: bool) -> None:
    assert codes({path: None}, before={path: "{}"}) == [
        ("note", "review.derived") if derived else ("warning", "review.code")
    ]


@pytest.mark.parametrize(
    ("name", "text", "derived"),
    [
        ("lab.V4", '{"ant": 0.5}', True), ("lab.V4", "{}", True), ("lab.V4", '{"ant": 0.6}', False),
        ("lab.V4", '{"ant": 0.5, "bee": 0.5}', False), ("lab.V4", '{"bee": null}', True), ("lab.V4", "[0.5]", False),
        ("lab.IT", '{"ant": 0.5}', False), ("more/lab.V4", "{}", False),
    ],
)  # fmt: skip
def test_metrics_files_must_agree_with_records(
    name: str, text: str, derived: bool
) -> None:
    path = f"results/metrics/{name}.json"
    words = "added: the pipeline writes this file; a proposal does not need it"
    (findings,) = findings_of({path: text})
    assert (findings == ("note", "review.derived", path, words, "")) == derived
    assert findings[1] in ("review.derived", "review.code")


def test_metrics_of_failed_pairs_are_null() -> None:
    path = "results/metrics/lab.V4.json"
    assert codes({path: '{"ant": null}'}, before={RECORD: record_text(None)}) == [
        ("note", "review.derived")
    ]
    assert codes({path: '{"ant": 0.0}'}, before={RECORD: record_text(None)}) == [
        ("warning", "review.code")
    ]


def test_schemas_must_be_the_generated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "specs/schema/suite.json"
    texts = {False: {"suite.json": "{}\n"}, True: {"suite.json": '{"a plugin": 1}\n'}}
    monkeypatch.setattr(diff_since, "schema_texts", lambda *, plugins: texts[plugins])
    assert codes({path: "{}\n"}) == [("note", "review.derived")]
    for other, text in (
        (path, "{}"),
        (path, texts[True]["suite.json"]),
        ("specs/schema/sweet.json", "{}\n"),
    ):
        assert codes({other: text}) == [("warning", "review.code")]


# Results


def test_added_and_removed_records() -> None:
    words = "self-reported; not checked here"
    path = "results/records/lab.V4/bee.json"
    assert findings_of({path: record_text(0.25, "bee")}) == [
        ("note", "review.record", path, f"added: 0.25, {words}", "")
    ]
    assert findings_of({path: record_text(None, "bee")}) == [
        ("note", "review.record", path, f"added: failed, {words}", "")
    ]
    assert findings_of({RECORD: None}) == [
        ("warning", "review.removed", RECORD, "record removed: 0.5", "")
    ]
    assert findings_of({RECORD: None}, before={RECORD: "{}"}) == [
        ("warning", "review.removed", RECORD, "record removed: unreadable", "")
    ]
    assert findings_of({RECORD: record_text(1 / 3)}, before={RECORD: "{}"}) == [
        ("note", "review.record", RECORD, f"changed: 0.333333, {words}", "")
    ]
    again = record_text(0.7, inputs={"seed": 2})
    assert findings_of({RECORD: again}) == [
        ("note", "review.record", RECORD, f"changed: 0.5 → 0.7, {words}", "")
    ]


def test_another_outcome_of_the_same_inputs_needs_a_person() -> None:
    fix = f"`neuroledger verify --recompute {RECORD}`"
    assert findings_of({RECORD: record_text(0.7)}) == [
        (
            "warning",
            "review.record-moved",
            RECORD,
            "0.5 → 0.7 from the same inputs",
            fix,
        )
    ]
    assert (
        findings_of({RECORD: record_text(None)})[0][3]
        == "0.5 → failed from the same inputs"
    )
    other = record_text(timing={"wall_s": 9.0})
    assert codes({RECORD: other}) == [
        ("note", "review.record")
    ]  # where and how long may differ


def test_a_refreshed_interval_is_computed_here_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = record("ant", "lab.V4", 0.5)
    known = StoredUncertainty.of(of_items(np.arange(9.0)))
    old = with_score(base, uncertainty=known).sealed()
    before = {RECORD: json.dumps(old.model_dump(mode="json"))}
    monkeypatch.setattr(inference, "VERSION", 2)
    new = refreshed(old)
    assert (
        new.score is not None
        and old.score is not None
        and new.score.low != old.score.low
    )
    for change, code in (
        ({}, ("note", "record.refreshed")), ({"value": 0.6}, ("warning", "review.record-moved")),
        ({"low": 0.49}, ("warning", "review.record-moved")),
    ):  # fmt: skip
        score = new.score.model_copy(update=change)
        scores = {"ridge": new.scores["ridge"].model_copy(update=change)}
        sealed = new.model_copy(update={"score": score, "scores": scores}).sealed()
        assert codes(
            {RECORD: json.dumps(sealed.model_dump(mode="json"))}, before=before
        ) == [code]


def test_invalid_records_are_refused() -> None:
    unread = "not a record: a field is missing, unknown or invalid"
    assert findings_of({RECORD: "{}"}) == [
        ("error", "record.unreadable", RECORD, unread, "run `neuroledger run` again")
    ]
    edited = json.loads(record_text()) | {"payload_sha256": "0" * 64}
    assert findings_of({RECORD: json.dumps(edited)}) == [
        (
            "error",
            "record.edited",
            RECORD,
            "its content does not match its own hash",
            "",
        )
    ]
    at = "results/records/lab.V4/bee.json"
    assert findings_of({at: record_text()}) == [
        ("error", "record.misplaced", at, "it is the record of lab.V4 · ant", "")
    ]
    at = "results/records/lab.IT/ant.json"
    assert findings_of({at: record_text()}) == [
        ("error", "record.misplaced", at, "it is the record of lab.V4 · ant", "")
    ]
    of = {"model": {"id": "bee"}}
    assert findings_of({RECORD: record_text(inputs=of)}) == [
        (
            "error",
            "record.misplaced",
            RECORD,
            "its model is ant, but its inputs name bee",
            "",
        )
    ]
    of = {"benchmark": {"id": "lab.IT"}}
    assert findings_of({RECORD: record_text(inputs=of)}) == [
        (
            "error",
            "record.misplaced",
            RECORD,
            "its benchmark is lab.V4, but its inputs name lab.IT",
            "",
        )
    ]
    few = {"seed": 0, "limit": 3, "device": "cpu"}
    words = "it is of a limited run, whose records belong in results/scratch"
    assert findings_of({RECORD: record_text(request=few)}) == [
        (
            "error",
            "record.misplaced",
            RECORD,
            words,
            "run `neuroledger run` without a limit",
        )
    ]
    assert codes({RECORD: record_text(None, request=few, inputs={"seed": 2})}) == [
        ("note", "review.record")
    ]


def test_inputs_without_a_model_are_accepted() -> None:
    assert codes({RECORD: record_text(inputs={"model": {}, "benchmark": {}})}) == [
        ("note", "review.record")
    ]


STALE = "run `neuroledger run` again"


def test_a_record_of_other_specs_is_stale() -> None:
    def of(kind: str, text: str, folder: str) -> str:
        document = parse(text, "x")
        id = str(document.data["id"])
        sha = spec_sha256(spec_of(document, folder, stem=id), without=ONLY_SAYS[folder])
        return record_text(inputs={kind: {"id": id, "spec_sha256": sha}})

    for kind, text, other in (
        ("benchmark", benchmark(), benchmark(select={"region": "V4"})),
        ("model", model(), model(builder={"name": "pixels", "size": 5})),
        ("dataset", dataset(), dataset(degrees=8.0)),
    ):
        words = f"it is of another {kind} spec than that of the proposal"
        findings = findings_of({RECORD: of(kind, text, f"{kind}s")})
        assert [item[1] for item in findings] == ["review.record"]
        findings = findings_of({RECORD: of(kind, other, f"{kind}s")})
        assert findings[0] == ("warning", "record.stale", RECORD, words, STALE)
        assert [item[1] for item in findings[1:]] == ["review.record"]
    described = of("benchmark", benchmark(title="Another", defects=["x"]), "benchmarks")
    assert codes({RECORD: described}) == [("note", "review.record")]


def test_a_record_without_specs_in_the_proposal_is_stale() -> None:
    findings = findings_of({RECORD: record_text(inputs={"seed": 2}), BENCHMARK: None})
    assert (
        "warning",
        "record.stale",
        RECORD,
        "the proposal has no benchmark lab.V4",
        "",
    ) in findings
    assert ("warning", "record.stale") not in codes(
        {MODEL: None, RECORD: record_text(inputs={"seed": 2})}
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"files": {"r.nc": {"size": 4, "sha256": "0" * 64}}, "access_steps": ["ask"]}, "its data have no address (r.nc)"),
        ({"access": "private", "access_steps": ["ask"]}, "its data are private"),
    ],
)  # fmt: skip
def test_a_score_that_nobody_can_recompute_needs_a_person(
    fields: dict[str, Any], why: str
) -> None:
    path = "results/records/lab.V4/bee.json"
    found = findings_of(
        {path: record_text(0.97, "bee")}, before={DATASET: dataset(**fields)}
    )
    words = f"added: 0.97, self-reported; it cannot be checked: {why}"
    assert (
        "warning",
        "review.not-checkable",
        path,
        words,
        "ask for the files, or for a signed record",
    ) in found
    assert "review.record" not in [code for _, code, *_ in found]


def record_with(**controls: Any) -> str:
    return record_text(controls={**CONTROLS, **controls}, inputs={"seed": 2})


def test_a_score_needs_the_controls_of_its_benchmark() -> None:
    failed = CONTROLS["noise"] | {"value": 0.3, "verdict": "failed"}
    assert findings_of({RECORD: record_with(noise=failed)}) == [
        (
            "error",
            "spec.control",
            RECORD,
            "a control failed, and a score was recorded",
            "",
        )
    ]
    unsure = CONTROLS["noise"] | {"low": -0.1, "high": 0.12, "verdict": "undecided"}
    said = "control noise: 0.010 [-0.100, 0.120], must be at most 0.1, undecided: the interval contains the bound"
    noted = ("note", "spec.control-undecided", RECORD, said, "")
    assert [
        item
        for item in findings_of({RECORD: record_with(noise=unsure)})
        if "control" in item[1]
    ] == [noted]
    alone = record_text(controls={"noise": CONTROLS["noise"]}, inputs={"seed": 2})
    words = "the control pixels4 of its benchmark is missing"
    assert findings_of({RECORD: alone}) == [
        ("error", "spec.control", RECORD, words, "")
    ]
    itself = "results/records/lab.V4/noise.json"
    own = record_text(model="noise", controls={"pixels4": CONTROLS["pixels4"]})
    assert codes({itself: own}) == [
        ("note", "review.record")
    ]  # a control is not its own
    none = record_text(None, controls={}, inputs={"seed": 2})
    assert codes({RECORD: none}) == [
        ("note", "review.record")
    ]  # a failed job has no score to control
    stale = record_text(
        controls={}, inputs={"benchmark": {"id": "lab.V4", "spec_sha256": "0" * 64}}
    )
    assert codes({RECORD: stale}) == [
        ("warning", "record.stale"),
        ("note", "review.record"),
    ]


def test_controls_need_the_bounds_of_the_benchmark() -> None:
    def wrong_bound(name: str) -> Findings:
        words = f"the bound of the control {name} is not that of its benchmark"
        return [("error", "spec.control", RECORD, words, "")]

    def as_(**fields: Any) -> dict[str, Content]:
        rules = {"positive": ["pixels4"], "negative": ["noise"]} | fields.pop(
            "controls", {}
        )
        return {BENCHMARK: benchmark(controls=rules, **fields)}

    low = CONTROLS["pixels4"] | {"bound": 0.7}
    assert findings_of({RECORD: record_with(pixels4=low)}) == wrong_bound("pixels4")
    assert codes(
        {RECORD: record_with(pixels4=low)},
        before=as_(controls={"ceiling_at_least": 0.7}),
    ) == [("note", "review.record")]
    high = CONTROLS["noise"] | {"bound": 0.2}
    # The bound of a score that nothing normalises is counted from chance, which the record does not tell.
    assert codes({RECORD: record_with(noise=high)}) == [("note", "review.record")]
    normalised = as_(ceiling="internal_consistency")
    assert findings_of(
        {RECORD: record_with(noise=high)}, before=normalised
    ) == wrong_bound("noise")
    assert codes({RECORD: record_with()}, before=normalised) == [
        ("note", "review.record")
    ]
    assert codes(
        {RECORD: record_with(noise=high)}, before=as_(controls={"floor_at_most": 0.2})
    ) == [("note", "review.record")]
    assert findings_of(
        {RECORD: record_with()}, before=as_(controls={"floor_at_most": 0.2})
    ) == wrong_bound("noise")


SIGNED = "-----BEGIN SSH SIGNATURE-----\nU1NI+/=\n-----END SSH SIGNATURE-----\n"


def test_a_signature_needs_its_record_and_signs_it() -> None:
    path = f"{RECORD}.sig"
    assert (
        codes({path: SIGNED})
        == codes({path: SIGNED.rstrip()})
        == [("error", "review.signature")]
    )
    assert codes({path: SIGNED + "x"}) == [("warning", "review.code")]
    assert codes({"results/records/lab.V4/bee.json.sig": SIGNED}) == [
        ("warning", "review.code")
    ]
    assert codes({"results/records/lab.V4/ant.sig": SIGNED}) == [
        ("warning", "review.code")
    ]
    before = {path: SIGNED}
    stays = "the signature was removed, but not its record"
    assert findings_of({path: None}, before=before) == [
        ("warning", "review.removed", path, stays, "")
    ]
    both = findings_of({path: None, RECORD: None}, before=before)
    assert (
        "note",
        "review.signature",
        path,
        "removed: a signature, with its record",
        "",
    ) in both


def report(**fields: Any) -> str:
    declared = spec_of(parse(dataset(), "x"), "datasets", stem="lab")
    assert isinstance(declared, DatasetSpec)
    known = {
        "dataset": "lab", "version": 1, "title": "The lab", "access": "public", "simulated": False,
        "identity": identity(declared), "spec_sha256": spec_sha256(declared), "suite_sha256": "0" * 64,
        "reader": {"name": "netcdf", "version": 1}, "files": {}, "great_expectations": "",
        "stages": {"files": "passed", "content": "passed"}, "contents": {}, "checks": (), "findings": (),
    }  # fmt: skip
    return json.dumps(seal(ValidationReport(**known | fields)).to_dict())


def test_validation_reports() -> None:
    words = "valid, as reported; not validated here"
    assert findings_of({REPORT: report()}) == [
        ("note", "review.report", REPORT, f"added: {words}", "")
    ]
    assert (
        findings_of({REPORT: report(title="x")}, before={REPORT: report()})[0][3]
        == f"changed: {words}"
    )
    assert findings_of({REPORT: None}, before={REPORT: report()}) == [
        ("warning", "review.removed", REPORT, "validation report removed", "")
    ]
    for text in ("{}", "[]", "no"):
        assert findings_of({REPORT: text}) == [
            ("error", "data.report-edited", REPORT, "not a validation report", "")
        ]
    edited = "its content does not match its own hash"
    assert findings_of({REPORT: json.dumps(json.loads(report()) | {"title": "x"})}) == [
        ("error", "data.report-edited", REPORT, edited, "")
    ]
    assert findings_of({REPORT: report(dataset="bee")}) == [
        ("error", "data.report-edited", REPORT, edited, "")
    ]
    stale = (
        "error",
        "data.report-stale",
        REPORT,
        "it is of another spec or reader than those of the proposal",
        "`neuroledger validate lab`",
    )
    assert findings_of({REPORT: report(identity="0" * 64)}) == [stale]
    assert stale in findings_of({REPORT: report(), DATASET: None})
    assert findings_of(
        {REPORT: report()}, before={DATASET: dataset(reader={"name": "nosuch"})}
    ) == [stale]
    assert findings_of(
        {REPORT: report(stages={"files": "passed", "content": "failed"})}
    ) == [("warning", "data.invalid", REPORT, "the data set failed validation", "")]


def calibration(covered: int | None = 95, **fields: Any) -> str:
    from neuroledger.stats.calibration import Calibration, Figure, share

    declared = spec_of(parse(benchmark(), "x"), "benchmarks", stem="lab.V4")
    assert isinstance(declared, BenchmarkSpec)
    few = (share(5, 100, 100), share(2, 100, 100))
    metrics: dict[str, Any] = {"ridge": {"reason": "nothing is random"}}
    if covered is not None:
        length, loss = Figure(1.0, 0.9, 1.1, 100), Figure(1.2, 1.1, 1.3, 100)
        coverage = share(covered, 100, 100)
        found = Calibration(
            "new stimuli", {"stimulus": 60}, 0.5, coverage, length, loss, *few
        )
        metrics = {"ridge": found.to_dict()}
    known = {
        "benchmark": "lab.V4", "headline": "ridge", "ceiling": "", "identity": {"benchmark": spec_sha256(declared)},
        "code": {"sha256": "0" * 64}, "seed": 0, "runs": 100, "reason": "", "metrics": metrics,
    }  # fmt: skip
    return json.dumps(known | fields)


def test_calibrations() -> None:
    fix = "`neuroledger calibrate lab.V4`"
    passed = "passed in 100 experiments, as reported; not simulated here"
    assert findings_of({CALIBRATION: calibration()}) == [
        ("note", "review.calibration", CALIBRATION, f"added: {passed}", "")
    ]
    again = findings_of(
        {CALIBRATION: calibration(96)}, before={CALIBRATION: calibration()}
    )
    assert again == [
        ("note", "review.calibration", CALIBRATION, f"changed: {passed}", "")
    ]
    better = findings_of(
        {CALIBRATION: calibration()}, before={CALIBRATION: calibration(60)}
    )
    assert better == [
        ("warning", "review.calibration", CALIBRATION, f"changed: {passed}", "")
    ]
    words = "failed, as reported: all intervals of the benchmark would be withheld"
    assert findings_of({CALIBRATION: calibration(60)}) == [
        ("warning", "review.calibration", CALIBRATION, words, fix)
    ]
    gone = "calibration removed: intervals that it withheld will be shown again"
    assert findings_of({CALIBRATION: None}, before={CALIBRATION: calibration()}) == [
        ("warning", "review.removed", CALIBRATION, gone, "")
    ]
    wrong = "not a calibration, or a rate or verdict contradicts the counts"
    for text in ("{}", calibration(runs=90)):
        assert findings_of({CALIBRATION: text}) == [
            ("error", "record.calibration", CALIBRATION, wrong, fix)
        ]
    other = "it is of another benchmark or spec than those of the proposal"
    stale = ("error", "record.calibration", CALIBRATION, other, fix)
    assert findings_of({CALIBRATION: calibration(benchmark="lab.IT")}) == [stale]
    assert findings_of(
        {CALIBRATION: calibration()}, before={BENCHMARK: benchmark(metric="pls")}
    ) == [stale]
    assert stale in findings_of({CALIBRATION: calibration(), BENCHMARK: None})


def looks(*evidence: str, **fields: Any) -> str:
    from neuroledger.engine.claims.looks import Look, Looks, numbered
    from neuroledger.stats.claims import level_of

    entered: list[Look] = []
    for one in evidence:
        number = numbered(entered, one * 64)
        known: dict[str, Any] = {
            "number": number,
            "evidence": one * 64,
            "level": level_of(number),
            "status": "supported",
            "paths": (),
        }
        entered.append(Look.model_validate(known | fields))
    return Looks(claim="better", looks=tuple(entered)).model_dump_json()


def test_looks_at_claims_are_only_added() -> None:
    path = "results/claims/better.json"
    note = ("note", "claim.looks", path)
    words = "added: 2 looks added, supported, as reported; not tested here"
    assert findings_of({path: looks("a", "b")}) == [(*note, words, "")]
    words = "changed: 1 looks added, supported, as reported; not tested here"
    again = findings_of({path: looks("a", "b")}, before={path: looks("a")})
    assert again == [(*note, words, "")]

    fix = "restore it from the base branch, then run `neuroledger claims better`"
    refused = ("error", "claim.rewritten", path)
    words = "earlier looks were changed or removed"
    for text in (looks("b"), looks("a"), looks("a", "b", status="contradicted")):
        found = findings_of({path: text}, before={path: looks("a", "b")})
        assert found == [(*refused, words, fix)]
    words = "these are no looks at this claim, or a number or level is wrong"
    wrong = looks("a", "b").replace('"number":2', '"number":1')
    for text in ("[]", wrong, looks("a").replace("better", "other")):
        assert findings_of({path: text}) == [(*refused, words, fix)]
    words = "looks removed: the claim would be tested as if for the first time"
    removed = findings_of({path: None}, before={path: looks("a")})
    assert removed == [(*refused, words, "restore it from the base branch")]


def test_an_unreadable_record_is_none() -> None:
    assert record_in(None) is None and record_in(b"[]") is None
    assert isinstance(record_in(record_text().encode()), Record)
