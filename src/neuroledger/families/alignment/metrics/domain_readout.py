"""Generalisation of a readout that was fitted in one domain of stimuli to other domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import Field, NonNegativeInt, PositiveFloat

from neuroledger.data.arrays import Array, Floats, Indices, Strings, floats
from neuroledger.data.factorize import coordinate, encode, locate, repeated
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.regression.one_against_rest import decisions
from neuroledger.families.alignment.similarity.scale import moderate_columns
from neuroledger.families.fields import AtLeastOne, Names
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import metric
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.variation import held_out_deviation, inflation

__all__ = ["domain_readout"]

PENALTIES = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)


class Paired(Frozen):
    """Domains whose tested stimuli are the partners of the held-out stimuli of the fitted domain.

    Partners share a value of the coordinate ``by``, so that no partner of a tested stimulus is in the training data.
    """

    by: str
    domains: Names


class _Division(NamedTuple):
    """Rows to which the readout is fitted, and the rows tested in each domain."""

    fitted: Indices
    tested: Mapping[str, Indices]


@metric("domain_readout", version=2, input="behaviour", example=examples.of_domains)
def domain_readout(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    fitted: str,
    tested: AtLeastOne = 30,
    divisions: AtLeastOne = 100,
    paired: Paired | None = None,
    penalties: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = PENALTIES,
    ties: Literal["half", "lost"] = "half",
    seed: NonNegativeInt = 0,
) -> Samples:
    """Share of the other labels that the correct label outranks, for each division and domain: ``(split, domain)``.

    In each division, ``tested`` stimuli of every domain are drawn, stratified by label. A ridge readout of each label
    against the others, from responses scaled to unit variance, is fitted to the remaining stimuli of the domain
    ``fitted``, with the penalty of least squared leave-one-out error. The value of a tested stimulus is the share of
    other labels whose decision value is below that of its own label: 1 is perfect, one half is chance.

    Parameters
    ----------
    source, target
        Responses ``(presentation, neuroid)``, and labels ``(presentation,)`` with the coordinate ``domain``. Rows are
        matched by ``stimulus_id``.
    fitted
        The domain to which the readout is fitted.
    paired
        Domains whose tested stimuli are determined by their partners instead of drawn.
    ties
        Value of an equal decision value: one half (``half``), or zero (``lost``).
    seed
        Seed of one stream of scikit-learn's stratified draws: in each division first the fitted domain, then the others in
        the order of ``domain``.

    Raises
    ------
    MetricError
        A coordinate, a domain or a response is missing, a domain has too few stimuli to be divided, or a tested label was
        not fitted.
    """
    domains = coordinate(target, "domain")
    if domains is None or target.ndim != 1:
        raise MetricError(
            "labels need the coordinate 'domain', and one row for each stimulus"
        )
    X = moderate_columns(_responses(source, target))
    labels = encode(as_text(target.values))
    names = list(dict.fromkeys(map(str, domains)))
    rows = {name: np.flatnonzero(domains.astype(str) == name) for name in names}
    if paired is None:
        pairs = None
    else:
        pairs = coordinate(target, paired.by)
    missing = [
        name
        for name in (fitted, *(paired.domains if paired else ()))
        if name not in rows
    ]
    if missing or (paired is not None and (pairs is None or fitted in paired.domains)):
        problem = (
            f"the domain {missing[0]!r}"
            if missing
            else f"partners by {paired.by!r}"
            if paired
            else ""
        )
        raise MetricError(
            f"{problem} cannot be used: the domains are {', '.join(names)}; correct `fitted` or `paired`"
        )
    order = [fitted, *(name for name in names if name != fitted)]
    rule = _Rule(
        order,
        rows,
        labels.codes,
        tested,
        paired,
        None if pairs is None else as_text(pairs),
    )
    values = np.full((divisions, len(order)), np.nan)
    parts: list[tuple[Indices, Floats]] = []
    splits = []
    for number, division in enumerate(rule.draw(divisions, seed)):
        tested_rows = np.concatenate(list(division.tested.values()))
        classes, scores = decisions(
            X[division.fitted], labels.codes[division.fitted], X[tested_rows], penalties
        )
        shares = _outranked(
            scores, classes, labels.codes[tested_rows], labels.labels, ties
        )
        splits.append(Split(division.fitted, division.tested[fitted]))
        start = 0
        for domain, part in enumerate(division.tested.values()):
            domain_shares = shares[start : start + part.size]
            values[number, domain] = domain_shares.mean()
            parts.append((part, domain_shares))
            start += part.size
    coords: dict[str, object] = {"split": np.arange(divisions), "domain": order}
    samples = xr.DataArray(values, dims=("split", "domain"), coords=coords)
    varies = _variation(
        samples, stimulus_names(target, target.size), parts, inflation(splits)
    )
    return Samples(samples, varies, limits=(0.0, 1.0))


def _variation(
    samples: xr.DataArray,
    ids: Strings,
    parts: Sequence[tuple[Indices, Floats]],
    inflated: float,
) -> Variation:
    """Return how the shares change without tested stimuli; the readouts stay.

    ``parts`` are the tested rows, and their shares, of each division and domain.
    """
    from scipy.sparse import csr_matrix

    columns = np.concatenate([rows for rows, _ in parts])
    ends = np.cumsum([0, *(len(rows) for rows, _ in parts)])
    shape = len(parts), len(ids)
    tested = csr_matrix((np.ones(len(columns)), columns, ends), shape)
    shares = csr_matrix(
        (np.concatenate([shares for _, shares in parts]), columns, ends), shape
    )
    count = np.diff(ends)

    def without(keep: Keep) -> xr.DataArray:
        kept = keep["stimulus"].astype(np.float64)
        rest = tested @ kept
        with np.errstate(invalid="ignore", divide="ignore"):
            left = (shares @ kept) / rest
        moved = held_out_deviation(samples.values.ravel(), left, 1 - rest / count)
        return samples.copy(data=moved.reshape(samples.shape))

    return Variation({"stimulus": ids}, without, inflation={"stimulus": inflated})


def _responses(source: xr.DataArray, target: xr.DataArray) -> Floats:
    """Responses in the order of the labels, as float64."""
    if set(source.dims) != {"presentation", "neuroid"}:
        dims = ", ".join(map(str, source.dims))
        raise MetricError(
            f"a readout needs responses (presentation, neuroid), not ({dims})"
        )
    X = floats(source.transpose("presentation", "neuroid").values)
    source_ids = coordinate(source, "stimulus_id")
    target_ids = coordinate(target, "stimulus_id")
    if source_ids is not None and target_ids is not None:
        ids = encode(source_ids)
        if (twice := repeated(ids.codes)).size:
            name = str(ids.labels[ids.codes[twice[0]]])
            raise MetricError(
                f"stimulus {name!r} has several responses of the model; average them first"
            )
        rows = locate(target_ids, source_ids)
        if (rows < 0).any():
            raise MetricError(
                f"the model did not answer stimulus {str(target_ids[rows < 0][0])!r}"
            )
        X = X[rows]
    if len(X) != target.size:
        raise MetricError(
            f"{len(X)} responses for {target.size} labels: both need the coordinate 'stimulus_id'"
        )
    if not np.isfinite(X).all():
        raise MetricError(
            "responses are missing or infinite; a readout needs all of them"
        )
    return X


class _Rule(NamedTuple):
    """Rule that divides the stimuli of each domain; the first domain is the fitted one."""

    order: Sequence[str]
    rows: Mapping[str, Indices]
    codes: Indices
    size: int
    paired: Paired | None
    partners: Any

    def draw(self, divisions: int, seed: int) -> Iterator[_Division]:
        """Yield the divisions in order."""
        stream = np.random.RandomState(seed)
        for _ in range(divisions):
            tested: dict[str, Indices] = {}
            for name in self.order:
                rows = self.rows[name]
                if self.paired is not None and name in self.paired.domains:
                    partners = self.partners[tested[self.order[0]]]
                    tested[name] = rows[np.isin(self.partners[rows], partners)]
                    if not tested[name].size:
                        raise MetricError(
                            f"no stimulus of {name!r} has a partner by {self.paired.by!r}"
                        )
                else:
                    tested[name] = self._part(name, rows, stream)
            first = self.rows[self.order[0]]
            fitted = np.setdiff1d(first, tested[self.order[0]])
            if not fitted.size:
                raise MetricError(
                    f"all {first.size} stimuli of {self.order[0]!r} are tested, so none is left to fit: lower `tested`"
                )
            yield _Division(fitted, tested)

    def _part(self, name: str, rows: Indices, stream: np.random.RandomState) -> Indices:
        from sklearn.model_selection import StratifiedShuffleSplit

        if rows.size == self.size:
            return rows
        try:
            rule = StratifiedShuffleSplit(
                1,
                train_size=self.size,
                test_size=rows.size - self.size,
                random_state=stream,
            )
            drawn = next(rule.split(np.zeros(rows.size), self.codes[rows]))[0]
            return np.asarray(rows[drawn], dtype=np.intp)
        except ValueError as error:
            raise MetricError(
                f"{self.size} of the {rows.size} stimuli of {name!r} cannot be drawn: {error}; lower `tested`"
            ) from error


def _outranked(
    scores: Floats, classes: Indices, truth: Indices, labels: Array, ties: str
) -> Floats:
    """Share of the other labels whose decision value is below that of the true label, (row,)."""
    columns = locate(truth, classes)
    if (columns < 0).any():
        raise MetricError(
            f"the label {str(labels[truth[columns < 0][0]])!r} is tested and was never fitted: the fitted domain needs "
            "stimuli of every label"
        )
    true_scores = scores[np.arange(len(scores)), columns][:, None]
    below = (true_scores > scores).sum(axis=1)
    equal = (true_scores == scores).sum(axis=1) - 1
    result: Floats = (below + (0.5 * equal if ties == "half" else 0.0)) / (
        len(classes) - 1
    )
    return result
