"""Every error in an archive of spoken words is one message with the problem and its place."""

from __future__ import annotations

import builtins
import io
import sys
import tarfile

import numpy as np
import pytest

from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.efficiency.readers.keyword_sessions import keyword_sessions
from neuroledger.families.efficiency.readers.word_folders import Keywords, word_folders
from neuroledger.families.efficiency.sound.clips import Clip
from neuroledger.families.efficiency.tar_members import tar_members
from tests.families.efficiency.sound_archives import (
    BASE,
    LANGUAGES,
    LISTS,
    commands,
    keywords,
    opus,
    read_sessions,
    read_words,
    tar,
    wav,
)

HEAD = b"LINK,WORD,LANGUAGE\n"
ONE = b"word1/common_voice_en_1000.opus,word1,en\n"
PT = b"pt-one/common_voice_pt_0.opus,pt-one,pt\n"


@pytest.fixture(scope="module")
def words():
    return commands()


@pytest.fixture(scope="module")
def sessions():
    return keywords()


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    return path


def test_a_truncated_archive_is_refused(tmp_path, words):
    with pytest.raises(
        DataError,
        match=r"words\.tar\.gz is not a complete tar archive .*it is damaged or incomplete",
    ):
        read_words(cut(tar(tmp_path / "words.tar.gz", words)))
    with pytest.raises(
        DataError,
        match=r"words\.tar is (not a complete tar archive|truncated)|has no list",
    ):
        read_words(cut(tar(tmp_path / "words.tar", words)))
    (tmp_path / "text.tar.gz").write_text("<html>not found</html>" * 100)
    with pytest.raises(DataError, match=r"text\.tar\.gz is not a complete tar archive"):
        read_words(tmp_path / "text.tar.gz")
    (tmp_path / "empty.tar").write_bytes(b"\0" * 10240)
    with pytest.raises(
        DataError, match=r"empty\.tar (contains no files|is not a complete tar archive)"
    ):
        read_words(tmp_path / "empty.tar")


def test_a_changed_byte_in_a_compressed_archive_is_detected(tmp_path, words):
    path = tar(tmp_path / "words.tar.gz", words)
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # the checksum at the end
    path.write_bytes(content)
    with pytest.raises(DataError, match="not a complete tar archive"):
        read_words(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("./testing_list.txt", None, "has no list 'testing_list.txt'"),
        ("./testing_list.txt", b"", "testing_list.txt is empty"),
        ("./testing_list.txt", b"yes/nobody.wav\n", "names 1 clips that the archive does not have, first 'yes/nobody.wav'"),
        ("./testing_list.txt", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("./testing_list.txt", b"bed/00000011_nohash_1.wav\n", "the word 'go' has no clip in the part 'test'"),
        ("./validation_list.txt", "both", "is in testing_list.txt and in another list"),
        ("./silent/a_nohash_0.wav", wav(np.zeros(16000)), "the word 'silent' has no clip in the part 'validation'"),
        ("./deep/er/a_nohash_0.wav", wav(np.zeros(16000)), "'deep/er/a_nohash_0.wav' is not in a word's folder"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(100), channels=2), "has 2 channels, not one"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(100), rate=8000), "has 8000 samples per second, but the spec's"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(100), width=1), "has samples of 8 bits, not of 16"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(16001)), "longer than 1 s: set `longer: cut`"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(0)), "has no samples"),
        ("./bed/00000000_nohash_0.wav", wav(np.zeros(16000))[:-300], "is truncated: it has 31700 of 32000 bytes"),
        ("./bed/00000000_nohash_0.wav", b"RIFF????", "cannot be read as a WAV file"),
    ],
)  # fmt: skip
def test_an_invalid_archive_of_words_raises_one_error(
    tmp_path, words, name, content, message
):
    changed = dict(words)
    if content is None:
        del changed[name]
    else:
        changed[name] = words["./testing_list.txt"] if content == "both" else content
    path = tar(tmp_path / "words.tar", changed)
    with pytest.raises(DataError) as caught:
        read_words(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not list((tmp_path / ".cache" / "neuroledger").glob("sounds/??/*"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("MSWC/base_val.csv", None, "has no list 'MSWC/base_val.csv'"),
        ("MSWC/pt/evaluation.csv", None, "has no list 'MSWC/pt/evaluation.csv'"),
        ("MSWC/base_val.csv", HEAD, "base_val.csv is empty"),
        (
            "MSWC/base_val.csv",
            b"A,B\n1,2\n",
            "base_val.csv is not a table with the columns LINK, WORD, LANGUAGE",
        ),
        (
            "MSWC/base_val.csv",
            HEAD + b"x.opus,x\n",
            "base_val.csv, line 2 does not have three fields",
        ),
        (
            "MSWC/base_val.csv",
            HEAD + b"x.opus,word1,en\n",
            "1 clips that it does not contain, first 'MSWC/en/clips/x.opus'",
        ),
        ("MSWC/base_val.csv", HEAD + ONE, "has no clip in the part 'validation'"),
        (
            "MSWC/pt/evaluation.csv",
            HEAD + PT,
            "'pt-one' of pt/evaluation.csv has only 1 clips: the first 7 are for",
        ),
        (
            "MSWC/pt/evaluation.csv",
            "others",
            "the word 'eo-one' is in several sessions",
        ),
        (
            "MSWC/pt/clips/pt-one/common_voice_pt_0.opus",
            b"OggS and no more",
            "cannot be decoded as sound",
        ),
    ],
)
def test_an_invalid_archive_of_sessions_raises_one_error(
    tmp_path, sessions, name, content, message
):
    changed = dict(sessions)
    if content is None:
        del changed[name]
    else:
        changed[name] = (
            sessions["MSWC/eo/evaluation.csv"] if content == "others" else content
        )
    with pytest.raises(DataError) as caught:
        read_sessions(tar(tmp_path / "mswc.tar", changed))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_opus_of_another_format_is_refused(tmp_path, sessions):
    import soundfile

    name = "MSWC/pt/clips/pt-one/common_voice_pt_0.opus"
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros((4800, 2)), 48000, format="OGG", subtype="OPUS")
    with pytest.raises(DataError, match="has 2 channels, not one"):
        read_sessions(
            tar(tmp_path / "stereo.tar", {**sessions, name: buffer.getvalue()})
        )
    with pytest.raises(
        DataError,
        match="has 16000 samples per second, but the spec's reader declares 48000",
    ):
        read_sessions(
            tar(tmp_path / "slow.tar", {**sessions, name: opus(np.zeros(1600), 16000)})
        )
    with pytest.raises(DataError, match=r"lasts 1\.\d+ s, longer than 1 s"):
        read_sessions(
            tar(tmp_path / "long.tar", {**sessions, name: opus(np.zeros(60000))})
        )


