"""A spec names classes of the kind expected, of trusted packages, and nothing else; deciding so imports nothing."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from neuroledger.engine.check import check
from neuroledger.engine.run import run
from neuroledger.errors import ModelError, UnavailableError, UntrustedError
from neuroledger.families.decoding.models.classical_decoders import sklearn_decoder
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.spec import registry
from neuroledger.spec import trusted as module
from neuroledger.spec.trusted import REACHING, SKLEARN, TORCH, Arguments, owner_trusts, trusted
from tests.engine.lab import Lab

OWN = "neuroledger.families.decoding.models"


@pytest.mark.parametrize(
    "path",
    ["torch.nn:Conv2d", "torch.nn.Linear", f"{OWN}.time_depth_networks.pose_network"],
)
def test_modules_of_torch_and_of_the_project_may_be_named(path: str) -> None:
    assert TORCH.refusal(path) is None and callable(TORCH.resolve(path))


@pytest.mark.parametrize(
    "path", ["sklearn.svm.SVC", "sklearn.pipeline.Pipeline", "sklearn.linear_model.RidgeCV"]
)
def test_estimators_of_scikit_learn_may_be_named(path: str) -> None:
    assert SKLEARN.refusal(path) is None and isinstance(SKLEARN.resolve(path), type)


REFUSED_MODULES = (
    "os:system", "subprocess.check_output", "builtins.eval", "builtins:exec", "importlib.import_module", "torch:load",
    "torch.load", "torch.hub:load", "torch.hub.load", "torch.nn.os:system", "torch.nn:functional",
    "torch.nn:__getattr__", "torch.utils.cpp_extension.load_inline", "torch.jit:load", "torch.package:PackageImporter",
    "neuroledger.store.files.write_json", "neuroledger.models.torch_module.subprocess", "sklearn.svm.SVC", "pickle:loads",
    "torch.nn.modules:Module.register_module", "torch.nn", ".torch.nn:Linear", "torch..nn:Linear", "torch.nn:Lin ear",
    "torch.nn.utils.rnn.pad_sequence", "transformers_evil.x:Net", "neuroledgerx.y:Net",
)  # fmt: skip
REFUSED_ESTIMATORS = (
    "os.system", "subprocess.check_output", "builtins.eval", "sklearn.utils.resample", "sklearn.utils.Bunch",
    "sklearn.base.os.system", "sklearn.base.clone", "sklearn.datasets.fetch_openml", "sklearn.datasets.load_files",
    "sklearn.datasets.load_svmlight_file", "sklearn.externals._packaging.version.parse", "joblib.load", "torch.nn.Linear",
    "sklearn.utils._testing.raises", "sklearn.utils.fixes.parse_version", "numpy.load", "sklearn.svm", "sklearn.nothing.X",
    "sklearn.pipeline.make_pipeline", "sklearn.__check_build.raise_build_error", "scipy.io.loadmat", "shutil.rmtree",
)  # fmt: skip


@pytest.mark.parametrize("path", REFUSED_MODULES)
def test_nothing_else_is_a_torch_module(path: str) -> None:
    assert TORCH.refusal(path) is not None


@pytest.mark.parametrize("path", REFUSED_ESTIMATORS)
def test_nothing_else_is_an_estimator(path: str) -> None:
    assert SKLEARN.refusal(path) is not None


def test_the_decision_imports_neither_the_package_nor_what_it_names(tmp_path: Path) -> None:
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
        env={"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}", "NEUROLEDGER_TRUSTED": "trapped", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not canary.exists()


def test_a_module_that_answers_every_name_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    (tmp_path / "generous.py").write_text(
        f"def __getattr__(name):\n    open({str(canary)!r}, 'w')\n    import torch\n    return torch.nn.Linear\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "generous")
    with pytest.raises(ModelError, match="defines no class 'Anything'"):
        TORCH.resolve("generous:Anything")
    assert not canary.exists()


ATTACKS = {
    "system": {"name": "sklearn_decoder", "path": "os.system", "parameters": {"command": "touch CANARY"}},
    "shell": {"name": "torch_decoder", "path": "subprocess.check_output", "parameters": {"args": "touch x", "shell": True}},
    "eval": {"name": "sklearn_decoder", "path": "builtins.eval", "parameters": {"source": "open('CANARY', 'w')"}},
    "hub": {"name": "torch", "module": "torch.hub:load", "arguments": {"repo_or_dir": "x"}},
    "memory": {"name": "sklearn_decoder", "path": "sklearn.pipeline.Pipeline", "parameters": {"steps": [], "memory": "x"}},
    "nested": {"name": "sklearn_decoder", "path": "sklearn.svm.SVC", "parameters": {"estimators": [{"memory": "x"}]}},
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_check_refuses_an_untrusted_import_path_with_its_line(lab: Lab, attack: str, tmp_path: Path) -> None:
    lab.dataset()
    lab.spec("models", "evil", builder=ATTACKS[attack])
    (found,) = [one for one in check(lab.open())[0] if one.code == "trust.untrusted"]
    text = (lab.root / found.where).read_text().splitlines()[found.line - 1]
    assert found.where.endswith("models/evil.yaml")
    assert any(word in text for word in ("path", "module", "steps", "estimators"))
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
    ("said", "trusted"), [(None, ()), ("", ()), ("a", ("a",)), (" a , b.c,, ", ("a", "b.c"))]
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
        jobs = plan(catalog, benchmarks=["lab.V4-ridge"], models=["own"], request=Request()).jobs
        (done,) = run(catalog, jobs, Request(), NoDisplay())
        return "pending" if isinstance(done.outcome, Pending) else done.outcome.status

    assert status() == "pending"
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "ownlab")
    assert status() == "scored"


def test_every_import_path_and_every_argument_of_somebody_elses_class_asks_the_gate() -> None:
    """`check` judges a spec by the types of a component's parameters: one that is plain text is named by no gate."""
    for kind in registry.FOLDERS:
        for name in registry.names(kind):
            for each in inspect.signature(registry.get(kind, name).function).parameters.values():
                words = f"{kind} {name}: {each.name}"
                if each.name in {"path", "module", "class_path", "import_path"}:
                    assert re.search(r"\b(ModulePath|EstimatorPath|TORCH|SKLEARN)\b", str(each.annotation)), (
                        words
                    )
                if each.name in {"arguments", "parameters", "config", "keywords"}:
                    assert "JsonValue" not in str(each.annotation), words


