"""Generalisation of a readout that was fitted in one domain of stimuli to other domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats, Indices
from neuroledger.data.factorize import coordinate, encode, locate
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.one_against_rest import decisions
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import metric
from neuroledger.stats.resampling import Cells

__all__ = ["domain_readout"]

PENALTIES = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)


class Paired(Frozen):
    """Domains whose tested stimuli are the partners of the held-out stimuli of the fitted domain.

    Partners share a value of the coordinate ``by``, so that no partner of a tested stimulus is in the training data.
    """

    by: str
    domains: Annotated[tuple[str, ...], Field(min_length=1)]


class _Division(NamedTuple):
    """Rows to which the readout is fitted, and the rows tested in each domain."""

    fitted: Indices
    tested: Mapping[str, Indices]


@metric("domain_readout", version=1, input="behaviour")
def domain_readout(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    fitted: str,
    tested: Annotated[int, Field(ge=1)] = 30,
    divisions: Annotated[int, Field(ge=1)] = 100,
    paired: Paired | None = None,
    penalties: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = PENALTIES,
    ties: Literal["half", "lost"] = "half",
    seed: Annotated[int, Field(ge=0)] = 0,
) -> xr.DataArray:
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
        raise MetricError("labels need the coordinate 'domain', and one row for each stimulus")
    X = _responses(source, target)
    labels = encode(as_text(target.values))
    names = list(dict.fromkeys(str(one) for one in domains))
    rows = {name: np.flatnonzero(domains.astype(str) == name) for name in names}
    pairs = None if paired is None else coordinate(target, paired.by)
    lost = [name for name in (fitted, *(paired.domains if paired else ())) if name not in rows]
    if lost or (paired is not None and (pairs is None or fitted in paired.domains)):
        told = f"the domain {lost[0]!r}" if lost else f"partners by {paired.by!r}" if paired else ""
        raise MetricError(
            f"{told} cannot be used: the domains are {', '.join(names)}; correct `fitted` or `paired`"
        )
    order = [fitted, *(name for name in names if name != fitted)]
    rule = _Rule(order, rows, labels.codes, tested, paired, None if pairs is None else as_text(pairs))
    values = np.full((divisions, len(order)), np.nan)
    cells: list[tuple[Indices, Floats]] = []
    for number, division in enumerate(rule.draw(divisions, seed)):
        held = np.concatenate(list(division.tested.values()))
        classes, found = decisions(X[division.fitted], labels.codes[division.fitted], X[held], penalties)
        shares = _outranked(found, classes, labels.codes[held], labels.labels, ties)
        influence = np.zeros((held.size, len(order)))
        at = 0
        for domain, part in enumerate(division.tested.values()):
            own = shares[at : at + part.size]
            values[number, domain] = own.mean()
            influence[at : at + part.size, domain] = (own - own.mean()) / part.size
            at += part.size
        cells.append((held, influence))
    coords: dict[str, Any] = {"split": np.arange(divisions), "domain": order}
    out = xr.DataArray(values, dims=("split", "domain"), coords=coords)
    ids = coordinate(target, "stimulus_id")
    out.attrs["cells"] = Cells(np.arange(target.size) if ids is None else ids, cells)
    return out


def _responses(source: xr.DataArray, target: xr.DataArray) -> Floats:
    """Responses in the order of the labels, as float64."""
    if set(source.dims) != {"presentation", "neuroid"}:
        held = ", ".join(map(str, source.dims))
        raise MetricError(f"a readout needs responses (presentation, neuroid), not ({held})")
    X = np.asarray(source.transpose("presentation", "neuroid").values, dtype=np.float64)
    own, wanted = coordinate(source, "stimulus_id"), coordinate(target, "stimulus_id")
    if own is not None and wanted is not None:
        place = locate(wanted, own)
        if (place < 0).any():
            raise MetricError(f"the model did not answer stimulus {str(wanted[place < 0][0])!r}")
        X = X[place]
    if len(X) != target.size:
        raise MetricError(
            f"{len(X)} responses for {target.size} labels: both need the coordinate 'stimulus_id'"
        )
    if not np.isfinite(X).all():
        raise MetricError("responses are missing or infinite; a readout needs all of them")
    return X


class _Rule(NamedTuple):
    """Rule that divides the stimuli of each domain; the first domain is the fitted one."""

    order: Sequence[str]
    rows: Mapping[str, Indices]
    codes: Indices
    each: int
    paired: Paired | None
    partners: Any

    def draw(self, divisions: int, seed: int) -> Iterator[_Division]:
        """Yield the divisions in order."""
        stream = np.random.RandomState(seed)
        for _ in range(divisions):
            tested: dict[str, Indices] = {}
            for name in self.order:
                own = self.rows[name]
                if self.paired is not None and name in self.paired.domains:
                    partners = self.partners[tested[self.order[0]]]
                    tested[name] = own[np.isin(self.partners[own], partners)]
                    if not tested[name].size:
                        raise MetricError(f"no stimulus of {name!r} has a partner by {self.paired.by!r}")
                else:
                    tested[name] = self._part(name, own, stream)
            first = self.rows[self.order[0]]
            fitted = np.setdiff1d(first, tested[self.order[0]])
            if not fitted.size:
                raise MetricError(
                    f"all {first.size} stimuli of {self.order[0]!r} are tested, so none is left to fit: lower `tested`"
                )
            yield _Division(fitted, tested)

    def _part(self, name: str, own: Indices, stream: np.random.RandomState) -> Indices:
        from sklearn.model_selection import StratifiedShuffleSplit

        if own.size == self.each:
            return own
        try:
            rule = StratifiedShuffleSplit(
                1, train_size=self.each, test_size=own.size - self.each, random_state=stream
            )
            drawn = next(rule.split(np.zeros(own.size), self.codes[own]))[0]
            return np.asarray(own[drawn], dtype=np.intp)
        except ValueError as error:
            raise MetricError(
                f"{self.each} of the {own.size} stimuli of {name!r} cannot be drawn: {error}; lower `tested`"
            ) from error


def _outranked(found: Floats, classes: Indices, truth: Indices, labels: Any, ties: str) -> Floats:
    """Share of the other labels whose decision value is below that of the true label, (row,)."""
    place = locate(truth, classes)
    if (place < 0).any():
        raise MetricError(
            f"the label {str(labels[truth[place < 0][0]])!r} is tested and was never fitted: the fitted domain needs "
            "stimuli of every label"
        )
    own = found[np.arange(len(found)), place][:, None]
    below, equal = (own > found).sum(axis=1), (own == found).sum(axis=1) - 1
    won: Floats = (below + (0.5 * equal if ties == "half" else 0.0)) / (len(classes) - 1)
    return won
