"""A spec names classes on closed lists, decorated functions and packages that the owner trusts, and nothing else."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from neuroledger.engine.check import check
from neuroledger.engine.run import run
from neuroledger.errors import ModelError, UnavailableError, UntrustedError
from neuroledger.families.decoding.models.classical_decoders import sklearn_decoder
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.spec import registry
from neuroledger.spec import trusted as module
from neuroledger.spec.trusted import (
    REACHING,
    SKLEARN,
    TORCH,
    Arguments,
    ImportPath,
    factory,
    owner_trusts,
    require_typed,
    trusted,
)
from tests.engine.lab import Lab

OWN = "neuroledger.families.decoding.models"


@pytest.mark.parametrize(
    "path",
    [
        "torch.nn:Conv2d", "torch.nn.Linear", f"{OWN}.time_depth_networks.pose_network",
        f"{OWN}.convolutional_decoders:eegnet", "neuroledger.families.alignment.networks.recurrent:Recurrent",
    ],
)  # fmt: skip
def test_modules_of_torch_and_of_the_project_may_be_named(path: str) -> None:
    assert TORCH.refusal(path) is None and callable(TORCH.resolve(path))


@pytest.mark.parametrize("kind", [TORCH, SKLEARN], ids=lambda kind: kind.kind)
def test_every_class_on_a_list_exists_and_reaches_no_file(kind: ImportPath) -> None:
    for path in sorted(kind.classes):
        taken = inspect.signature(kind.resolve(path)).parameters
        assert not {*taken} & {
            *REACHING,
            "estimator",
            "base_estimator",
            "estimators",
            "input",
            "path",
        }, path


REFUSED_MODULES = (
    "os:system", "subprocess.check_output", "builtins.eval", "builtins:exec", "importlib.import_module", "torch:load",
    "torch.load", "torch.hub:load", "torch.hub.load", "torch.nn.os:system", "torch.nn:functional",
    "torch.nn:__getattr__", "torch.utils.cpp_extension.load_inline", "torch.jit:load", "torch.package:PackageImporter",
    "neuroledger.store.files.write_json", "neuroledger.models.torch_module.subprocess", "sklearn.svm.SVC", "pickle:loads",
    "torch.nn.modules:Module.register_module", "torch.nn", ".torch.nn:Linear", "torch..nn:Linear", "torch.nn:Lin ear",
    "torch.nn.utils.rnn.pad_sequence", "transformers_evil.x:Net", "neuroledgerx.y:Net", "torch.nn:Module",
    "torchvision.models.squeezenet:SqueezeNet", "timm.models.resnet:ResNet", "transformers:ViTModel",
    "neuroledger.families.efficiency.graphs.onnx_graph:from_onnx",
    "neuroledger.families.efficiency.graphs.nir_graph:from_nir",
    "neuroledger.models.hub:_from_timm", "neuroledger.models.torch_module:build", "neuroledger.__main__:main",
    "neuroledger.families.efficiency.models.sound_network:_build", "neuroledger.families.efficiency.models.ann:network",
    "neuroledger.families.alignment.networks.leaky_areas:LeakyAreas",
    "neuroledger.families.decoding.models.time_depth_networks:_encoder",
    "neuroledger.families.decoding.models.time_depth_networks.factory",
)  # fmt: skip
REFUSED_ESTIMATORS = (
    "os.system", "subprocess.check_output", "builtins.eval", "sklearn.utils.resample", "sklearn.utils.Bunch",
    "sklearn.base.os.system", "sklearn.base.clone", "sklearn.datasets.fetch_openml", "sklearn.datasets.load_files",
    "sklearn.datasets.load_svmlight_file", "sklearn.externals._packaging.version.parse", "joblib.load", "torch.nn.Linear",
    "sklearn.utils._testing.raises", "sklearn.utils.fixes.parse_version", "numpy.load", "sklearn.svm", "sklearn.nothing.X",
    "sklearn.pipeline.Pipeline", "sklearn.feature_extraction.text.CountVectorizer", "sklearn.model_selection.GridSearchCV",
    f"{OWN}.time_depth_networks.pose_network", "sklearn.pipeline.make_pipeline",
    "sklearn.__check_build.raise_build_error", "scipy.io.loadmat", "shutil.rmtree",
)  # fmt: skip


@pytest.mark.parametrize("path", REFUSED_MODULES)
def test_nothing_else_is_a_torch_module(path: str) -> None:
    assert TORCH.refusal(path) is not None


@pytest.mark.parametrize("path", REFUSED_ESTIMATORS)
def test_nothing_else_is_an_estimator(path: str) -> None:
    assert SKLEARN.refusal(path) is not None


def test_the_decision_imports_neither_the_package_nor_what_it_names(
    tmp_path: Path,
) -> None:
    canary = tmp_path / "canary"
    package = tmp_path / "trapped"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(canary)!r}, 'w')\n")
    (package / "net.py").write_text(
        f"open({str(canary)!r}, 'w')\nimport torch\nclass Net(torch.nn.Module): ...\n"
    )
    code = (
        "import sys; from neuroledger.spec.trusted import TORCH\n"
        "assert TORCH.refusal('trapped.net:Net') is None\n"
        "assert not {'trapped', 'torch', 'sklearn'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            "PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}",
            "NEUROLEDGER_TRUSTED": "trapped",
            "PATH": "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not canary.exists()


ATTACKS = {
    "system": {"name": "sklearn_decoder", "path": "os.system", "parameters": {"command": "touch CANARY"}},
    "shell": {"name": "torch_decoder", "path": "subprocess.check_output", "parameters": {"args": "touch x", "shell": True}},
    "eval": {"name": "sklearn_decoder", "path": "builtins.eval", "parameters": {"source": "open('CANARY', 'w')"}},
    "hub": {"name": "torch", "module": "torch.hub:load", "arguments": {"repo_or_dir": "x"}},
    "memory": {"name": "sklearn_decoder", "path": "sklearn.svm.SVC", "parameters": {"memory": "x"}},
    "onnx": {"name": "torch", "module": "neuroledger.families.efficiency.graphs.onnx_graph:from_onnx",
             "arguments": {"source": "/tmp/any.onnx"}},
    "nested": {"name": "sklearn_decoder", "path": "sklearn.svm.SVC", "parameters": {"estimators": [{"memory": "x"}]}},
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_check_refuses_an_untrusted_import_path_with_its_line(
    lab: Lab, attack: str, tmp_path: Path
) -> None:
    lab.dataset()
    lab.spec("models", "evil", builder=ATTACKS[attack])
    (found,) = [one for one in check(lab.open())[0] if one.code == "trust.untrusted"]
    text = (lab.root / found.where).read_text().splitlines()[found.line - 1]
    assert found.where.endswith("models/evil.yaml")
    assert any(word in text for word in ("path", "module", "memory", "estimators"))
    assert "set NEUROLEDGER_TRUSTED=" not in str(found)


SIGNATURE = Signature(
    channels=2,
    samples=4,
    outputs=2,
    sampling_rate=1.0,
    channel_ids=("a", "b"),
    seed=0,
    objective="classification",
)


@pytest.mark.parametrize("path", ["os.getcwd", "sklearn.utils.resample"])
def test_what_check_refuses_is_refused_again_at_run(path: str) -> None:
    with pytest.raises(ModelError):
        sklearn_decoder(id="x", path=path).make(SIGNATURE)
    with pytest.raises(UntrustedError):
        TORCH.resolve(path)


@pytest.mark.parametrize(
    ("said", "trusted"),
    [(None, ()), ("", ()), ("a", ("a",)), (" a , b.c,, ", ("a", "b.c"))],
)
def test_the_owner_names_packages_with_commas_between(
    monkeypatch: pytest.MonkeyPatch, said: str | None, trusted: tuple[str, ...]
) -> None:
    monkeypatch.delenv("NEUROLEDGER_TRUSTED", raising=False)
    if said is not None:
        monkeypatch.setenv("NEUROLEDGER_TRUSTED", said)
    assert owner_trusts() == trusted


def test_after_the_owner_trusts_a_package_the_next_run_tries_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuroledger.display import NoDisplay
    from neuroledger.engine.outcome import Pending
    from neuroledger.engine.plan import plan
    from neuroledger.engine.session import Request

    lab.dataset()
    lab.benchmark()
    from neuroledger.data.gate.validate import validate

    validate(lab.open(), "lab")
    (lab.root / "ownlab.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n"
        "    def __init__(self): super().__init__(); self.conv = torch.nn.Conv2d(3, 2, 5)\n"
        "    def forward(self, x): return self.conv(x)\n"
    )
    monkeypatch.syspath_prepend(str(lab.root))
    lab.spec(
        "models",
        "own",
        builder={"name": "torch", "module": "ownlab:Net"},
        layers=["conv"],
        regions={"V4": "conv"},
    )

    def status() -> str:
        catalog = lab.open()
        jobs = plan(
            catalog, benchmarks=["lab.V4-ridge"], models=["own"], request=Request()
        ).jobs
        (done,) = run(catalog, jobs, Request(), NoDisplay())
        return "pending" if isinstance(done.outcome, Pending) else done.outcome.status

    assert status() == "pending"
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "ownlab")
    assert status() == "scored"


def test_every_import_path_and_every_argument_of_somebody_elses_class_asks_the_gate() -> (
    None
):
    """`check` judges a spec by the types of a component's parameters: one that is plain text is named by no gate."""
    for kind in registry.FOLDERS:
        for name in registry.names(kind):
            for each in inspect.signature(
                registry.get(kind, name).function
            ).parameters.values():
                words = f"{kind} {name}: {each.name}"
                if each.name in {"path", "module", "class_path", "import_path"}:
                    assert re.search(
                        r"\b(ModulePath|EstimatorPath|TORCH|SKLEARN)\b",
                        str(each.annotation),
                    ), words
                if each.name in {"arguments", "parameters", "config", "keywords"}:
                    assert "JsonValue" not in str(each.annotation), words


