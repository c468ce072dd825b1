"""Formats of recordings by the suffix of their file: what is read, what is refused, and how to convert the rest."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["FORMATS", "OPENED", "Format", "advice"]


class Format(NamedTuple):
    """A format of recordings.

    Attributes
    ----------
    suffixes, name
        Of the file that is opened.
    read_by
        The reader of this project and the package that it uses; empty for a format that is not read.
    works, refused
        What is tested to be read, and what is refused, with a reason in the error.
    otherwise
        How to convert a file that is not read.
    tests
        Names of tests that write such files, or read those of its makers.
    """

    suffixes: tuple[str, ...]
    name: str
    read_by: str
    works: str
    refused: str
    otherwise: str
    tests: tuple[str, ...] = ()


TO_FIF: Final = 'open it with MNE, and save it by `raw.save("NAME_raw.fif")`'
FORMATS: Final[tuple[Format, ...]] = (
    Format(
        (".edf", ".bdf"),
        "EDF, EDF+, BDF, BDF+",
        "`mne_epochs` (MNE)",
        "annotations, status channels, gaps of EDF+D and BDF+D by the clock, picked channels of one rate",
        "channels of several rates without `resample`, a clock that was set back, a header that does not match its file",
        "EDFbrowser splits files at gaps and by rates",
        (
            "test_windows_after_a_gap_are_cut_by_the_clock",
            "test_channels_of_several_rates_are_refused_with_the_rates",
        ),
    ),
    Format(
        (".gdf",),
        "GDF",
        "`mne_epochs` (MNE)",
        "events, picked channels of one rate",
        "channels of several rates without `resample`",
        TO_FIF,
        ("test_a_folder_becomes_the_scores_of_mne_pyriemann_and_scikit_learn",),
    ),
    Format(
        (".vhdr",),
        "BrainVision",
        "`mne_epochs` (MNE)",
        "`.eeg` or `.dat` and `.vmrk` as the header names them, no markers, pauses as joints",
        "a header that names a missing file, or one outside its folder",
        "correct `DataFile=` and `MarkerFile=` in the header",
        (
            "test_a_header_with_another_name_belongs_to_the_files_that_it_names",
            "test_no_window_crosses_a_pause_of_brainvision",
        ),
    ),
    Format(
        (".set",),
        "EEGLAB",
        "`mne_epochs` (MNE; pymatreader for version 7.3)",
        "one file or `.fdt`, continuous or epochs (`epoched: true`), boundaries as joints",
        "fewer samples than stated, epochs with several events at time zero",
        "save it in EEGLAB as version 6 or 7",
        (
            "test_no_window_crosses_a_boundary_of_eeglab",
            "test_samples_of_eeglab_are_in_the_file_that_the_set_names",
        ),
    ),
    Format(
        (".fif",),
        "FIF (Neuromag, MNE)",
        "`mne_epochs` (MNE)",
        "several files of one recording, skips as gaps, joints of MNE, epochs (`-epo.fif`)",
        "events, averages, covariances and other files that are no recordings",
        "save the recording by `raw.save`",
        (
            "test_no_window_crosses_what_a_recorder_skipped",
            "test_no_window_crosses_a_joint_of_mne_and_each_part_is_filtered_by_itself",
        ),
    ),
    Format(
        (".cnt",),
        "Neuroscan CNT",
        "`mne_epochs` (MNE; antio for files of ANT)",
        "annotations",
        "files of ANT without antio",
        TO_FIF,
        ("test_a_folder_becomes_the_scores_of_mne_pyriemann_and_scikit_learn",),
    ),
    Format(
        (".con", ".sqd"),
        "KIT",
        "`mne_epochs` (MNE)",
        "trigger channels",
        "",
        TO_FIF,
        ("test_a_folder_becomes_the_scores_of_mne_pyriemann_and_scikit_learn",),
    ),
    Format(
        (".ds",),
        "CTF (a folder)",
        "`mne_epochs` (MNE)",
        "all files of the folder",
        "",
        TO_FIF,
        ("test_a_folder_becomes_the_scores_of_mne_pyriemann_and_scikit_learn",),
    ),
    Format(
        (".lay",),
        "Persyst",
        "`mne_epochs` (MNE)",
        "`.dat` of the same name",
        "",
        TO_FIF,
        ("test_persyst_recordings_are_distinguished_by_their_samples",),
    ),
    Format(
        (".hea",),
        "PhysioNet (WFDB)",
        "`mne_epochs` (soundfile for compressed samples)",
        "formats 8, 16, 24, 32, 61, 80, 160, 212, 310, 311, 508, 516 and 524 in one or several files, samples per frame "
        "(averaged, with a note), skews, segments with gaps, beats and rhythms of `.atr`",
        "another format, a checksum or size that does not match",
        '`wfdb.rdrecord`, then `wfdb.wrsamp` with `fmt=["16"]`',
        (
            "test_numbers_are_read_as_written",
            "test_no_window_crosses_a_gap_between_segments",
        ),
    ),
    Format(
        (".xdf", ".xdfz"),
        "XDF",
        "`mne_epochs` (pyxdf)",
        "streams of samples and of texts on the common clock, gaps and resets of clocks",
        "a clock that was set back or runs unevenly, more than 5 % difference from the stated rate",
        "cut the recording there, and store the parts as separate files",
        (
            "test_windows_after_a_gap_of_a_stream_come_from_their_time",
            "test_a_damaged_xdf_file_is_refused",
        ),
    ),
    Format(
        (".csv", ".tsv", ".parquet"),
        "tables of samples",
        "`mne_epochs` (pandas)",
        "one row per sample, a column of events",
        "a column `time` that contradicts the declared rate",
        "",
        ("test_tables_that_contradict_their_declaration_are_refused",),
    ),
    Format(
        (".nwb",),
        "NWB",
        "`nwb_trials` (pynwb)",
        "spikes or an electrical series in trials, gaps of time stamps, `obs_intervals`",
        "spikes and trials of different clocks, uneven time stamps",
        "correct the times in the file",
        (
            "test_spikes_in_milliseconds_are_refused",
            "test_windows_of_a_series_after_a_gap_are_cut_by_its_time_stamps",
        ),
    ),
    Format(
        (".snirf",),
        "SNIRF (near-infrared spectroscopy)",
        "`mne_epochs` (MNE, h5py)",
        "light, optical density or haemoglobin (`pick: [hbo]`, `units: arbitrary`), stimuli, gaps of the times",
        "several blocks of data, times in another unit than s and ms, uneven times, units of voltage",
        TO_FIF,
        (
            "test_haemoglobin_is_cut_by_the_times_of_the_file",
            "test_times_that_contradict_each_other_are_refused",
        ),
    ),
    Format(
        (".raw",),
        "EGI simple binary",
        "`mne_epochs` (MNE)",
        "unsegmented files of any precision, event codes",
        "segmented files, which are epochs",
        TO_FIF,
        ("test_unsegmented_files_of_egi_are_read_with_their_events",),
    ),
    Format(
        (".mff",),
        "EGI (a folder)",
        "",
        "",
        "",
        f"install mffpy, which MNE needs for it, {TO_FIF}",
    ),
)
OPENED: Final = frozenset(
    suffix
    for format in FORMATS
    for suffix in format.suffixes
    if format.read_by.startswith("`mne_epochs`")
    and suffix not in (".ds", ".csv", ".tsv", ".parquet")
)
"""Suffixes of single files that are continuous recordings in a self-contained format."""


def advice(suffixes: frozenset[str]) -> str:
    """How to convert files of formats that are not read; empty if there are none."""
    parts = [
        f"{'/'.join(format.suffixes)} ({format.name}) is not read: {format.otherwise}"
        for format in FORMATS
        if not format.read_by and suffixes & set(format.suffixes)
    ]
    return "; ".join(parts)
