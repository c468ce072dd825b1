"""What somebody says about a folder of downloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Downloads", "Recorded"]


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """Where the downloads lie and what their files cannot say themselves.

    Attributes
    ----------
    folder
        A BIDS folder, or any folder of recordings, with a table `recordings.tsv` where names do not tell whose they
        are; for other readers the folder of the files that they read.
    url_prefix
        Where the same files can be fetched from: the address of a file is this and its name in the folder. Without it,
        the files are pinned as brought by hand.
    label
        Column of the table that is to be decoded.
    events
        What the events are called here, by their description in the recordings.
    named
        How recordings are called in a plain folder: patterns with `{subject}`, and `{session}`, `{run}` and facts.
    task
        Only recordings of this BIDS task.
    bids
        Read through mne-bids: events from `events.tsv`, channel types from `channels.tsv`.
    renew
        Files that are pinned with other bytes already get the pins of these.
    observe
        A spec without expectations gets those that hold of these files today.
    check
        Read the files once, and hold the spec's expectations against them, before anything is written.
    """

    folder: Path
    url_prefix: str | None = None
    label: str | None = None
    events: Mapping[str, str] | None = None
    named: tuple[str, ...] = ()
    task: str | None = None
    bids: bool = False
    renew: bool = False
    check: bool = True
    observe: bool = False

    @property
    def about_recordings(self) -> list[str]:
        """Options that were given and say something of recordings alone."""
        said = {"--label": self.label, "--event": self.events, "--task": self.task, "--bids": self.bids}
        return [option for option, value in said.items() if value]


class Recorded(NamedTuple):
    """Names of the files, the spec's text, the number of people, remarks, and the recordings as the reader wants them."""

    files: list[str]
    text: str
    subjects: int
    remarks: list[str]
    entries: list[dict[str, Any]] | None