def test_the_functions_that_specs_may_call_are_these() -> None:
    """A further one is a decision: its arguments come from strangers."""
    registry.discover("builder")
    for path in ("neuroledger.families.alignment.networks.recurrent:Recurrent",):
        assert TORCH.refusal(path) is None
    own = {
        path.rpartition(".")[2]
        for path in module._FACTORIES
        if path.startswith("neuroledger.")
    }
    assert own == {
        "Recurrent",
        "eegnet",
        "pose_network",
        "residual_mlp",
        "shallow_fbcsp_net",
        "simple_conv_time_agg",
        "typing_network",
    }


@pytest.mark.parametrize(
    "hint", ["str", "Any", "Path", "tuple[str, ...]", "dict", "int | str", "list[Path]"]
)
def test_a_function_that_takes_a_text_or_a_path_cannot_be_called_by_specs(
    hint: str,
) -> None:
    def build(source: Any) -> None: ...

    build.__annotations__ = {"source": hint, "return": "Nowhere"}
    with pytest.raises(
        TypeError,
        match="the parameter 'source' must be a number, a choice or a tuple of these",
    ):
        factory(build)
    with pytest.raises(TypeError, match="source"):
        factory(lambda source: source)


def test_a_function_of_numbers_and_choices_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FACTORIES", {})

    def build(
        width: int,
        *,
        turns: tuple[int, ...] = (),
        rate: Annotated[float, "share"] | None = None,
        kind: Literal["a", "b"] = "a",
        deep: bool = False,
    ) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

    (path,) = factory(build) and module._FACTORIES  # type: ignore[misc]
    require_typed(
        path, {"width": 3, "turns": [1, 2], "rate": 0.5, "kind": "b", "deep": True}
    )
    require_typed(path, None)
    for wrong in (
        {"width": "/etc/passwd"},
        {"kind": "c"},
        {"turns": ["x"]},
        {"more": 1},
    ):
        with pytest.raises(
            ValueError, match=f"does not take these arguments: {next(iter(wrong))}"
        ):
            require_typed(path, wrong)
    require_typed("torch.nn:Linear", {"anything": "x"})


