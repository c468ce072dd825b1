"""Spoken words from archives laid out and encoded like the published ones, and everything that can be wrong with those."""

from __future__ import annotations

import builtins
import json
import os
import shutil
import sys

import numpy as np
import pytest

from neuroledger.core.assembly import check
from neuroledger.errors import DataError, UnavailableError
from neuroledger.readers.keyword_sessions import keyword_sessions
from neuroledger.readers.sound_clips import Clip
from neuroledger.readers.tar_members import tar_members
from neuroledger.readers.word_folders import Keywords, word_folders
from tests.readers.sound_archives import LANGUAGES, WORDS, commands, keywords, opus, tar, tone, wav

LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
BASE = {"train": "base_train.csv", "validation": "base_val.csv", "test": "base_test.csv"}
HEAD = b"LINK,WORD,LANGUAGE\n"
ONE = b"word1/common_voice_en_1000.opus,word1,en\n"
PT = b"pt-one/common_voice_pt_0.opus,pt-one,pt\n"


@pytest.fixture(scope="module")
def words():
    return commands()


@pytest.fixture(scope="module")
def sessions():
    return keywords()


def read_words(path, clip=None, **fields):
    clip = clip or Clip(rate=16000)
    return word_folders({"archive": path}, archive="archive", clip=clip, lists=LISTS, **fields).assembly


def read_sessions(path, clip=None, support=7):
    clip = clip or Clip(rate=48000)
    return keyword_sessions(
        {"archive": path}, archive="archive", clip=clip, base=BASE, sessions=LANGUAGES, support=support
    ).assembly


def test_words_are_read_from_the_archive_as_it_is(tmp_path, words):
    found = check(read_words(tar(tmp_path / "words.tar.gz", words)))
    assert found.shape == (95, 1, 16000) and found.dtype == np.int16
    assert found.attrs == {"units": "1/32768", "full_scale": 32768}
    assert sorted(set(found["label"].values)) == sorted(WORDS)
    assert {part: int((found["split"] == part).sum()) for part in ("train", "validation", "test")} == {
        "train": 60,
        "validation": 15,
        "test": 20,
    }
    ids = found["stimulus_id"].values.tolist()
    assert ids == sorted(ids) and len(set(ids)) == 95 and ids[0] == "bed/00000000_nohash_0"
    assert found["speaker"].values[0] == "00000000"
    assert np.allclose(np.diff(found["time_bin_start"].values), 1 / 16)
    for name, sound in list(words.items())[2:20:5]:
        row = ids.index(name.removeprefix("./").removesuffix(".wav"))
        held = np.frombuffer(sound[44:], "<i2")
        assert np.array_equal(found.values[row, 0, : len(held)], held)
        assert not found.values[row, 0, len(held) :].any()


def test_the_folder_around_and_the_packing_make_no_difference(tmp_path, words):
    usual = read_words(tar(tmp_path / "words.tar.gz", words))
    inside = {f"speech/v2/{name.removeprefix('./')}": content for name, content in words.items()}
    assert read_words(tar(tmp_path / "words.tar", inside)).identical(usual)


def test_keywords_unknown_words_and_silence_are_drawn_by_rule(tmp_path, words):
    asked = Keywords(words=("yes", "no"), unknown=0.5, silence=0.25)
    found = read_words(tar(tmp_path / "words.tar.gz", words), keywords=asked)
    counts = {
        (str(k), str(s)): int(((found["keyword"] == k) & (found["keyword_split"] == s)).sum())
        for k in ("yes", "_unknown_", "_silence_")
        for s in ("train", "validation", "test")
    }
    assert list(counts.values()) == [12, 3, 4, 12, 3, 4, 6, 2, 2]
    silence = found.isel(presentation=np.flatnonzero(found["label"].values == "_silence_"))
    assert set(silence["split"].values) == {"silence"} and silence["stimulus_id"].to_index().is_unique
    assert set(found["keyword_split"].values) == {"train", "validation", "test", "left_out"}
    noise = np.frombuffer(words["./_background_noise_/pink_noise.wav"][44:], "<i2")
    places = {"train": [], "validation": [], "test": []}
    for row in range(silence.sizes["presentation"]):
        if silence["speaker"].values[row] == "pink_noise":
            piece = silence.values[row, 0]
            starts = [
                s for s in np.flatnonzero(noise == piece[0]) if np.array_equal(noise[s : s + 16000], piece)
            ]
            places[silence["keyword_split"].values[row]].append(starts[0])
    assert max(places["train"]) + 16000 <= 0.8 * len(noise) <= min(places["validation"])
    assert max(places["validation"]) + 16000 <= 0.9 * len(noise) <= min(places["test"])
    again = read_words(tar(tmp_path / "again.tar", words), keywords=asked)
    assert again.identical(found)


