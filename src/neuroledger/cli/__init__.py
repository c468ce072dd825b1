"""The command line: parses arguments and calls the function of the verb, whose module is imported only then."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neuroledger.cli import statuses
from neuroledger.display import visible
from neuroledger.errors import (
    Finding,
    NeuroLedgerError,
    RequestError,
    SpecError,
    about_pair,
    naming_extras,
)

__all__ = ["main"]

FIGURES = (
    "agreement",
    "bars",
    "confusion",
    "controls",
    "differences",
    "heat_map",
    "layer_map",
    "layers",
    "paired",
    "ranks",
    "rdm",
    "reliability",
    "scatter",
    "time",
    "tradeoff",
)
KINDS = ("datasets", "metrics", "ceilings", "benchmarks", "models", "suites")
DESCRIPTION = "Benchmarks for models of the brain: declarative specs, pinned data and reproducible scores."
# Help of the flags that answer the questions of `start`; each is also an argument of `nl.start`.
ANSWERS: Mapping[str, str] = {
    "license": "SPDX licence of the data, such as CC-BY-4.0; LicenseRef-unstated if none is stated",
    "access": "public, or private (scores may be shown, data values may not)",
    "region": "brain region of the responses, such as V4 or IT",
    "responses": "file with the responses if there are several candidates, as FILE or FILE.mat:VARIABLE",
    "dims": "axes of the array, such as trial,neuroid: stimulus or trial, neuroid, and repetition or time_bin",
    "order": "order of the images along the array: name (im1, im10, im2) or number (im1, im2, im10)",
    "trials": "stimulus of each trial, as FILE, FILE:COLUMN or FILE.mat:VARIABLE",
    "first": "number of the first stimulus (0 or 1) if trials refer to stimuli by number",
    "time_bins": "first and last edge of the time bins, or window for counting spikes, in ms from stimulus onset: 70:170",
    "task": "BIDS: task to read (NAME of task-NAME)",
    "events": "BIDS: events to decode, as DESCRIPTION=LABEL,DESCRIPTION=LABEL",
    "window": "BIDS: start and end of a window in s from its event, such as 0:1",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="neuroledger", description=DESCRIPTION, epilog=statuses.TABLE
    )
    parser.add_argument(
        "--root",
        type=Path,
        help="repository folder (default: the one that contains the working directory)",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, module: str, help: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(
            name, help=help, description=help, epilog=statuses.TABLE
        )
        added.set_defaults(module=module)
        return added

    p = verb(
        "list",
        "catalogue",
        "list data sets, metrics, ceilings, benchmarks, models or suites",
    )
    p.add_argument(
        "kind",
        nargs="?",
        choices=KINDS,
        default="benchmarks",
        help="default: benchmarks",
    )
    p.add_argument("--filter", metavar="TEXT", help="show only rows that contain TEXT")
    _add_json(p)

    p = verb(
        "show",
        "catalogue",
        "show one spec: definition, licence, citation, controls and recorded scores",
    )
    p.add_argument(
        "id", help="id of a data set, metric, ceiling, benchmark, model or suite"
    )
    _add_json(p)

    p = verb(
        "check",
        "catalogue",
        "check specs, schemas, references, citations and pins; report every problem",
    )
    p.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="spec files or folders (default: all specs)",
    )
    _add_json(p)
    p.add_argument(
        "--output", type=Path, help="also write the findings as JSON to this file"
    )
    p.add_argument(
        "--since",
        metavar="COMMIT",
        help="also review what changed since this commit: specs, pins, scores, code",
    )
    _add_root(
        p, "repository to check, such as an untrusted proposal; none of its code is run"
    )
    _add_flag(p, "--write-schemas", "regenerate specs/schema/ before checking")

    p = verb(
        "summary",
        "catalogue",
        "summarise a proposal as Markdown: scores, controls, bytes, licences",
    )
    p.add_argument(
        "--since",
        metavar="COMMIT",
        required=True,
        help="branch or commit that the proposal would be merged into",
    )
    _add_root(
        p,
        "repository to summarise, such as an untrusted proposal; none of its code is run",
    )

    p = verb(
        "new", "catalogue", "create a spec file from a template that passes `check`"
    )
    p.add_argument("kind", choices=[kind[:-1] for kind in KINDS])
    p.add_argument("id", help="id of the new spec; also the name of its file")

    p = verb(
        "start",
        "data",
        "turn a folder of images and responses, or a BIDS tree, into a scored benchmark",
    )
    p.add_argument(
        "folder", type=Path, help="folder with images and responses, or a BIDS tree"
    )
    p.add_argument("--id", help="id of the data set (default: name of the folder)")
    p.add_argument("--title", help="title of the data set")
    _add_repeated(p, "--model", "also score this model", dest="models", metavar="ID")
    _add_repeated(
        p,
        "--coordinate",
        "a numeric column that is not a neuroid",
        dest="coordinates",
        metavar="COLUMN",
    )
    p.add_argument(
        "--degrees", type=float, help="size of the images in degrees of visual angle"
    )
    p.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="output folder of the pages (default: site-ID)",
    )
    _add_flag(
        p, "--no-questions", "report missing answers as an error instead of asking"
    )
    _add_flag(p, "--open", "open the page in the browser")
    _add_root(p, "repository folder; a folder without specs/ is set up as one")
    for flag, help in ANSWERS.items():
        p.add_argument(f"--{flag.replace('_', '-')}", dest=flag, help=help)

    p = verb(
        "package",
        "data",
        "convert, place, track and pin stimuli, responses or a checkpoint",
    )
    p.add_argument(
        "part",
        choices=("stimuli", "assembly", "model"),
        help="what the source file contains",
    )
    p.add_argument(
        "id", help="id of the data set or model; it is created if there is none"
    )
    p.add_argument(
        "source",
        type=Path,
        help="stimuli: a CSV table or a folder of images; assembly: netCDF, npy, mat or a table; model: a checkpoint",
    )
    p.add_argument(
        "--files",
        type=Path,
        metavar="FOLDER",
        help="stimuli: folder that contains the files of the table",
    )
    p.add_argument("--license", help=ANSWERS["license"])
    p.add_argument(
        "--access", choices=("public", "private"), help="access of a new data set"
    )
    p.add_argument("--dims", help="assembly: " + ANSWERS["dims"])
    p.add_argument("--region", help="assembly: " + ANSWERS["region"])
    p.add_argument("--variable", help="assembly: variable of a mat file")
    p.add_argument(
        "--trials",
        type=Path,
        metavar="CSV",
        help="assembly: table with a stimulus_id for each trial",
    )
    p.add_argument(
        "--module",
        dest="torch_class",
        metavar="package.module:Class",
        help="model without a spec: import path of its torch class",
    )
    _add_repeated(
        p,
        "--region-layer",
        "model without a spec: layer committed to a region",
        metavar="REGION=LAYER",
    )
    p.add_argument(
        "--readout",
        metavar="LAYER",
        help="model without a spec: layer from which decisions are read",
    )
    p.add_argument(
        "--logits",
        metavar="LAYER",
        help="model without a spec: layer of the class logits, if different from --readout",
    )
    p.add_argument(
        "--arguments",
        type=json.loads,
        metavar="JSON",
        help="model without a spec: arguments of its class",
    )
    p.add_argument(
        "--preprocessing",
        type=json.loads,
        metavar="JSON",
        help="model without a spec: preprocessing of images, see docs/models.md",
    )
    p.add_argument(
        "--time-bins",
        metavar="MS",
        help="assembly: first and last edge of the time bins in ms, such as 0:200",
    )

    p = verb(
        "pin",
        "data",
        "check downloaded files, place them in data/, and pin them in the spec of their data set",
    )
    p.add_argument(
        "id", help="id of a data set, or of a model whose weights are not pinned yet"
    )
    p.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder that contains the files",
    )
    p.add_argument(
        "--url-prefix",
        metavar="URL",
        help="URL of the same folder, so that others can fetch the files",
    )
    p.add_argument(
        "--label",
        metavar="COLUMN",
        help="column of participants.tsv or recordings.tsv to decode",
    )
    _add_repeated(p, "--event", "an event and its label", metavar="DESCRIPTION=LABEL")
    _add_repeated(
        p,
        "--named",
        "pattern of the names of recordings in a plain folder, such as 'S{subject}_{run}.edf'",
        metavar="PATTERN",
    )
    p.add_argument("--task", help="read only this BIDS task")
    _add_flag(p, "--bids", "read with mne-bids, which uses events.tsv and channels.tsv")
    _add_flag(p, "--renew", "accept files that changed since they were pinned")
    _add_flag(
        p,
        "--no-check",
        "do not read the files before pinning, for data too large for this machine",
    )
    _add_flag(p, "--dry-run", "show the changes of the spec, write nothing")

    p = verb(
        "embed",
        "bridges",
        "compute a model's embeddings of stimuli, for retrieval tasks",
    )
    p.add_argument("model", help="id of a model that embeds, or of one with layers")
    p.add_argument(
        "--table",
        type=Path,
        metavar="CSV",
        help="stimuli: columns stimulus_id, and text, or filename (with start and duration)",
    )
    p.add_argument(
        "--dataset",
        metavar="ID",
        help="use the stimuli that the reader of this data set lists",
    )
    p.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FOLDER",
        help="folder with the downloads of the data set",
    )
    folders = p.add_mutually_exclusive_group()
    folders.add_argument(
        "--images",
        type=Path,
        metavar="FOLDER",
        help="folder of the images; without a table: all of them",
    )
    folders.add_argument(
        "--sounds",
        type=Path,
        metavar="FOLDER",
        help="folder of the sounds of the table",
    )
    folders.add_argument(
        "--videos", type=Path, metavar="FOLDER", help="folder of the films of the table"
    )
    _add_flag(p, "--names", "use file names without folders as the ids of images")
    p.add_argument(
        "--layer",
        help="layer of the model, or hidden states by number, such as 8 or 22,24",
    )
    _add_repeated(
        p, "--mean", "average over this axis of the layer", type=int, metavar="AXIS"
    )
    p.add_argument("--device", default="cpu", help="cpu (default), cuda, mps or auto")
    p.add_argument(
        "--out", type=Path, required=True, metavar="FILE.nc", help="output file"
    )

    p = verb(
        "import", "bridges", "import a data set or model of another project as a spec"
    )
    p.add_argument(
        "project",
        choices=("brainscore", "brainscore-model", "openneuro", "nemar", "dandi"),
    )
    p.add_argument(
        "id",
        metavar="KEY",
        help="brainscore: a benchmark, data set or stimulus set, or with files the id of a new data set; "
        "openneuro, nemar, dandi: the id there, such as ds004504",
    )
    p.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="brainscore: assy_*.nc, stimulus_*.csv, stimulus_*.zip; brainscore-model: the checkpoint of its weights",
    )
    p.add_argument(
        "--from",
        dest="source",
        metavar="REPOSITORY",
        help="a clone, its URL, or a listing (.tsv); brainscore and brainscore-model: the folder of a plugin",
    )
    p.add_argument(
        "--as",
        dest="dataset",
        metavar="DATASET",
        help="id of the data set in this repository (default: KEY; dandi: dandiKEY)",
    )
    _add_repeated(p, "--task", "read this BIDS task")
    _add_repeated(p, "--event", "a trial type and its label", metavar="TYPE=LABEL")
    p.add_argument(
        "--window",
        type=float,
        nargs=2,
        default=(0.0, 1.0),
        metavar=("START", "DURATION"),
        help="window around an event in s (default: 0 1)",
    )
    _add_repeated(
        p,
        "--published",
        "pin these files unchanged although no reader reads them, such as 'sourcedata/*.mat'",
        metavar="PATTERN",
    )
    p.add_argument(
        "--version",
        default="draft",
        help="dandi: version, such as 0.220113.0400 (default: draft)",
    )
    p.add_argument(
        "--datatype",
        choices=("eeg", "meg", "ieeg", "emg"),
        default="eeg",
        help="BIDS data type (default: eeg)",
    )
    p.add_argument(
        "--facts",
        type=Path,
        metavar="JSON",
        help="facts about a listing: license, title, authors, doi and trials",
    )
    _add_repeated(
        p, "--sha1", "SHA-1 that the registry states for a file", metavar="FILE=SHA1"
    )
    p.add_argument(
        "--access",
        choices=("public", "private"),
        default="public",
        help="who may have the files (default: public)",
    )
    p.add_argument(
        "--degrees",
        type=float,
        metavar="D",
        help="size of the stimuli in degrees of visual angle",
    )

    p = verb(
        "export",
        "bridges",
        "write a data set or results in the format of another project",
    )
    p.add_argument("project", choices=("brainscore", "neurobench", "sc-neurocore"))
    p.add_argument(
        "id",
        help="brainscore: id of a data set; neurobench, sc-neurocore: id of a benchmark",
    )
    p.add_argument(
        "--out",
        type=Path,
        default=Path("export"),
        metavar="DIR",
        help="output folder (default: export)",
    )

    p = verb(
        "fetch",
        "data",
        "download the files of data sets and models into data/ and verify them",
    )
    p.add_argument("ids", nargs="*", metavar="ID", help="ids of data sets or models")
    p.add_argument("--suite", help="fetch everything that this suite needs")
    _add_flag(p, "--force", "replace files that were modified after they were fetched")

    p = verb(
        "validate", "data", "check hashes, structure and expectations of data sets"
    )
    p.add_argument(
        "ids",
        nargs="*",
        metavar="DATASET",
        help="ids of data sets (default: every data set whose files are on this machine)",
    )
    p.add_argument("--suite", help="validate the data sets of this suite")
    _add_flag(p, "--force", "validate again even if nothing changed")
    p.add_argument(
        "--data-docs",
        type=Path,
        metavar="DIR",
        help="also write the Data Docs of Great Expectations",
    )
    _add_flag(p, "--allow-invalid", "exit 0 even if a data set is invalid")
    _add_json(p)

    p = verb(
        "audit",
        "data",
        "look for copies, wrong counts, wrong units, flat channels and label leaks in recordings",
    )
    p.add_argument("id", metavar="DATASET", help="id of a data set")
    p.add_argument(
        "--out", type=Path, metavar="FILE.md", help="also write the report to this file"
    )
    _add_json(p)

    p = verb("run", "scoring", "compute the missing scores of models on benchmarks")
    p.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="ids of models (default: the models of the suite)",
    )
    _add_repeated(
        p, "--benchmark", "only this benchmark", dest="benchmarks", metavar="B"
    )
    _add_repeated(
        p,
        "--suite",
        "suite, or `all`; default: the suite in params.yaml",
        dest="suites",
        metavar="SUITE",
    )
    _add_request(p)
    p.add_argument(
        "--executor",
        default="local",
        metavar="E",
        help="local (default), processes[:N] or dask[:ADDRESS]",
    )
    _add_flag(p, "--dry-run", "print the plan, compute and write nothing")
    _add_flag(p, "--retry-failed", "try failed jobs again")
    _add_flag(p, "--force", "compute everything again")
    _add_flag(
        p,
        "--allow-failed",
        "exit 0 even if jobs failed; jobs that are pending still exit 4",
    )

    p = verb(
        "score", "scoring", "score one model on one benchmark and print the result"
    )
    p.add_argument("model", help="id of a model")
    p.add_argument("benchmark", help="id of a benchmark")
    _add_flag(
        p, "--record", "write the record; without it, nothing in the repository changes"
    )
    p.add_argument(
        "--layers",
        nargs="?",
        const="",
        metavar="all|NAME,NAME",
        help="score layers in place of the committed one, and choose one on half of the stimuli; without names: those "
        "of the spec, or 5 to 20 stages of the network; nothing is recorded",
    )
    p.add_argument(
        "--out",
        type=Path,
        metavar="FIGURE",
        help="also write the figure of --layers (.svg, .pdf, .png)",
    )
    _add_request(p)
    _add_json(p)

    p = verb(
        "evaluate",
        "scoring",
        "score one model on every benchmark of a suite that fits it; nothing is recorded",
    )
    p.add_argument("model", help="id of a model")
    p.add_argument(
        "--suite",
        help="id of a suite (default: the suite in params.yaml), or `unlisted`: all benchmarks in no suite",
    )
    _add_repeated(
        p,
        "--benchmark",
        "also this benchmark, or this alone if no suite is given",
        dest="benchmarks",
        metavar="B",
    )
    _add_request(p)

    p = verb(
        "cost",
        "scoring",
        "measure costs of a model: operations, sparsity, or the costs that a benchmark lists",
    )
    p.add_argument("model", help="id of a model")
    p.add_argument(
        "--benchmark",
        metavar="B",
        help="id of a benchmark (default: the first that fits and whose data are on this machine)",
    )
    p.add_argument("--device", default="cpu", help="cpu (default), cuda or mps")
    _add_json(p)

    p = verb(
        "same",
        "scoring",
        "compare the answers of a network and of its exported NIR or ONNX graph, layer by layer",
    )
    p.add_argument(
        "network",
        help="package.module:NAME of a torch module (or a function that makes it), or a graph file",
    )
    p.add_argument("graph", type=Path, help="graph file (.nir or .onnx)")
    p.add_argument(
        "--inputs",
        type=Path,
        required=True,
        metavar="NPY",
        help="array (sample, time, …) for neurons, else (sample, …)",
    )
    p.add_argument(
        "--time-step",
        type=float,
        metavar="SECONDS",
        help="time step of a NIR graph that states none",
    )
    p.add_argument(
        "--reset",
        choices=("value", "subtract"),
        help="what a spike does to a membrane of a NIR graph",
    )
    _add_json(p)

    p = verb("verify", "scoring", "check whether records still agree with their inputs")
    p.add_argument(
        "records",
        nargs="*",
        type=Path,
        metavar="RECORD",
        help="record files (default: all records)",
    )
    _add_flag(p, "--recompute", "also recompute the scores and compare them")
    _add_json(p)
    p.add_argument(
        "--signers",
        type=Path,
        metavar="FILE",
        help="file of allowed signers, to distinguish signed from self-reported records",
    )

    p = verb(
        "refresh",
        "scoring",
        "compute intervals of records again by the current method, from the records alone",
    )
    p.add_argument(
        "records",
        nargs="*",
        type=Path,
        metavar="RECORD",
        help="record files (default: all records)",
    )
    _add_json(p)

    p = verb(
        "sign",
        "scoring",
        "recompute records and sign the reproduced ones with an SSH key",
    )
    p.add_argument(
        "records",
        nargs="*",
        type=Path,
        metavar="RECORD",
        help="record files (default: all records)",
    )
    p.add_argument(
        "--key", type=Path, required=True, help="SSH key, such as ~/.ssh/id_ed25519"
    )

    p = verb(
        "leaderboard",
        "results",
        "print the leaderboard of a suite, with ranks, floor and ceiling",
    )
    p.add_argument("--suite", help="id of a suite (default: the suite in params.yaml)")
    p.add_argument(
        "--format",
        choices=("text", "json", "csv", "markdown", "latex"),
        default="text",
        help="output format (default: text)",
    )

    p = verb(
        "history",
        "results",
        "list how the scores of a benchmark changed from commit to commit",
    )
    p.add_argument("benchmark", metavar="BENCHMARK", help="id of a benchmark")
    p.add_argument(
        "model", nargs="?", metavar="MODEL", help="id of a model (default: all models)"
    )
    _add_json(p)

    p = verb(
        "compare",
        "results",
        "compare two models: paired differences, intervals, corrected p values",
    )
    p.add_argument("a", help="id of a model")
    p.add_argument("b", help="id of another model")
    p.add_argument("--suite", help="id of a suite (default: the suite in params.yaml)")
    p.add_argument("--benchmark", help="compare on this benchmark only")
    _add_json(p)

    p = verb(
        "ranks",
        "results",
        "compute mean normalised ranks of models, and their agreement with another suite",
    )
    p.add_argument("--suite", help="id of a suite (default: the suite in params.yaml)")
    p.add_argument(
        "--against",
        metavar="SUITE",
        help="also compute Kendall's tau between the ranks of the two suites",
    )
    _add_flag(p, "--published", "use published figures instead of records")
    _add_json(p)

    p = verb(
        "diagnose",
        "results",
        "analyse what a suite measures: coverage, agreement, axes, redundancy, panel, growth",
    )
    p.add_argument(
        "suite", nargs="?", help="id of a suite (default: the suite in params.yaml)"
    )
    _add_flag(p, "--published", "use published figures instead of records")
    p.add_argument(
        "--table",
        type=Path,
        metavar="CSV",
        help="use this table: models in rows, benchmarks in columns",
    )
    p.add_argument("--out", type=Path, metavar="FILE", help="also write an HTML page")
    _add_json(p)

    p = verb(
        "pareto",
        "results",
        "compare score and cost of models, and find the Pareto front",
    )
    p.add_argument("benchmark", help="id of the benchmark of the score")
    p.add_argument(
        "--cost",
        metavar="METRIC",
        help="cost metric (default: synaptic_operations and energy_45nm, in which all networks can be compared)",
    )
    p.add_argument(
        "--out", type=Path, metavar="FILE", help="also write a figure (svg, pdf or png)"
    )
    _add_json(p)

    p = verb("plot", "figures", "write a figure of scores, models or data to a file")
    p.add_argument("figure", choices=FIGURES)
    p.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="ids of benchmarks, models or data sets, depending on the figure",
    )
    _add_repeated(p, "--benchmark", "benchmark of a figure of models", metavar="B")
    p.add_argument("--suite", help="id of a suite (default: the suite in params.yaml)")
    p.add_argument(
        "--by",
        default=None,
        metavar="COORDINATE",
        help="paired: coordinate of the pairs (default: subject); rdm: coordinate that groups stimuli",
    )
    p.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="output file: svg, pdf or png",
    )

    p = verb("report", "results", "write static pages of all scores")
    p.add_argument(
        "--out", type=Path, default=Path("site"), help="output folder (default: site)"
    )
    p.add_argument("--suite", help="id of a suite (default: the suite in params.yaml)")
    _add_flag(p, "--serve", "serve the pages on http://localhost")

    p = verb(
        "calibrate",
        "results",
        "simulate experiments of a benchmark to check its intervals and tests",
    )
    p.add_argument(
        "benchmarks",
        nargs="*",
        metavar="BENCHMARK",
        help="ids of benchmarks (default: all with records)",
    )
    p.add_argument("--suite", help="calibrate the benchmarks of this suite")
    p.add_argument(
        "--runs",
        type=int,
        default=200,
        help="simulated experiments for each benchmark (default: 200)",
    )
    p.add_argument(
        "--seed", type=int, default=0, help="seed of the simulation (default: 0)"
    )
    _add_json(p)

    p = verb(
        "doctor",
        "results",
        "check versions, devices, remotes and data on this machine, and say how to fix problems",
    )
    _add_json(p)
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_flag(parser: argparse.ArgumentParser, flag: str, help: str) -> None:
    parser.add_argument(flag, action="store_true", help=help)


def _add_repeated(
    parser: argparse.ArgumentParser, flag: str, help: str, **settings: Any
) -> None:
    parser.add_argument(
        flag, action="append", default=[], help=f"{help}; may be repeated", **settings
    )


def _add_root(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--root", type=Path, default=argparse.SUPPRESS, help=help)


def _add_request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, help="random seed (default: params.yaml)")
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="use the first N stimuli only; such a score is partial and never ranked",
    )
    parser.add_argument(
        "--device", help="cpu, cuda, cuda:1, mps (default: params.yaml)"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status, see :mod:`neuroledger.cli.statuses`."""
    parser, arguments = (
        _parser(),
        list(sys.argv[1:] if arguments is None else arguments),
    )
    for argument in arguments:
        if argument.startswith("--") and argument.endswith(
            "=--"
        ):  # argparse would return an empty list
            parser.error(f"argument {argument[:-3]}: expected a value")
    options = parser.parse_args(arguments)
    try:
        with naming_extras():
            module = importlib.import_module(f"neuroledger.cli.{options.module}")
            code: int = getattr(
                module, {"import": "import_"}.get(options.verb, options.verb)
            )(options)
        sys.stdout.flush()
    except SpecError as error:
        _report_findings(error.findings)
        return statuses.WRONG
    except RequestError as error:
        sys.stderr.write(f"neuroledger: {visible(str(error))}\n")
        return statuses.WRONG
    except NeuroLedgerError as error:
        sys.stderr.write(f"neuroledger: {visible(str(error))}\n")
        return statuses.FAILED if about_pair(error) else statuses.PENDING
    except KeyboardInterrupt:
        sys.stderr.write(
            "\ninterrupted; finished results are stored. Run the same command again to continue.\n"
        )
        return statuses.INTERRUPTED
    except BrokenPipeError:  # the reader closed the pipe, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RecursionError:
        sys.stderr.write(
            "neuroledger: a path or a file is nested too deeply: use one with fewer levels\n"
        )
        return statuses.FAILED
    except OSError as error:  # its message names the path and the reason
        sys.stderr.write(
            f"neuroledger: {visible(str(error)[:500])}: check the path, its permissions and the free disk space\n"
        )
        return statuses.PENDING
    except MemoryError:
        sys.stderr.write(
            "neuroledger: memory is exhausted: free memory, then run the same command again\n"
        )
        return statuses.PENDING
    return code


def _report_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        sys.stderr.write(f"{visible(str(finding))}\n")
    sys.stderr.write(f"{len(findings)} problem{'s' if len(findings) != 1 else ''}\n")