def test_arguments_of_a_function_are_checked_with_the_line_of_the_builder(
    lab: Lab,
) -> None:
    lab.dataset()
    path = f"{OWN}.time_depth_networks.pose_network"
    lab.spec(
        "models",
        "posed",
        builder={
            "name": "torch_decoder",
            "path": path,
            "parameters": {"joints": "/etc"},
        },
    )
    (found,) = [one for one in check(lab.open())[0] if one.severity == "error"]
    assert found.where.endswith("models/posed.yaml") and found.line > 1
    assert (
        "does not take these arguments: joints: expected a whole number" in found.what
    )


OWN_NETS = """
import torch
from shutil import rmtree
class Net(torch.nn.Module): ...
class Plain: ...
def build() -> Net: ...
"""


@pytest.mark.parametrize("name", ["Plain", "rmtree", "build", "torch"])
def test_a_package_that_the_owner_trusts_gives_classes_of_the_kind_only(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_nets.py").write_text(OWN_NETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert TORCH.refusal("own_nets.Net") is not None
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "own_nets")
    assert issubclass(TORCH.resolve("own_nets:Net"), torch.nn.Module)
    with pytest.raises(
        UntrustedError, match=f"'own_nets.{name}' is not a torch module"
    ):
        TORCH.resolve(f"own_nets.{name}")
    with pytest.raises(UntrustedError, match="is not a scikit-learn estimator"):
        SKLEARN.resolve("own_nets.Net")


