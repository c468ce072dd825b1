"""Trial tables in the format of the model-vs-human toolbox: one CSV file per observer and session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.errors import DataError

__all__ = ["answers_by_stimulus", "image_key", "read_trial_tables", "texture_of"]

COLUMNS = (
    "subj",
    "session",
    "trial",
    "object_response",
    "category",
    "condition",
    "imagename",
)


def image_key(name: str) -> str:
    """Return the part of an image name that is the same for all observers.

    Image names of people's trials begin with parts that are specific to the trial. An ImageNet image is identified by the
    last two parts, any other image by the last.

    >>> image_key("0001_cl_s01_cr_oven_40_n04111531_14126.png")
    'n04111531_14126.png'
    >>> image_key("0001_s5n_s01_0_bird_00_bird3-bird2.png")
    'bird3-bird2.png'
    """
    parts = name.split("_")
    if len(parts) > 1 and parts[-2].startswith("n0"):
        return "_".join(parts[-2:])
    return parts[-1]


def texture_of(key: str) -> str:
    """Return the category of the texture of a cue-conflict image.

    >>> texture_of("bird3-clock2.png")
    'clock'
    """
    return re.sub(r"\d", "", key.rsplit(".", 1)[0].rsplit("-", 1)[-1])


def read_trial_tables(paths: Sequence[Path]) -> xr.DataArray:
    """Return the answers in all files ``(presentation,)``, with subject, stimulus, session, trial and condition.

    ``stimulus_id`` is the experiment (the file name up to its first underscore) and the image; ``truth`` is the right
    answer; ``condition`` is that of the experiment, or ``all`` if there is only one; ``texture`` is the category of the
    texture of cue-conflict images, and the truth for other images. A missed answer is ``na``. If an observer saw one image
    in several conditions, ``@`` and the condition are appended to the stimulus ids of the experiment.

    Raises
    ------
    DataError
        A file is not a table of this format.
    """
    tables = list(map(_table, paths))
    if not tables:
        raise DataError("there are no trial tables to read")
    table = pd.concat(tables, ignore_index=True)
    # Counted over all files, because a session may contain only one of several conditions.
    several = table.groupby("experiment")["condition"].transform("nunique") > 1
    table["condition"] = table["condition"].where(several, "all")
    conditions = table.groupby(["experiment", "subject", "stimulus_id"])[
        "condition"
    ].transform("nunique")
    repeated = (conditions > 1).groupby(table["experiment"]).transform("any")
    table["stimulus_id"] = table["stimulus_id"].where(
        ~repeated, table["stimulus_id"] + "@" + table["condition"]
    )
    text = ("stimulus_id", "subject", "condition", "truth", "texture")
    coords = {name: ("presentation", table[name].to_numpy(dtype=str)) for name in text}
    numbers = {
        name: ("presentation", table[name].to_numpy(dtype=np.int64))
        for name in ("session", "trial")
    }
    return xr.DataArray(
        table["object_response"].to_numpy(dtype=str),
        dims=("presentation",),
        coords={**coords, **numbers},
    )


def answers_by_stimulus(trials: xr.DataArray) -> dict[str, str]:
    """Return the answer to each stimulus, from trials of one observer.

    Raises
    ------
    DataError
        A stimulus has two answers.
    """
    ids = trials["stimulus_id"].values.astype(str).tolist()
    answers = dict(zip(ids, trials.values.astype(str).tolist(), strict=True))
    if len(answers) != len(ids):
        raise DataError(
            f"{len(ids) - len(answers)} stimuli have several answers; keep only the table of one observer"
        )
    return answers


def _table(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except (ValueError, OSError) as error:
        raise DataError(
            f"{path.name} cannot be read as a CSV table ({error}): it is damaged or incomplete"
        ) from error
    table.columns = [str(name).lower() for name in table.columns]
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing or table.empty:
        raise DataError(
            f"{path.name} is not a trial table: it lacks {', '.join(missing) or 'trials'}"
        )
    experiment = path.name.split("_")[0]
    keys = table["imagename"].map(image_key)
    table["stimulus_id"] = experiment + ":" + keys
    table["subject"] = table["subj"]
    table["truth"] = table["category"]
    table["experiment"] = experiment
    conflict = keys.str.match(r"^[a-z]+\d+-[a-z]+\d+\.png$")
    table["texture"] = np.where(conflict, keys.map(texture_of), table["truth"])
    return table