def test_sessions_are_read_in_the_order_of_their_lists(tmp_path, sessions):
    found = check(read_sessions(tar(tmp_path / "mswc.tar.gz", sessions)))
    assert found.shape == (156, 1, 48000) and found.dtype == np.int16
    assert found["session"].values.tolist() == [0] * 72 + [1] * 28 + [2] * 28 + [3] * 28
    assert "l’été" in found["label"].values and found["stimulus_id"].values[0] == "fr/l’été/common_voice_fr_0"
    assert list(dict.fromkeys(found["language"].values.tolist())) == ["fr", "en", *LANGUAGES]
    first = found.isel(presentation=np.flatnonzero(found["label"].values == "fa-one"))
    assert first["split"].values.tolist() == ["train"] * 7 + ["test"] * 7
    clip = found.values[0, 0].astype(np.float64) / 32768
    assert np.corrcoef(clip[:43200], tone(350, 48000, 0.9, 0))[0, 1] > 0.9 and not clip[43300:].any()


def test_sessions_of_wav_files_and_names_in_decomposed_letters_are_read_too(tmp_path, sessions):
    import unicodedata

    converted = {}
    for name, content in sessions.items():
        if name.endswith(".opus"):
            content, name = wav(tone(300, 16000, 1.0, 0), 16000), name.replace(".opus", ".wav")
        elif name.endswith(".csv") and "._" not in name:
            content = content.replace(b".opus", b".wav")
        converted[unicodedata.normalize("NFD", name)] = content
    found = read_sessions(tar(tmp_path / "wav.tar", converted), Clip(rate=16000))
    assert found.shape == (156, 1, 16000) and "l’été" in found["label"].values


def test_another_rate_and_length_are_made_of_the_same_sound(tmp_path, words):
    path = tar(tmp_path / "words.tar", words)
    slow = read_words(path, Clip(rate=16000, resample=8000, seconds=0.5, longer="cut"))
    assert slow.shape == (95, 1, 4000)
    from scipy.signal import resample_poly

    usual = read_words(path).values[1, 0, :8000].astype(np.float64)
    assert np.array_equal(slow.values[1, 0], np.rint(resample_poly(usual, 1, 2)).astype(np.int16))


def test_clips_are_decoded_once_and_never_taken_half_written(tmp_path, words, monkeypatch):
    path = tar(tmp_path / "words.tar.gz", words)
    usual = read_words(path).copy(deep=True)
    (place,) = (tmp_path / "decoded").iterdir()
    monkeypatch.setattr("neuroledger.readers.sound_store._write", lambda *_: pytest.fail("decoded again"))
    assert read_words(path).identical(usual)
    monkeypatch.undo()
    with (place / "clips.npy").open("r+b") as file:
        file.seek(5000)
        file.write(b"something else")
    assert read_words(path).identical(usual)  # the change is noticed, and the archive read again
    (place / "clips.npy").write_bytes((place / "clips.npy").read_bytes()[:9000])
    assert read_words(path).identical(usual)
    (place / "index.json").write_text(json.dumps({"table": {}}))
    assert read_words(path).identical(usual)
    shutil.rmtree(place)
    calls = []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) > 40:
            raise KeyboardInterrupt
        return np.zeros(16000, dtype=np.int16)

    monkeypatch.setattr("neuroledger.readers.sound_store.clip_of", killed)
    with pytest.raises(KeyboardInterrupt):
        read_words(path)
    monkeypatch.undo()
    assert not list((tmp_path / "decoded").iterdir())
    assert read_words(path).identical(usual)
    os.utime(place / "clips.npy")  # touched, with the same bytes
    assert read_words(path).identical(usual)


def test_another_archive_or_another_way_to_decode_has_another_place(tmp_path, words):
    path = tar(tmp_path / "words.tar", words)
    read_words(path)
    read_words(path, Clip(rate=16000, resample=8000))
    changed = {**words, "./yes/extra_nohash_0.wav": wav(tone(100, 16000, 1, 1))}
    assert read_words(tar(path, changed)).sizes["presentation"] == 96
    assert len(list((tmp_path / "decoded").iterdir())) == 3