PACKAGE = {
    "__init__.py": "from .nets import Net as Public\nfrom .star import *\n",
    "nets.py": (
        "import torch.nn as tn\nimport torch\nfrom torch import nn\nfrom torch.nn import Module as M\n"
        "class Net(tn.Module): ...\nclass Whole(torch.nn.Module): ...\nclass Half(nn.Linear): ...\nclass Direct(M): ...\n"
        "class Text('M'): ...\nclass Plain: ...\nclass Deeper(Net): ...\nclass Mixed(Plain, Net): ...\n"
        "class Lost(nowhere.Module): ...\nclass Called(make()): ...\nclass Sub(tn.modules.conv.Conv2d): ...\n"
        "if True:\n    class Inner(Net): ...\nelse:\n    class Other(Net): ...\n"
        "try:\n    class Tried(Net): ...\nexcept ImportError:\n    pass\nelse:\n    class Elsed(Net): ...\n"
        "finally:\n    class Last(Net): ...\ndef build() -> Net: ...\nvalue = Net\n"
    ),
    "star.py": "from .nets import Deeper as Star\nfrom shutil import rmtree\nfrom torch.nn import Conv2d\n",
    "deep/__init__.py": "from ..nets import Net as Up\nfrom . import side\nfrom .side import Side\n",
    "deep/side.py": "from ...own_nets.nets import Net\nclass Side(Net): ...\n",
    "loop.py": "from .loop import Loop\n",
    "broken.py": "class Net(\n",
    "latin.py": "",
}