def test_without_soundfile_wav_is_read_and_opus_is_refused_with_the_install_command(
    tmp_path, words, sessions, monkeypatch
):
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
    "name",
    ["../outside.wav", "/etc/outside.wav", "yes/../../outside.wav", "yes\\outside.wav"],
)
def test_names_outside_of_the_archive_are_refused(tmp_path, words, name):
    path = tar(tmp_path / "words.tar", {**words, name: b"x"})
    with pytest.raises(DataError, match="points outside the archive"):
        read_words(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".cache", "words.tar"]
    assert not [p for p in tmp_path.rglob("*") if "outside" in p.name]


def test_links_devices_duplicates_and_oversized_members_are_refused(
    tmp_path, words, monkeypatch
):
    with pytest.raises(DataError, match="is a link or a device, not a file"):
        read_words(
            tar(tmp_path / "links.tar", words, links={"yes/secret.wav": "/etc/passwd"})
        )
    path = tmp_path / "twice.tar"
    with tarfile.open(path, "w") as archive:
        for content in (b"a", b"b"):
            info = tarfile.TarInfo("yes/a.wav")
            info.size = 1
            archive.addfile(info, io.BytesIO(content))
    with pytest.raises(DataError, match=r"the archive contains 'yes/a\.wav' twice"):
        list(tar_members(path))
    monkeypatch.setattr(
        "neuroledger.families.efficiency.tar_members.MAX_MEMBER_BYTES", 1000
    )
    with pytest.raises(DataError, match="is larger than"):
        read_words(tar(tmp_path / "large.tar", words))


def test_missing_keywords_and_too_short_noises_are_refused(tmp_path, words):
    path = tar(tmp_path / "words.tar", words)
    with pytest.raises(DataError, match="has no clips of the keyword 'maybe'"):
        read_words(path, keywords=Keywords(words=("yes", "maybe")))
    quiet = {name: content for name, content in words.items() if "_noise_" not in name}
    with pytest.raises(DataError, match="has no background noises to cut silence from"):
        read_words(
            tar(tmp_path / "quiet.tar", quiet), keywords=Keywords(words=("yes",))
        )
    short = {**words, "./_background_noise_/short.wav": wav(np.zeros(40000))}
    with pytest.raises(DataError, match=r"short\.wav is too short to cut silence"):
        read_words(
            tar(tmp_path / "short.tar", short), keywords=Keywords(words=("yes",))
        )


def test_an_undeclared_file_is_refused(tmp_path):
    with pytest.raises(
        DataError,
        match="the reader needs the file 'archive'; the spec's `files` are other",
    ):
        word_folders(
            {"other": tmp_path}, archive="archive", clip=Clip(rate=16000), lists=LISTS
        )
    with pytest.raises(DataError, match="the reader needs the file 'archive'"):
        keyword_sessions(
            {"other": tmp_path},
            archive="archive",
            clip=Clip(rate=16000),
            base=BASE,
            sessions=LANGUAGES,
        )