def test_a_full_disk_is_said_before_anything_is_written(tmp_path, words, monkeypatch):
    path = tar(tmp_path / "words.tar", words)
    monkeypatch.setattr(
        "shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000, "total": 1, "used": 1})()
    )
    with pytest.raises(
        DataError, match=r"decoding words\.tar takes 0\.0 GiB in .*decoded, 0\.0 GiB are free"
    ):
        read_words(path)
    assert not list((tmp_path / "decoded").iterdir())


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    return path


def test_a_truncated_archive_is_said(tmp_path, words):
    with pytest.raises(DataError, match=r"words\.tar\.gz is no whole tar archive .*fetch it again"):
        read_words(cut(tar(tmp_path / "words.tar.gz", words)))
    with pytest.raises(DataError, match=r"words\.tar is (no whole tar archive|cut off)|has no list"):
        read_words(cut(tar(tmp_path / "words.tar", words)))
    (tmp_path / "text.tar.gz").write_text("<html>not found</html>" * 100)
    with pytest.raises(DataError, match=r"text\.tar\.gz is no whole tar archive"):
        read_words(tmp_path / "text.tar.gz")
    (tmp_path / "empty.tar").write_bytes(b"\0" * 10240)
    with pytest.raises(DataError, match=r"empty\.tar (holds no files|is no whole tar archive)"):
        read_words(tmp_path / "empty.tar")