@pytest.fixture
def own_nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that the owner trusts; none of it may be run."""
    for name, text in PACKAGE.items():
        path = tmp_path / "own_nets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own_nets" / "latin.py").write_bytes(b"# \xe9\nclass Net: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "own_nets")
    for cached in (module._source, module._find_definition):
        cached.cache_clear()
    return "own_nets"


@pytest.mark.parametrize(
    "name",
    ["Public", "Star", "nets:Net", "nets.Whole", "nets.Half", "nets.Direct", "nets.Deeper", "nets.Mixed", "nets.Text",
     "nets.Sub", "nets.Inner", "nets.Other", "nets.Tried", "nets.Elsed", "nets.Last", "deep.Up", "deep.Side",
     "deep.side.Side", "star.Star"],
)  # fmt: skip
def test_a_class_is_followed_to_its_base_through_imports_and_branches(own_nets: str, name: str) -> None:
    assert TORCH.refusal(f"{own_nets}.{name}") is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nets.Plain", "is not a torch module: its class is not derived from torch.nn.modules.module.Module"),
        ("nets.Lost", "its class is not derived from"),
        ("nets.Called", "its class is not derived from"),
        ("nets.build", "is a function, not a torch module"),
        ("nets.value", "own_nets.nets defines no class 'value'"),
        ("loop.Loop", "own_nets.loop defines no class 'Loop'"),
        ("broken.Net", "own_nets.broken defines no class 'Net'"),
        ("latin.Net", "own_nets.latin defines no class 'Net'"),
        ("gone.Net", "own_nets.gone defines no class 'Net'"),
        ("nets.deeper.Net", "own_nets.nets.deeper defines no class 'Net'"),
        (
            "star.rmtree",
            "is defined in shutil, which is not trusted; the owner of a machine trusts further packages with",
        ),
    ],
)
def test_paths_that_cannot_be_resolved_are_refused(own_nets: str, name: str, words: str) -> None:
    said = TORCH.refusal(f"{own_nets}.{name}")
    assert said is not None and words in said and said.startswith(f"'{own_nets}.{name}' ")
    assert SKLEARN.refusal(f"{own_nets}.nets.Net") is not None


@pytest.mark.parametrize("path", ["Net", "a b.Net", "1a.Net", ".Net", "own_nets.", ""])
def test_an_invalid_path_is_refused_with_the_correct_form(path: str) -> None:
    assert TORCH.refusal(path) == f"{path!r} is not an import path: write package.module.Class"


def test_a_package_that_is_trusted_and_not_installed_is_reported_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert TORCH.refusal("own_nets_x.Net").startswith(  # type: ignore[union-attr]
        "'own_nets_x.Net' is outside the trusted packages (torch.nn, torchvision.models, timm.models, timm.layers, "
        "transformers, neuroledger); "
    )
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "not_installed_nets")
    assert TORCH.refusal("not_installed_nets.deep.Net") is None
    for call in (
        lambda: TORCH.resolve("not_installed_nets.deep.Net"),
        lambda: trusted("not_installed_nets.Net", TORCH, "m"),
    ):
        with pytest.raises(
            UnavailableError, match=r"needs the package 'not_installed_nets', which is not installed$"
        ):
            call()
    with pytest.raises(UntrustedError, match=r"^model 'm': 'os\.system' is outside the trusted packages"):
        trusted("os.system", TORCH, "m")


@pytest.mark.parametrize("name", sorted(REACHING))
def test_no_argument_reaches_files_or_downloads_however_deep_it_is(name: str) -> None:
    arguments = TypeAdapter(Arguments)
    for given in ({name: "x"}, {"a": [{"b": {name: True}}]}, {f"step__{name}": 1}, {"_private": 1}):
        with pytest.raises(ValidationError, match="can read files or downloads that are not pinned"):
            arguments.validate_python(given)
    plain = {name: None, "a": {f"b__{name}": False}, "steps": [1, {name: ""}], "_private": 0, f"{name}x": 1}
    assert arguments.validate_python(plain) == plain
