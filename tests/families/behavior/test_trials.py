"""Trial tables: pitfalls of the toolbox's files, and own tables."""

from __future__ import annotations

import zipfile

import pytest

from neuroledger.errors import DataError
from neuroledger.families.behavior.models.stored_answers import stored_answers
from neuroledger.families.behavior.readers.choice_trials import choice_trials
from neuroledger.families.behavior.readers.trial_tables import trial_tables
from neuroledger.families.behavior.tasks.trial_tables import image_key, texture_of
from neuroledger.families.decoding.readers.raster_trials import raster_trials

HEADER = "subj,Session,trial,rt,object_response,category,condition,imagename\n"


def write(folder, name, rows, header=HEADER):
    path = folder / name
    path.write_text(header + "".join(row + "\n" for row in rows), encoding="utf-8")
    return {name: path}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("0001_cl_s01_cr_oven_40_n04111531_14126.png", "n04111531_14126.png"),
        ("0001_s5n_s01_0_bird_00_bird3-bird2.png", "bird3-bird2.png"),
        ("airplane10.png", "airplane10.png"),
        ("0001_ske_s01_0_boat_00_boat-0068-sketch-23.png", "boat-0068-sketch-23.png"),
    ],
)
def test_images_are_identified_by_the_part_of_the_name_that_all_observers_share(
    name, key
):
    assert image_key(name) == key


def test_texture_is_the_second_word():
    assert texture_of("bird3-clock2.png") == "clock"


def test_pitfalls_of_the_tables(tmp_path):
    people = write(
        tmp_path,
        "edge_subject-01_session_1.csv",
        ["subject-01,1,1,0.5,na,bird,0,0001_e_s01_0_bird_00_bird3-dog2.png"],
    )
    data = trial_tables(people).assembly
    assert data.values.tolist() == ["na"]
    assert data["stimulus_id"].item() == "edge:bird3-dog2.png"
    assert data["texture"].item() == "dog"
    assert data["condition"].item() == "all"
    model = write(
        tmp_path,
        "edge_net_session-1.csv",
        ["net,1,1,NaN,bird,bird,NaN,bird3-dog2.png"],
        HEADER.lower(),
    )
    held = stored_answers(id="net", weights=model).answers
    assert dict(zip(held["stimulus_id"].values, held.values, strict=True)) == {
        "edge:bird3-dog2.png": "bird"
    }


def test_a_session_may_hold_one_condition_of_several(tmp_path):
    files = {
        **write(
            tmp_path,
            "blur_subject-01_session_1.csv",
            ["subject-01,1,1,1,cat,cat,low,a.png"],
        ),
        **write(
            tmp_path,
            "blur_subject-01_session_2.csv",
            ["subject-01,2,1,1,dog,cat,high,b.png"],
        ),
    }
    assert trial_tables(files).assembly["condition"].values.tolist() == ["low", "high"]


def test_an_image_in_several_conditions_is_several_stimuli(tmp_path):
    def rows(who):
        return [
            f"{who},1,{n},1,cat,cat,{condition},a.png"
            for n, condition in enumerate(("low", "high"))
        ]

    people = trial_tables(
        write(tmp_path, "blur_subject-01_session_1.csv", rows("subject-01"))
    ).assembly
    assert people["stimulus_id"].values.tolist() == [
        "blur:a.png@low",
        "blur:a.png@high",
    ]
    model = write(tmp_path, "blur_net_session-1.csv", rows("net"))
    held = stored_answers(id="net", weights=model).answers
    assert held["stimulus_id"].values.tolist() == people["stimulus_id"].values.tolist()


def test_a_file_that_is_not_a_trial_table_is_refused(tmp_path):
    with pytest.raises(DataError, match="lacks"):
        trial_tables(write(tmp_path, "edge_a.csv", ["1,2"], "a,b\n"))
    row = "net,1,1,NaN,bird,bird,NaN,bird3-dog2.png"
    with pytest.raises(DataError, match="several answers"):
        stored_answers(
            id="net", weights=write(tmp_path, "edge_net.csv", [row, row], HEADER)
        )
    with pytest.raises(DataError, match="no trial tables"):
        trial_tables({})


def _with_images(folder, *names):
    rows = [
        f"subject-01,1,{n},1,cat,dog,0,0001_e_s01_0_dog_00_dog{n}.png" for n in (2, 1)
    ]
    files = write(folder, "edge_subject-01_session_1.csv", rows)
    files["images.zip"] = folder / "images.zip"
    with zipfile.ZipFile(files["images.zip"], "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return files


def test_images_are_matched_by_name(tmp_path):
    data = trial_tables(
        _with_images(tmp_path, "dogs/dog1.png", "dogs/dog2.png"), archive="images.zip"
    )
    assert data.assembly["stimulus_id"].values.tolist() == [
        "edge:dog2.png",
        "edge:dog1.png",
    ]
    assert data.stimuli.ids == ["edge:dog1.png", "edge:dog2.png"]
    assert data.stimuli.bytes("edge:dog2.png") == b"dogs/dog2.png"
    assert data.stimuli.table["truth"].tolist() == ["dog", "dog"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["dog1.png"],
            r"images\.zip lacks 1 images that were shown, first 'dog2\.png'",
        ),
        (
            ["dog1.png", "dog2.png", "cat1.png"],
            r"3 files, but 2 images were shown: first 'cat1\.png'",
        ),
        (
            ["a/dog1.png", "b/dog1.png", "dog2.png"],
            "some of one name, in different folders",
        ),
    ],
)
def test_an_archive_contains_exactly_the_images_that_were_shown(
    tmp_path, names, message
):
    with pytest.raises(DataError, match=message):
        trial_tables(_with_images(tmp_path, *names), archive="images.zip")


def test_the_archive_must_be_declared(tmp_path):
    with pytest.raises(DataError, match=r"needs the file 'stimuli\.zip'"):
        trial_tables(
            _with_images(tmp_path, "dog1.png", "dog2.png"), archive="stimuli.zip"
        )


def test_choices_and_their_coordinates(tmp_path):
    table = write(
        tmp_path,
        "trials.csv",
        ["i1,p1,yes,3", "i2,p1,no,4"],
        "stimulus_id,subject,choice,level\n",
    )
    data = choice_trials(table, stimuli=None, archive=None)
    assert data.assembly.values.tolist() == ["yes", "no"]
    assert data.assembly["level"].values.tolist() == [3, 4]
    assert data.stimuli is None
    with pytest.raises(DataError, match="no column 'answer'"):
        choice_trials(table, values="answer", stimuli=None, archive=None)
    with pytest.raises(DataError, match=r"needs the file 'stimuli\.csv'"):
        choice_trials(table)


def test_a_file_that_is_not_a_matlab_raster_is_refused(tmp_path):
    path = tmp_path / "unit.mat"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"unit\.mat"):
        raster_trials({"unit.mat": path})