@pytest.mark.parametrize("path", ["Net", "a b.Net", "1a.Net", ".Net", "own_nets.", ""])
def test_an_invalid_path_is_refused_with_the_correct_form(path: str) -> None:
    assert (
        TORCH.refusal(path)
        == f"{path!r} is not an import path: write package.module.Class"
    )


def test_a_package_that_is_trusted_and_not_installed_is_reported_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert TORCH.refusal("own_nets_x.Net") == (
        "'own_nets_x.Net' is not on the list of torch modules that specs may name; the owner of a machine trusts further "
        "packages with NEUROLEDGER_TRUSTED (docs/models.md)"
    )
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "not_installed_nets")
    assert TORCH.refusal("not_installed_nets.deep.Net") is None
    for call in (
        lambda: TORCH.resolve("not_installed_nets.deep.Net"),
        lambda: trusted("not_installed_nets.Net", TORCH, "m"),
    ):
        with pytest.raises(
            UnavailableError,
            match=r"needs the package 'not_installed_nets', which is not installed$",
        ):
            call()
    with pytest.raises(
        UntrustedError, match=r"^model 'm': 'os\.system' is not on the list"
    ):
        trusted("os.system", TORCH, "m")


@pytest.mark.parametrize("name", sorted(REACHING))
def test_no_argument_reaches_files_or_downloads_however_deep_it_is(name: str) -> None:
    arguments = TypeAdapter(Arguments)
    for given in (
        {name: "x"},
        {"a": [{"b": {name: True}}]},
        {f"step__{name}": 1},
        {"_private": 1},
    ):
        with pytest.raises(
            ValidationError, match="can read files or downloads that are not pinned"
        ):
            arguments.validate_python(given)
    plain = {
        name: None,
        "a": {f"b__{name}": False},
        "steps": [1, {name: ""}],
        "_private": 0,
        f"{name}x": 1,
    }
    assert arguments.validate_python(plain) == plain
