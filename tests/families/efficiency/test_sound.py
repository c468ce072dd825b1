"""Spoken words from archives in the layout and encodings of the published ones, decoded once and stored."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from neuroledger.data.assembly import check
from neuroledger.errors import DataError
from neuroledger.families.efficiency.readers.word_folders import Keywords
from neuroledger.families.efficiency.sound.clips import Clip
from tests.families.efficiency.sound_archives import (
    LANGUAGES,
    WORDS,
    commands,
    keywords,
    read_sessions,
    read_words,
    tar,
    tone,
    wav,
)


@pytest.fixture(scope="module")
def words():
    return commands()


@pytest.fixture(scope="module")
def sessions():
    return keywords()


def test_words_are_read_from_the_archive_without_unpacking(tmp_path, words):
    assembly = check(read_words(tar(tmp_path / "words.tar.gz", words)))
    assert assembly.shape == (95, 1, 16000) and assembly.dtype == np.int16
    assert assembly.attrs == {"units": "1/32768", "full_scale": 32768}
    assert sorted(set(assembly["label"].values)) == sorted(WORDS)
    assert {
        part: int((assembly["split"] == part).sum())
        for part in ("train", "validation", "test")
    } == {
        "train": 60,
        "validation": 15,
        "test": 20,
    }
    ids = assembly["stimulus_id"].values.tolist()
    assert (
        ids == sorted(ids) and len(set(ids)) == 95 and ids[0] == "bed/00000000_nohash_0"
    )
    assert assembly["speaker"].values[0] == "00000000"
    assert np.allclose(np.diff(assembly["time_bin_start"].values), 1 / 16)
    for name, sound in list(words.items())[2:20:5]:
        row = ids.index(name.removeprefix("./").removesuffix(".wav"))
        samples = np.frombuffer(sound[44:], "<i2")
        assert np.array_equal(assembly.values[row, 0, : len(samples)], samples)
        assert not assembly.values[row, 0, len(samples) :].any()


def test_an_enclosing_folder_and_compression_make_no_difference(tmp_path, words):
    usual = read_words(tar(tmp_path / "words.tar.gz", words))
    inside = {
        f"speech/v2/{name.removeprefix('./')}": content
        for name, content in words.items()
    }
    assert read_words(tar(tmp_path / "words.tar", inside)).identical(usual)


def test_keywords_unknown_words_and_silence_are_drawn_by_rule(tmp_path, words):
    requested = Keywords(words=("yes", "no"), unknown=0.5, silence=0.25)
    assembly = read_words(tar(tmp_path / "words.tar.gz", words), keywords=requested)
    counts = {
        (str(k), str(s)): int(
            ((assembly["keyword"] == k) & (assembly["keyword_split"] == s)).sum()
        )
        for k in ("yes", "_unknown_", "_silence_")
        for s in ("train", "validation", "test")
    }
    assert list(counts.values()) == [12, 3, 4, 12, 3, 4, 6, 2, 2]
    silence = assembly.isel(
        presentation=np.flatnonzero(assembly["label"].values == "_silence_")
    )
    assert (
        set(silence["split"].values) == {"silence"}
        and silence["stimulus_id"].to_index().is_unique
    )
    assert set(assembly["keyword_split"].values) == {
        "train",
        "validation",
        "test",
        "left_out",
    }
    noise = np.frombuffer(words["./_background_noise_/pink_noise.wav"][44:], "<i2")
    places = {"train": [], "validation": [], "test": []}
    for row in range(silence.sizes["presentation"]):
        if silence["speaker"].values[row] == "pink_noise":
            piece = silence.values[row, 0]
            starts = [
                s
                for s in np.flatnonzero(noise == piece[0])
                if np.array_equal(noise[s : s + 16000], piece)
            ]
            places[silence["keyword_split"].values[row]].append(starts[0])
    assert max(places["train"]) + 16000 <= 0.8 * len(noise) <= min(places["validation"])
    assert max(places["validation"]) + 16000 <= 0.9 * len(noise) <= min(places["test"])
    again = read_words(tar(tmp_path / "again.tar", words), keywords=requested)
    assert again.identical(assembly)


def test_sessions_are_read_in_the_order_of_their_lists(tmp_path, sessions):
    assembly = check(read_sessions(tar(tmp_path / "mswc.tar.gz", sessions)))
    assert assembly.shape == (156, 1, 48000) and assembly.dtype == np.int16
    assert (
        assembly["session"].values.tolist() == [0] * 72 + [1] * 28 + [2] * 28 + [3] * 28
    )
    assert (
        "l’été" in assembly["label"].values
        and assembly["stimulus_id"].values[0] == "fr/l’été/common_voice_fr_0"
    )
    assert list(dict.fromkeys(assembly["language"].values.tolist())) == [
        "fr",
        "en",
        *LANGUAGES,
    ]
    first = assembly.isel(
        presentation=np.flatnonzero(assembly["label"].values == "fa-one")
    )
    assert first["split"].values.tolist() == ["train"] * 7 + ["test"] * 7
    clip = assembly.values[0, 0].astype(np.float64) / 32768
    assert (
        np.corrcoef(clip[:43200], tone(350, 48000, 0.9, 0))[0, 1] > 0.9
        and not clip[43300:].any()
    )


def test_sessions_of_wav_files_and_names_in_decomposed_letters_are_read_too(
    tmp_path, sessions
):
    import unicodedata

    converted = {}
    for name, content in sessions.items():
        if name.endswith(".opus"):
            content, name = (
                wav(tone(300, 16000, 1.0, 0), 16000),
                name.replace(".opus", ".wav"),
            )
        elif name.endswith(".csv") and "._" not in name:
            content = content.replace(b".opus", b".wav")
        converted[unicodedata.normalize("NFD", name)] = content
    assembly = read_sessions(tar(tmp_path / "wav.tar", converted), Clip(rate=16000))
    assert assembly.shape == (156, 1, 16000) and "l’été" in assembly["label"].values


def test_clips_of_another_rate_and_length_are_computed_from_the_same_sound(
    tmp_path, words
):
    path = tar(tmp_path / "words.tar", words)
    slow = read_words(path, Clip(rate=16000, resample=8000, seconds=0.5, longer="cut"))
    assert slow.shape == (95, 1, 4000)
    from scipy.signal import resample_poly

    usual = read_words(path).values[1, 0, :8000].astype(np.float64)
    assert np.array_equal(
        slow.values[1, 0], np.rint(resample_poly(usual, 1, 2)).astype(np.int16)
    )


def kept(folder):
    """The store's folder of sounds."""
    return [
        path.parent
        for path in (folder / ".cache" / "neuroledger" / "sounds").glob(
            "??/*/index.json"
        )
    ]


