"""Model plugins of Brain-Score are imported without running them; a checkpoint must be the published file."""

import hashlib
import json
from pathlib import Path

import pytest

from neuroledger.cli import main
from neuroledger.errors import DataError, RequestError
from neuroledger.families.alignment.brainscore_plugins import import_plugin, read_plugin
from neuroledger.spec.catalog import open_catalog
from tests.engine.lab import Lab, build

REGISTERS = """
from brainscore_vision import model_registry
from brainscore_vision.model_helpers.brain_transformation import ModelCommitment
from .model import get_model, get_layers
model_registry['{key}'] = lambda: ModelCommitment(identifier='{key}', activations_model=get_model('{key}'),
    layers=get_layers('{key}'), behavioral_readout_layer='avgpool', visual_degrees=10)
"""
MODEL = """
import functools, os, torchvision.models
open(os.environ['PLANTED'], 'w').write('ran')
from brainscore_vision.model_helpers.activations.pytorch import PytorchWrapper, load_preprocess_images
SIZE = 224
def get_model(name):
    model = torchvision.models.resnet18(pretrained=True)
    weights = load_weight_file(bucket="brainscore-storage", folder_name="brainscore-vision/models",
        relative_path="mine/net.pth", version_id="null", sha1="a4bfd8eda33b45fd945da1b972ab0b7cad38d60f")
    preprocessing = functools.partial(load_preprocess_images, image_size=192, normalize_mean=(0.5, 0.5, 0.5))
    return PytorchWrapper(identifier='mine', model=model, preprocessing=preprocessing)
def get_layers(name):
    assert name == 'mine'
    layers = ['layer1', 'layer2', 'layer4', 'avgpool']
    return layers
"""


def plugin(folder: Path, key: str = "mine", model: str = MODEL) -> Path:
    (folder / "region_layer_map").mkdir(parents=True)
    (folder / "__init__.py").write_text(REGISTERS.format(key=key), encoding="utf-8")
    (folder / "model.py").write_text(model, encoding="utf-8")
    regions = {"V1": "layer1", "IT": ["layer2", "layer4"], "Wernicke": "layer3"}
    (folder / "region_layer_map" / f"{key}.json").write_text(
        json.dumps(regions), encoding="utf-8"
    )
    return folder


def test_constants_are_read_without_running_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "planted"
    monkeypatch.setenv("PLANTED", str(planted))
    imported = read_plugin(plugin(tmp_path / "mine"))
    assert not planted.exists()
    assert imported.identifier == "mine" and imported.layers == (
        "layer1",
        "layer2",
        "layer4",
        "avgpool",
    )
    assert imported.regions == {"V1": "layer1", "IT": ("layer2", "layer4")}
    assert (imported.readout, imported.visual_degrees) == ("avgpool", 10.0)
    assert (imported.hub, imported.architecture) == ("torchvision", "resnet18")
    assert imported.preprocessing == {"resize": 192, "mean": [0.5, 0.5, 0.5]}
    assert imported.downloads == {
        "net.pth": {
            "url": "https://brainscore-storage.s3.amazonaws.com/brainscore-vision/models/mine/net.pth",
            "sha1": "a4bfd8eda33b45fd945da1b972ab0b7cad38d60f",
        }
    }
    assert imported.unread == []


