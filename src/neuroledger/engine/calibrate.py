"""Does a benchmark's inference hold what it says: simulated from its own data, and written beside the records."""

from __future__ import annotations

import json
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from pydantic import TypeAdapter

from neuroledger.data.assembly import average_repetitions
from neuroledger.display import visible
from neuroledger.engine.bound_metric import BoundCeiling, BoundMetric, ceiling, metric
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.overrides import in_compat
from neuroledger.engine.plan import fits
from neuroledger.engine.session import Request, Session
from neuroledger.errors import Finding, MetricError, NeuroLedgerError, RequestError
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import json_object
from neuroledger.spec.identity import spec_sha256
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.calibration import Calibration, calibrate, generator_of
from neuroledger.stats.score import Score, normalise
from neuroledger.store.files import write_json

__all__ = ["calibrate_benchmark", "calibration_in", "calibration_path", "refuted"]

# What the file of a calibration says of itself.
HEADER: Final = {"benchmark", "metric", "ceiling", "identity", "seed", "runs"}


def calibration_path(root: Path, benchmark: str) -> Path:
    """Where the calibration of a benchmark is kept."""
    return root / "results" / "calibration" / f"{benchmark}.json"


def calibrate_benchmark(
    catalog: Catalog, benchmark: str, *, runs: int = 200, seed: int = 0, write: bool = True
) -> Calibration:
    """Simulate ``runs`` experiments like the benchmark's and record what its intervals, tests and ranks do there.

    Raises
    ------
    NeuroLedgerError
        The benchmark cannot be scored here, has no interval, or no generative model of its data is known.
    """
    if runs < 20:
        raise RequestError(f"{runs} runs say nothing about a rate of 5 %; simulate at least 20")
    spec = catalog.benchmark(benchmark)
    session = Session(catalog, Request(seed=seed))
    measured = evaluate(session, spec, _model(catalog, spec), controls=False).measured
    bound, top = _metric(catalog, spec, seed), _ceiling(catalog, spec, seed)
    whole = measured.repeated if top is not None else None
    generator = generator_of(measured.source, measured.target, whole)
    drawn = generator(np.random.default_rng(seed), 1)[1]
    if top is not None:
        try:
            top(drawn)
        except MetricError:  # it is read from the data, or needs what a simulated experiment does not have
            top = None
    # One experiment has one ceiling, whatever number of models are scored.
    kept: dict[int, tuple[xr.DataArray, xr.DataArray, Score | None]] = {}

    def score(source: xr.DataArray, target: xr.DataArray) -> Score:
        if id(target) not in kept:
            kept.clear()
            mean = average_repetitions(target) if "repetition" in target.coords else target
            kept[id(target)] = (target, mean, None if top is None else top(target))
        _, mean, ceiling = kept[id(target)]
        raw = bound(source, mean).replace(generalise=spec.generalise)
        return raw if ceiling is None else normalise(raw, ceiling)

    found = calibrate(score, generator, runs=runs, seed=seed)
    if write:
        plain = {
            "benchmark": benchmark,
            "metric": bound.spec.id,
            "ceiling": "" if top is None else top.spec.id,
            "identity": {"benchmark": spec_sha256(spec), "metric": bound.identity},
            "seed": seed,
            "runs": runs,
        }
        write_json(calibration_path(catalog.root, benchmark), plain | found.to_dict())
    return found


def calibration_in(content: bytes | None) -> tuple[dict[str, Any], Calibration]:
    """What a file of ``results/calibration`` says of itself, and the calibration that it holds.

    Raises
    ------
    ValueError
        A field is missing, unknown or of another type, or its rates and verdict are not what their counts give.
    """
    plain = json_object(content)
    rest = {field.name: plain.get(field.name) for field in fields(Calibration)}
    found = TypeAdapter(Calibration).validate_json(json.dumps(rest), strict=True)
    header = {name: value for name, value in plain.items() if name not in rest and name != "passed"}
    if set(header) != HEADER or not isinstance(header["identity"], dict):
        raise ValueError(f"it has the fields {', '.join(sorted(plain))}")
    for one in (found.coverage, found.false_positives, found.false_ranks):
        if one.runs != header["runs"] or not one.exact:
            raise ValueError(f"{one} is not of {header['runs']} runs")
    if plain.get("passed") is not found.passed:
        raise ValueError(f"its rates give passed: {found.passed}")
    return header, found


def _model(catalog: Catalog, spec: BenchmarkSpec) -> str:
    """Any model that the benchmark can be asked of: what it gives is replaced, its shape is not."""
    controls = (*spec.controls.negative, *spec.controls.positive)
    for id in (*controls, *catalog.ids("models")):
        model = catalog.model(id)
        if model.unavailable is None and (id in controls or fits(catalog, id, spec.id)):
            return id
    raise MetricError(f"{spec.id} has no model here to simulate others after")


def _metric(catalog: Catalog, spec: BenchmarkSpec, seed: int) -> BoundMetric:
    wanted = spec.all_metrics[0]
    name = wanted if isinstance(wanted, str) else wanted.name
    return metric(wanted, catalog=catalog, seed=seed, **in_compat(catalog.metric(name), spec.compat))


def _ceiling(catalog: Catalog, spec: BenchmarkSpec, seed: int) -> BoundCeiling | None:
    if spec.normalised_by != "ceiling" or spec.ceiling is None:
        return None
    name = spec.ceiling if isinstance(spec.ceiling, str) else spec.ceiling.name
    return ceiling(spec.ceiling, catalog=catalog, seed=seed, **in_compat(catalog.ceiling(name), spec.compat))


def refuted(catalog: Catalog) -> dict[str, str]:
    """Benchmarks whose intervals failed their calibration, with the reason; those of changed specs do not count.

    A file that is not a calibration, or is one of a benchmark that is gone, is logged as a finding and left out.
    """
    found: dict[str, str] = {}
    for path in sorted(calibration_path(catalog.root, "x").parent.glob("*.json")):
        try:
            plain = json_object(path.read_bytes())
            id = plain["benchmark"]
            if plain["passed"] or plain["identity"]["benchmark"] != spec_sha256(catalog.benchmark(id)):
                continue
            found[id] = (
                f"interval withheld: in {plain['runs']} simulated experiments it covers the truth in "
                f"{plain['coverage']['value']:.0%}, and {plain['false_positives']['value']:.0%} of equal models differ"
            )
        except (OSError, ValueError, LookupError, TypeError, NeuroLedgerError) as error:
            words = f"it is not a calibration ({error})"
            finding = Finding(
                "record.unreadable", "error", path.name, words, "delete it, and calibrate again"
            )
            logging.getLogger("neuroledger").warning("%s", visible(str(finding)))
    return found