def test_a_changed_byte_in_a_packed_archive_is_noticed(tmp_path, words):
    path = tar(tmp_path / "words.tar.gz", words)
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # the checksum at the end
    path.write_bytes(content)
    with pytest.raises(DataError, match="no whole tar archive"):
        read_words(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("./testing_list.txt", None, "has no list 'testing_list.txt'"),
        ("./testing_list.txt", b"", "testing_list.txt is empty"),
        ("./testing_list.txt", b"yes/nobody.wav\n", "names 1 clips that the archive does not have, first 'yes/nobody.wav'"),
        ("./testing_list.txt", b"\xff\xfe\x00", "is no text in UTF-8"),
        ("./testing_list.txt", b"bed/00000011_nohash_1.wav\n", "the word 'go' has no clip in the part 'test'"),
        ("./validation_list.txt", "both", "is in testing_list.txt and in another list"),
        ("./silent/a_nohash_0.wav", wav(np.zeros(16000)), "the word 'silent' has no clip in the part 'validation'"),
        ("./deep/er/a_nohash_0.wav", wav(np.zeros(16000)), "'deep/er/a_nohash_0.wav' is in no folder of a word"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(100), channels=2), "has 2 channels, not one"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(100), rate=8000), "has 8000 samples per second, the spec's"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(100), width=1), "has samples of 8 bits, not of 16"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(16001)), "longer than 1 s: say `longer: cut`"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(0)), "holds no samples"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(16000))[:-300], "is cut off: 31700 of 32000 bytes"),
        ("./bed/00000000_nohash_0.wav", b"RIFF????", "cannot be read as a WAV file"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_archive_of_words_is_one_message(tmp_path, words, name, content, said):
    changed = dict(words)
    if content is None:
        del changed[name]
    else:
        changed[name] = words["./testing_list.txt"] if content == "both" else content
    path = tar(tmp_path / "words.tar", changed)
    with pytest.raises(DataError) as caught:
        read_words(path)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert not list((tmp_path / "decoded").glob("*"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("MSWC/base_val.csv", None, "has no list 'MSWC/base_val.csv'"),
        ("MSWC/pt/evaluation.csv", None, "has no list 'MSWC/pt/evaluation.csv'"),
        ("MSWC/base_val.csv", HEAD, "base_val.csv is empty"),
        ("MSWC/base_val.csv", b"A,B\n1,2\n", "base_val.csv is no table of LINK, WORD, LANGUAGE"),
        ("MSWC/base_val.csv", HEAD + b"x.opus,x\n", "base_val.csv, line 2 has not three fields"),
        ("MSWC/base_val.csv", HEAD + b"x.opus,word1,en\n", "name 1 clips that are not there, first 'MSWC/en/clips/x.opus'"),
        ("MSWC/base_val.csv", HEAD + ONE, "has no clip in the part 'validation'"),
        ("MSWC/pt/evaluation.csv", HEAD + PT, "'pt-one' of pt/evaluation.csv has 1 clips: the first 7 are to learn"),
        ("MSWC/pt/evaluation.csv", "others", "the word 'eo-one' is in several sessions"),
        ("MSWC/pt/clips/pt-one/common_voice_pt_0.opus", b"OggS and no more", "cannot be decoded as sound"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_archive_of_sessions_is_one_message(tmp_path, sessions, name, content, said):
    changed = dict(sessions)
    if content is None:
        del changed[name]
    else:
        changed[name] = sessions["MSWC/eo/evaluation.csv"] if content == "others" else content
    with pytest.raises(DataError) as caught:
        read_sessions(tar(tmp_path / "mswc.tar", changed))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_opus_of_another_kind_is_said(tmp_path, sessions):
    import io

    import soundfile

    name = "MSWC/pt/clips/pt-one/common_voice_pt_0.opus"
    held = io.BytesIO()
    soundfile.write(held, np.zeros((4800, 2)), 48000, format="OGG", subtype="OPUS")
    with pytest.raises(DataError, match="has 2 channels, not one"):
        read_sessions(tar(tmp_path / "stereo.tar", {**sessions, name: held.getvalue()}))
    with pytest.raises(DataError, match="has 16000 samples per second, the spec's reader says 48000"):
        read_sessions(tar(tmp_path / "slow.tar", {**sessions, name: opus(np.zeros(1600), 16000)}))
    with pytest.raises(DataError, match=r"lasts 1\.\d+ s, longer than 1 s"):
        read_sessions(tar(tmp_path / "long.tar", {**sessions, name: opus(np.zeros(60000))}))


def test_without_soundfile_wav_is_read_and_opus_says_what_to_install(tmp_path, words, sessions, monkeypatch):
    usual = builtins.__import__

    def lacking(name, *arguments, **named):
        if name == "soundfile":
            raise ImportError("No module named 'soundfile'")
        return usual(name, *arguments, **named)

    monkeypatch.delitem(sys.modules, "soundfile", raising=False)
    monkeypatch.setattr(builtins, "__import__", lacking)
    assert read_words(tar(tmp_path / "words.tar", words)).sizes["presentation"] == 95
    with pytest.raises(UnavailableError, match=r"pip install 'neuroledger\[sound\]'"):
        read_sessions(tar(tmp_path / "mswc.tar", sessions))


@pytest.mark.parametrize(
    "name", ["../outside.wav", "/etc/outside.wav", "yes/../../outside.wav", "yes\\outside.wav"]
)
def test_names_that_leave_the_archive_are_refused(tmp_path, words, name):
    path = tar(tmp_path / "words.tar", {**words, name: b"x"})
    with pytest.raises(DataError, match="points outside the archive"):
        read_words(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["words.tar"]


def test_links_devices_doubles_and_giants_are_refused(tmp_path, words, monkeypatch):
    import io
    import tarfile

    with pytest.raises(DataError, match="is a link or a device, not a file"):
        read_words(tar(tmp_path / "links.tar", words, links={"yes/secret.wav": "/etc/passwd"}))
    path = tmp_path / "twice.tar"
    with tarfile.open(path, "w") as archive:
        for content in (b"a", b"b"):
            info = tarfile.TarInfo("yes/a.wav")
            info.size = 1
            archive.addfile(info, io.BytesIO(content))
    with pytest.raises(DataError, match=r"'yes/a\.wav' is in it twice"):
        list(tar_members(path))
    monkeypatch.setattr("neuroledger.readers.tar_members.MAX_MEMBER_BYTES", 1000)
    with pytest.raises(DataError, match="is larger than"):
        read_words(tar(tmp_path / "large.tar", words))


def test_keywords_that_are_not_there_and_noises_too_short_are_said(tmp_path, words):
    path = tar(tmp_path / "words.tar", words)
    with pytest.raises(DataError, match="has no clips of the keyword 'maybe'"):
        read_words(path, keywords=Keywords(words=("yes", "maybe")))
    quiet = {name: content for name, content in words.items() if "_noise_" not in name}
    with pytest.raises(DataError, match="has no background noises to cut silence from"):
        read_words(tar(tmp_path / "quiet.tar", quiet), keywords=Keywords(words=("yes",)))
    short = {**words, "./_background_noise_/short.wav": wav(np.zeros(40000))}
    with pytest.raises(DataError, match=r"short\.wav is too short to cut silence"):
        read_words(tar(tmp_path / "short.tar", short), keywords=Keywords(words=("yes",)))


def test_a_file_that_the_spec_does_not_declare_is_said(tmp_path):
    with pytest.raises(DataError, match="the reader needs the file 'archive'; the spec's `files` are other"):
        word_folders({"other": tmp_path}, archive="archive", clip=Clip(rate=16000), lists=LISTS)
    with pytest.raises(DataError, match="the reader needs the file 'archive'"):
        keyword_sessions(
            {"other": tmp_path}, archive="archive", clip=Clip(rate=16000), base=BASE, sessions=LANGUAGES
        )