def test_clips_are_decoded_once_and_incomplete_files_are_never_used(
    tmp_path, words, monkeypatch
):
    path = tar(tmp_path / "words.tar.gz", words)
    usual = read_words(path).copy(deep=True)
    (place,) = kept(tmp_path)
    monkeypatch.setattr(
        "neuroledger.families.efficiency.sound.clip_store._write",
        lambda *_: pytest.fail("decoded again"),
    )
    assert read_words(path).identical(usual)
    monkeypatch.undo()
    with (place / "clips.npy").open("r+b") as file:
        file.seek(5000)
        file.write(b"something else")
    assert read_words(path).identical(
        usual
    )  # the change is noticed, and the archive read again
    (place / "clips.npy").write_bytes((place / "clips.npy").read_bytes()[:9000])
    assert read_words(path).identical(usual)
    (place / "index.json").write_text(json.dumps({"table": {}}))
    assert read_words(path).identical(usual)
    (place / "index.json").write_text(
        (place / "index.json").read_text().replace('\\"yes\\"', '\\"no\\"', 1)
    )
    assert read_words(path).identical(usual)
    shutil.rmtree(place)
    calls = []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) > 40:
            raise KeyboardInterrupt
        return np.zeros(16000, dtype=np.int16)

    monkeypatch.setattr(
        "neuroledger.families.efficiency.sound.clip_store.clip_of", killed
    )
    with pytest.raises(KeyboardInterrupt):
        read_words(path)
    monkeypatch.undo()
    assert not kept(tmp_path)
    assert read_words(path).identical(usual)
    os.utime(place / "clips.npy")  # touched, with the same bytes
    assert read_words(path).identical(usual)


def test_another_archive_or_decoding_has_another_entry(tmp_path, words):
    path = tar(tmp_path / "words.tar", words)
    read_words(path)
    read_words(path, Clip(rate=16000, resample=8000))
    changed = {**words, "./yes/extra_nohash_0.wav": wav(tone(100, 16000, 1, 1))}
    assert read_words(tar(path, changed)).sizes["presentation"] == 96
    assert len(kept(tmp_path)) == 3


def test_a_full_disk_is_reported_before_writing(tmp_path, words, monkeypatch):
    path = tar(tmp_path / "words.tar", words)
    monkeypatch.setattr(
        "shutil.disk_usage",
        lambda _: type("Usage", (), {"free": 1000, "total": 1, "used": 1})(),
    )
    with pytest.raises(
        DataError,
        match=r"decoding words\.tar needs 0\.0 GiB in .*neuroledger, but 0\.0 GiB are free",
    ):
        read_words(path)
    assert not kept(tmp_path)
