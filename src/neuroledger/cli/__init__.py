"""The command line: words to calls. Each verb's code is imported when that verb is used."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from neuroledger.display import visible
from neuroledger.errors import Finding, NeuroLedgerError, RequestError, SpecError

__all__ = ["main"]

FIGURES = (
    "agreement", "bars", "confusion", "controls", "differences", "heat_map", "layer_map", "layers", "paired", "ranks", "rdm",
    "reliability", "scatter", "time", "tradeoff",
)  # fmt: skip
KINDS = ("datasets", "metrics", "ceilings", "benchmarks", "models", "suites")
DESCRIPTION = "Brain benchmarks as data: declarative specs, pinned data, scores that can be checked again."
# What may be asked, with the flag's help; each is also an argument of `nl.start`.
ANSWERS: Mapping[str, str] = {
    "license": "SPDX licence of the data, such as CC-BY-4.0; LicenseRef-unstated where none is stated",
    "access": "public, or private: scores may be shown, values may not",
    "region": "brain region of the responses, such as V4 or IT",
    "responses": "file of the responses where several may hold them; FILE.mat:VARIABLE",
    "dims": "axes of an array: stimulus or trial, neuroid, repetition or time_bin, such as trial,neuroid",
    "order": "order of the images along an array: name (im1, im10, im2) or number (im1, im2, im10)",
    "trials": "file (or FILE:COLUMN, FILE.mat:VARIABLE) with the stimulus of each trial",
    "first": "number of the first stimulus where trials name stimuli by numbers: 0 or 1",
    "time_bins": "ms from stimulus onset: first and last edge of time bins, or the window in which spikes count, 70:170",
    "task": "BIDS: the task to read, as in task-NAME",
    "events": "BIDS: events to decode, DESCRIPTION=LABEL,DESCRIPTION=LABEL",
    "window": "BIDS: start and end of a window in s from its event, such as 0:1",
}
EXIT_FAILED, EXIT_WRONG, EXIT_INTERRUPTED = 1, 2, 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="neuroledger", description=DESCRIPTION)
    parser.add_argument(
        "--root", type=Path, help="the repository (default: found from the working directory)"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, module: str, help: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=help, description=help)
        added.set_defaults(module=module)
        return added

    p = verb("list", "catalogue", "what there is: a table of specs")
    p.add_argument("kind", nargs="?", choices=KINDS, default="benchmarks")
    p.add_argument("--filter", metavar="TEXT", help="only rows that contain TEXT")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb("show", "catalogue", "one spec: citation, licence, ceiling, controls, who scored it")
    p.add_argument("id")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb("check", "catalogue", "specs, schemas, references, citations, pins: every problem at once")
    p.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    p.add_argument("--json", action="store_true", help="machine-readable")
    p.add_argument("--output", type=Path, help="also write the outcome as JSON to this file")
    p.add_argument(
        "--since", metavar="COMMIT", help="also what changed since then: specs, pins, scores, code"
    )
    p.add_argument(
        "--root",
        type=Path,
        default=argparse.SUPPRESS,
        help="the repository to check, such as a stranger's proposal: nothing of it is run",
    )
    p.add_argument("--write-schemas", action="store_true", help="write specs/schema/ anew before checking")

    p = verb("summary", "catalogue", "what a proposal brings, as Markdown: scores, controls, bytes, licences")
    p.add_argument("--since", metavar="COMMIT", required=True, help="the branch or commit that it would join")
    p.add_argument(
        "--root",
        type=Path,
        default=argparse.SUPPRESS,
        help="the repository, such as a stranger's proposal: nothing of it is run",
    )

    p = verb("new", "catalogue", "a spec file that already passes check")
    p.add_argument("kind", choices=[kind[:-1] for kind in KINDS])
    p.add_argument("id")

    p = verb("start", "data", "from a folder of images and responses, or a BIDS tree, to scores and a page")
    p.add_argument("folder", type=Path)
    p.add_argument("--id", help="of the data set (default: the folder's name)")
    p.add_argument("--title")
    p.add_argument("--model", action="append", default=[], dest="models", metavar="ID", help="also score it")
    p.add_argument(
        "--coordinate", action="append", default=[], dest="coordinates", metavar="COLUMN",
        help="a column of numbers that is not a neuroid",
    )  # fmt: skip
    p.add_argument("--degrees", type=float, help="size of the images in degrees of visual angle")
    p.add_argument("--out", type=Path, metavar="DIR", help="where the pages go (default: site-ID)")
    p.add_argument("--no-questions", action="store_true", help="report what is missing instead of asking")
    p.add_argument("--open", action="store_true", help="open the page in the browser")
    p.add_argument(
        "--root",
        type=Path,
        default=argparse.SUPPRESS,
        help="the repository; a folder without specs/ becomes one",
    )
    for flag, help in ANSWERS.items():
        p.add_argument(f"--{flag.replace('_', '-')}", dest=flag, help=help)

    p = verb("package", "data", "from a lab's files to a pinned data set")
    p.add_argument("part", choices=("stimuli", "assembly", "model"))
    p.add_argument("id", help="the data set or model, new or not")
    p.add_argument(
        "source", type=Path,
        help="stimuli: a CSV table or a folder of images; assembly: netCDF, npy, mat or a table; model: a checkpoint",
    )  # fmt: skip
    p.add_argument("--files", type=Path, metavar="FOLDER", help="stimuli: the folder of the table's files")
    p.add_argument("--license", help=ANSWERS["license"])
    p.add_argument("--access", choices=("public", "private"), help="of a new data set")
    p.add_argument("--dims", help="assembly: " + ANSWERS["dims"])
    p.add_argument("--region", help="assembly: " + ANSWERS["region"])
    p.add_argument("--variable", help="assembly: of a mat file")
    p.add_argument("--trials", type=Path, metavar="CSV", help="assembly: a stimulus_id for each trial")
    p.add_argument(
        "--module",
        dest="torch_class",
        metavar="package.module:Class",
        help="model without a spec: its torch class",
    )
    p.add_argument(
        "--region-layer", action="append", default=[], metavar="REGION=LAYER", help="model without a spec"
    )
    p.add_argument(
        "--readout", metavar="LAYER", help="model without a spec: layer that decisions are read from"
    )
    p.add_argument(
        "--logits",
        metavar="LAYER",
        help="model without a spec: layer that labels are decided from, if another",
    )
    p.add_argument("--arguments", type=json.loads, metavar="JSON", help="model without a spec: of its class")
    p.add_argument(
        "--preprocessing", type=json.loads, metavar="JSON", help="model without a spec: docs/models.md"
    )
    p.add_argument("--time-bins", metavar="MS", help="assembly: first and last edge of the time bins, 0:200")

    p = verb(
        "pin",
        "data",
        "files that you downloaded: hashed, read once, put in place, and pinned in their data set's spec",
    )
    p.add_argument("id", help="the data set, or a model whose weights are not pinned yet")
    p.add_argument("--from", dest="source", type=Path, required=True, metavar="FOLDER", help="where they lie")
    p.add_argument("--url-prefix", metavar="URL", help="address of the same folder: others can fetch then")
    p.add_argument("--label", metavar="COLUMN", help="column of participants.tsv or recordings.tsv to decode")
    p.add_argument(
        "--event", action="append", default=[], metavar="DESCRIPTION=LABEL", help="an event and what it shows"
    )
    p.add_argument(
        "--named",
        action="append",
        default=[],
        metavar="PATTERN",
        help="how recordings of a plain folder are called, such as 'S{subject}_{run}.edf'",
    )
    p.add_argument("--task", help="only this BIDS task")
    p.add_argument(
        "--bids", action="store_true", help="read through mne-bids: events.tsv and channels.tsv count"
    )
    p.add_argument("--renew", action="store_true", help="files that changed since they were pinned are meant")
    p.add_argument(
        "--no-check", action="store_true", help="do not read the files first: data too large for this machine"
    )
    p.add_argument("--dry-run", action="store_true", help="show the spec's changes, write nothing")

    p = verb("embed", "bridges", "stimuli through a model: the table of embeddings that retrieval needs")
    p.add_argument("model", help="a model that embeds, or one with layers")
    p.add_argument(
        "--table", type=Path, metavar="CSV", help="stimulus_id, and text, or filename, start, duration"
    )
    p.add_argument("--dataset", metavar="ID", help="the stimuli that this data set's reader lists")
    p.add_argument(
        "--from", dest="source", type=Path, metavar="FOLDER", help="where the data set's downloads lie"
    )
    lie = p.add_mutually_exclusive_group()
    lie.add_argument("--images", type=Path, metavar="FOLDER", help="where the images lie; alone: all of them")
    lie.add_argument("--sounds", type=Path, metavar="FOLDER", help="where the sounds of the table lie")
    lie.add_argument("--videos", type=Path, metavar="FOLDER", help="where the films of the table lie")
    p.add_argument("--names", action="store_true", help="images go by their names without folders")
    p.add_argument("--layer", help="which of the model's layers, or hidden states by number: 8, or 22,24")
    p.add_argument(
        "--mean", type=int, action="append", default=[], metavar="AXIS", help="average this axis of the layer"
    )
    p.add_argument("--device", default="cpu", help="cpu, cuda, mps or auto")
    p.add_argument("--out", type=Path, required=True, metavar="FILE.nc")

    p = verb("import", "bridges", "data sets of other projects, pinned and guarded here")
    p.add_argument("project", choices=("brainscore", "brainscore-model", "openneuro", "nemar", "dandi"))
    p.add_argument(
        "id",
        metavar="KEY",
        help="brainscore: a benchmark, data set or stimulus set, or with files the id of a new data set; openneuro, "
        "nemar, dandi: theirs, such as ds004504",
    )
    p.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="assy_*.nc, stimulus_*.csv, stimulus_*.zip; of brainscore-model: the checkpoint of its weights",
    )
    p.add_argument(
        "--from",
        dest="source",
        metavar="REPOSITORY",
        help="a clone, its address, or a listing (.tsv); of brainscore and brainscore-model: the folder of a plugin",
    )
    p.add_argument(
        "--as", dest="dataset", metavar="DATASET", help="the data set here, new or not (default: ID)"
    )
    p.add_argument("--task", action="append", default=[], help="read this BIDS task (repeat it)")
    p.add_argument(
        "--event", action="append", default=[], metavar="TYPE=LABEL", help="a type of trial and what it shows"
    )
    p.add_argument(
        "--window", type=float, nargs=2, default=(0.0, 1.0), metavar=("START", "DURATION"), help="in seconds"
    )
    p.add_argument(
        "--published",
        action="append",
        default=[],
        metavar="PATTERN",
        help="pin these files, which no reader reads, as they are, such as 'sourcedata/*.mat'",
    )
    p.add_argument("--version", default="draft", help="of a dandiset, such as 0.220113.0400")
    p.add_argument("--datatype", choices=("eeg", "meg", "ieeg", "emg"), default="eeg")
    p.add_argument(
        "--facts", type=Path, metavar="JSON", help="of a listing: its license, title, authors, doi and trials"
    )
    p.add_argument(
        "--sha1", action="append", default=[], metavar="FILE=SHA1", help="what the registry states of a file"
    )
    p.add_argument("--access", choices=("public", "private"), default="public", help="who may have the files")
    p.add_argument("--degrees", type=float, metavar="D", help="degrees of visual angle of the stimuli")

    p = verb("export", "bridges", "data sets and results in the layout of other projects")
    p.add_argument("project", choices=("brainscore", "neurobench", "sc-neurocore"))
    p.add_argument("id", help="a data set; a benchmark for neurobench and sc-neurocore")
    p.add_argument("--out", type=Path, default=Path("export"), metavar="DIR")

    p = verb("fetch", "data", "bring data sets' (and models') files to data/, verified")
    p.add_argument("ids", nargs="*", metavar="ID", help="data sets or models")
    p.add_argument("--suite", help="everything that this suite needs")
    p.add_argument(
        "--force", action="store_true", help="replace files that were changed after they were fetched"
    )

    p = verb("validate", "data", "hash, structure and expectations of data sets")
    p.add_argument("ids", nargs="*", metavar="DATASET", help="default: every data set whose files are here")
    p.add_argument("--suite", help="the data sets of this suite")
    p.add_argument("--force", action="store_true", help="examine again even if nothing changed")
    p.add_argument("--data-docs", type=Path, metavar="DIR", help="also write Great Expectations' own pages")
    p.add_argument("--allow-invalid", action="store_true", help="exit 0 even if a data set is invalid")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb(
        "audit", "data", "copies, counts, units, flat channels and leaks of the label in a set of signals"
    )
    p.add_argument("id", metavar="DATASET")
    p.add_argument("--out", type=Path, metavar="FILE.md", help="also write the report to this file")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb("run", "scoring", "score what is missing")
    p.add_argument("models", nargs="*", metavar="MODEL", help="default: the suite's models")
    p.add_argument("--benchmark", action="append", default=[], dest="benchmarks", metavar="B")
    p.add_argument(
        "--suite", action="append", default=[], dest="suites", metavar="SUITE",
        help="repeat it, or `all`; default: the suite in params.yaml",
    )  # fmt: skip
    _request(p)
    p.add_argument("--executor", default="local", metavar="E", help="local, processes[:N], dask[:ADDRESS]")
    p.add_argument("--dry-run", action="store_true", help="print the plan, write nothing")
    p.add_argument("--retry-failed", action="store_true", help="try failed jobs again")
    p.add_argument("--force", action="store_true", help="compute everything again")
    p.add_argument("--allow-failed", action="store_true", help="exit 0 even if jobs failed")

    p = verb("score", "scoring", "one model on one benchmark, printed as a card")
    p.add_argument("model")
    p.add_argument("benchmark")
    p.add_argument(
        "--layers", action="store_true", help="every layer in the region's place; nothing is recorded"
    )
    _request(p)
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb(
        "evaluate", "scoring", "one model on every benchmark of a suite that fits it; nothing is recorded"
    )
    p.add_argument("model")
    p.add_argument("--suite", help="default: the suite in params.yaml; unlisted: what no suite lists")
    p.add_argument("--benchmark", action="append", default=[], dest="benchmarks", metavar="B")
    _request(p)

    p = verb(
        "cost", "scoring", "what a model costs: operations, sparsity, or the costs that a benchmark lists"
    )
    p.add_argument("model")
    p.add_argument("--benchmark", metavar="B", help="default: the first that fits and whose data are here")
    p.add_argument("--device", default="cpu", help="cpu, cuda, mps")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb("verify", "scoring", "are these records still what their inputs give?")
    p.add_argument("records", nargs="*", type=Path, metavar="RECORD", help="default: all records")
    p.add_argument("--recompute", action="store_true", help="also compute the scores again and compare")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p.add_argument(
        "--signers",
        type=Path,
        metavar="FILE",
        help="allowed signers: tell signed records from self-reported ones",
    )

    p = verb("sign", "scoring", "recompute records, and sign those that are reproduced with an SSH key")
    p.add_argument("records", nargs="*", type=Path, metavar="RECORD", help="default: all records")
    p.add_argument("--key", type=Path, required=True, help="an SSH key, such as ~/.ssh/id_ed25519")

    p = verb("leaderboard", "results", "the table of scores, with ties, floor and ceiling")
    p.add_argument("--suite", help="default: the suite in params.yaml")
    p.add_argument("--format", choices=("text", "json", "csv", "markdown", "latex"), default="text")

    p = verb("history", "results", "the scores of a benchmark over the commits of this repository")
    p.add_argument("benchmark", metavar="BENCHMARK")
    p.add_argument("model", nargs="?", metavar="MODEL", help="default: every model")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb("compare", "results", "two models: paired differences, interval, corrected p")
    p.add_argument("a")
    p.add_argument("b")
    p.add_argument("--suite", help="default: the suite in params.yaml")
    p.add_argument("--benchmark", help="on this benchmark alone")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb("ranks", "results", "mean normalised ranks of a suite's models, and how another suite agrees")
    p.add_argument("--suite", help="default: the suite in params.yaml")
    p.add_argument("--against", metavar="SUITE", help="Kendall's tau between the two orders")
    p.add_argument("--published", action="store_true", help="of the published figures, not of the records")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb(
        "diagnose", "results", "what a suite measures: coverage, agreement, axes, redundancy, panel, growth"
    )
    p.add_argument("suite", nargs="?", help="default: the suite in params.yaml")
    p.add_argument("--published", action="store_true", help="of the published figures, not of the records")
    p.add_argument(
        "--table", type=Path, metavar="CSV", help="of a table: models in rows, benchmarks in columns"
    )
    p.add_argument("--out", type=Path, metavar="FILE", help="also write a page (html)")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb("pareto", "results", "score against cost of the same models: who is on the front")
    p.add_argument("benchmark")
    p.add_argument("--cost", default="effective_macs", metavar="METRIC", help="default: effective_macs")
    p.add_argument("--out", type=Path, metavar="FILE", help="also draw it (svg, pdf, png)")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb("plot", "figures", "a figure of scores, models or data, written to a file")
    p.add_argument("figure", choices=FIGURES)
    p.add_argument(
        "names", nargs="*", metavar="NAME", help="benchmarks, models or data sets, as the figure needs"
    )
    p.add_argument(
        "--benchmark", action="append", default=[], metavar="B", help="for figures of models; may be repeated"
    )
    p.add_argument("--suite", help="default: the suite in params.yaml")
    p.add_argument(
        "--by", default=None, metavar="COORDINATE", help="paired: default subject; rdm: groups of stimuli"
    )
    p.add_argument("--out", type=Path, required=True, metavar="FILE", help="svg, pdf or png")

    p = verb("report", "results", "static pages of everything that was scored")
    p.add_argument("--out", type=Path, default=Path("site"))
    p.add_argument("--suite", help="default: the suite in params.yaml")
    p.add_argument("--serve", action="store_true", help="show them on http://localhost")

    p = verb("calibrate", "results", "simulate a benchmark's experiments: do its intervals and tests hold")
    p.add_argument("benchmarks", nargs="*", metavar="BENCHMARK", help="default: those that have records")
    p.add_argument("--suite", help="the benchmarks of this suite")
    p.add_argument("--runs", type=int, default=200, help="simulated experiments each; default: 200")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb(
        "doctor", "results", "versions, devices, remotes, missing data, each with the command that fixes it"
    )
    p.add_argument("--json", action="store_true", help="machine-readable")
    return parser


def _request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, help="default: params.yaml")
    parser.add_argument("--limit", type=int, metavar="N", help="first N stimuli only: partial, never ranked")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, mps (default: params.yaml)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code: 0 well, 1 something failed, 2 the request is wrong, 130 interrupted."""
    parser, words = _parser(), list(sys.argv[1:] if arguments is None else arguments)
    for word in words:
        if word.startswith("--") and word.endswith("=--"):  # which Python would make an empty list of
            parser.error(f"argument {word[:-3]}: expected a value")
    options = parser.parse_args(words)
    try:
        module = importlib.import_module(f"neuroledger.cli.{options.module}")
        code: int = getattr(module, {"import": "bring_in"}.get(options.verb, options.verb))(options)
        sys.stdout.flush()
    except SpecError as error:
        _complain(error.findings)
        return EXIT_FAILED
    except RequestError as error:
        sys.stderr.write(f"neuroledger: {visible(str(error))}\n")
        return EXIT_WRONG
    except NeuroLedgerError as error:
        sys.stderr.write(f"neuroledger: {visible(str(error))}\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped; what was finished is kept. Run the same command again to go on.\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RecursionError:
        sys.stderr.write(
            "neuroledger: a path or a file has more levels than can be followed: name a plainer one\n"
        )
        return EXIT_FAILED
    except OSError as error:  # of a path that was given, or of a disk: it says what and where
        sys.stderr.write(
            f"neuroledger: {visible(str(error)[:500])}: correct the path, or the rights and space there\n"
        )
        return EXIT_FAILED
    return code


def _complain(problems: Sequence[Finding]) -> None:
    for problem in problems:
        sys.stderr.write(f"{visible(str(problem))}\n")
    sys.stderr.write(f"{len(problems)} problem{'s' if len(problems) != 1 else ''}\n")