def test_computed_facts_are_listed_as_unread(tmp_path: Path) -> None:
    computed = MODEL.replace(
        "layers = ['layer1', 'layer2', 'layer4', 'avgpool']",
        "layers = list(map(str, range(4)))",
    )
    folder = plugin(
        tmp_path / "mine",
        model=computed.replace("torchvision.models.resnet18(", "make("),
    )
    imported = read_plugin(folder)
    assert imported.layers == () and imported.architecture is None
    assert set(imported.unread) == {"layers", "architecture"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def (", "not a Python source"),
        ("x = " + "(" * 5000, "not a Python source"),
        ("#" * (2 << 20), "larger than"),
    ],
)
def test_hostile_sources_are_refused_by_one_message(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "model.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RequestError, match=words):
        read_plugin(path)


def test_a_plugin_becomes_a_spec_that_passes_check(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lab").mkdir()
    lab: Lab = build(tmp_path / "lab", repository)
    source = plugin(tmp_path / "mine")
    command = [
        "--root",
        str(lab.root),
        "import",
        "brainscore-model",
        "mine",
        "--from",
        str(source),
    ]
    assert main(command) == 0
    assert "4 layers, regions V1, IT" in capsys.readouterr().out.replace(
        "IT, V1", "V1, IT"
    )
    spec = open_catalog(lab.root).model("mine")
    assert (
        spec.regions == {"V1": "layer1", "IT": ("layer2", "layer4")}
        and spec.readout == "avgpool"
    )
    assert spec.unavailable is not None and spec.builder is not None
    assert spec.builder.parameters["architecture"] == "resnet18"
    assert (
        main(
            ["--root", str(lab.root), "check", str(lab.root / "specs/models/mine.yaml")]
        )
        == 0
    )
    assert main(command) != 0  # it exists already
    with pytest.raises(RequestError, match="no model 'other'"):
        read_plugin(source, "other")


WITHOUT_WEIGHTS = "\n".join(
    line
    for line in MODEL.splitlines()
    if "weight" not in line and "relative_path" not in line
)


def test_a_plugin_is_found_by_its_key_among_many(
    tmp_path: Path, repository: Path
) -> None:
    models = tmp_path / "vision" / "brainscore_vision" / "models"
    for folder, key in (
        ("mine", "mine"),
        ("other_folder", "other-key"),
        ("third", "third"),
    ):
        plugin(models / folder, key, WITHOUT_WEIGHTS)
    (models / "__init__.py").touch()
    lab = build(tmp_path / "lab", repository)
    for key, folder in (
        ("mine", models),
        ("other-key", tmp_path / "vision"),
        ("third", models / "third"),
    ):
        path, imported = import_plugin(lab.open(), key, folder)
        assert imported.identifier == key and imported.regions["V1"] == "layer1"
        assert path == lab.root / "specs" / "models" / f"{key}.yaml"
    with pytest.raises(
        RequestError,
        match=r"none of the 3 plugins in .* registers a model 'thrid'.* similar name are third",
    ):
        import_plugin(lab.open(), "thrid", models)


def test_paths_name_a_repository_in_another_folder(
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = plugin(tmp_path / "mine", model=WITHOUT_WEIGHTS)
    lab = build(tmp_path / "lab", repository)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("NEUROLEDGER_ROOT", str(lab.root))
    monkeypatch.chdir(tmp_path / "empty")
    assert main(["import", "brainscore-model", "mine", "--from", str(source)]) == 0
    assert f"repository: {lab.root}" in capsys.readouterr().out.replace("\n", "")
    (lab.root / "specs" / "models" / "mine.yaml").unlink()
    monkeypatch.chdir(lab.root / "specs")
    assert main(["import", "brainscore-model", "mine", "--from", str(source)]) == 0
    assert "repository:" not in capsys.readouterr().out


def test_a_checkpoint_must_be_the_published_one(
    tmp_path: Path, repository: Path
) -> None:
    from neuroledger.cli.own_models import require_published

    path = tmp_path / "net-0123abcd.pth"
    path.write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    (tmp_path / "lab").mkdir()
    lab = build(tmp_path / "lab", repository)
    target = lab.root / "specs" / "models" / "published.yaml"
    target.parent.mkdir(parents=True, exist_ok=True)

    def spec(stated: str) -> None:
        lines = [
            "id: published",
            "version: 1",
            "title: Published",
            f"downloads: {{{path.name}: {stated}}}",
        ]
        target.write_text(
            "\n".join([*lines, "unavailable: not here"]) + "\n", encoding="utf-8"
        )

    for right in (
        f"{{sha256_begins: '{digest[:8]}', size: 7}}",
        f"{{sha256: {digest}}}",
        "{}",
    ):
        spec(right)
        require_published(open_catalog(lab.root).model("published"), path)
    for wrong in ("{sha256_begins: '01234567'}", "{size: 8}", f"{{sha1: {'0' * 40}}}"):
        spec(wrong)
        with pytest.raises(DataError, match="not the published file"):
            require_published(open_catalog(lab.root).model("published"), path)
    spec("{}")
    other = path.rename(tmp_path / "another.pth")
    with pytest.raises(RequestError, match="published as net-0123abcd"):
        require_published(open_catalog(lab.root).model("published"), other)


def test_the_twelve_networks_state_their_files_and_the_source_of_their_layers(
    repository: Path,
) -> None:
    catalog = open_catalog(repository)
    ids = [id for id in catalog.ids("models") if id.startswith("torchvision.")]
    ids += ["CORnet-S", "VOneResNet-50", "clip.resnet50", "dinov2.vit_b_14"]
    assert len(ids) == 12
    for id in ids:
        spec = catalog.model(id)
        assert (
            set(spec.regions) == {"V1", "V2", "V4", "IT"}
            and spec.readout
            and spec.unavailable
        )
        assert any(note.startswith("Layers of regions:") for note in spec.notes)
        ((name, stated),) = spec.downloads.items()
        assert stated.url is not None and stated.url.endswith(name)
        begins = stated.sha256_begins
        assert begins is None or f"-{begins}.pth" in name
