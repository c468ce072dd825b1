"""An emulation of GitHub workflows: ``run`` steps are executed by bash, and known actions are replaced by local copies.

Unknown actions, expressions and keys of jobs or steps are errors, so that no workflow passes without being tested.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

PINNED = re.compile(r"(?P<name>actions/[\w-]+)@[0-9a-f]{40}")
JOB_KEYS = {
    "runs-on",
    "timeout-minutes",
    "steps",
    "env",
    "outputs",
    "needs",
    "if",
    "permissions",
    "environment",
}
STEP_KEYS = {"uses", "run", "name", "id", "if", "env", "with"}


def read(path: Path) -> dict[str, Any]:
    """Read a workflow; ``on`` is a key, not YAML 1.1's true."""
    plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    plain["on"] = plain.pop(True)
    return dict(plain)


@dataclass
class Step:
    """The result of a step: its exit code and output; skipped steps have no exit code."""

    name: str
    code: int | None
    text: str = ""


@dataclass
class JobResult:
    """The result of a job."""

    steps: list[Step] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    @property
    def ok(self) -> bool:
        return all(step.code in (0, None) for step in self.steps)

    def step(self, part: str) -> Step:
        (matching,) = [step for step in self.steps if part in step.name]
        return matching


@dataclass
class Runner:
    """One run of a workflow: each job in an empty folder in ``place``, with a folder for artifacts.

    ``checkout`` checks out the repository in a folder at a ref; ``settings`` is the complete environment of a step.
    """

    workflow: Mapping[str, Any]
    place: Path
    github: dict[str, Any]
    checkout: Callable[[Path, str], object]
    settings: Mapping[str, str]
    done: dict[str, JobResult] = field(default_factory=dict)

    def run(self, *only: str) -> dict[str, JobResult]:
        """Run all jobs, or those in ``only``, in order; a job whose needs failed is not in the result."""
        for name, job in self.workflow["jobs"].items():
            needs = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
            selected = not only or name in only
            ready = all(need in self.done and self.done[need].ok for need in needs)
            if selected and ready and self.holds(job.get("if", "success()"), {}, ok=True):
                assert set(job) <= JOB_KEYS, set(job) - JOB_KEYS
                self.done[name] = self.job(name, job)
        return self.done

    def job(self, name: str, job: Mapping[str, Any]) -> JobResult:
        workspace = self.place / name
        workspace.mkdir(parents=True)
        files = {
            key: workspace.parent / f"{name}.{key}"
            for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ENV")
        }
        for path in files.values():
            path.touch()
        base = {
            **self.settings, **{key: str(path) for key, path in files.items()}, "CI": "true", "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(workspace), "GITHUB_REPOSITORY": self.github["repository"],
            **{key: self.filled(value, {}) for key, value in job.get("env", {}).items()},
        }  # fmt: skip
        result, steps = JobResult(), dict[str, dict[str, dict[str, str]]]()
        for number, step in enumerate(job["steps"]):
            assert set(step) <= STEP_KEYS, set(step) - STEP_KEYS
            title = step.get("name") or step.get("run") or step["uses"]
            if not self.holds(step.get("if", "success()"), steps, ok=result.ok):
                result.steps.append(Step(title, None))
                continue
            inputs = {key: self.filled(str(value), steps) for key, value in step.get("with", {}).items()}
            if "uses" in step:
                self.action(step["uses"], inputs, workspace)
                result.steps.append(Step(title, 0))
                continue
            script = self.place / f"{name}.{number}.sh"
            script.write_text(step["run"])
            env = base | {key: self.filled(str(value), steps) for key, value in step.get("env", {}).items()}
            ran = subprocess.run(
                ["bash", "-e", str(script)], cwd=workspace, env=env, stdin=subprocess.DEVNULL, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=300,
            )  # fmt: skip
            result.steps.append(Step(title, ran.returncode, ran.stdout))
            lines = [line.partition("=") for line in files["GITHUB_OUTPUT"].read_text().splitlines()]
            files["GITHUB_OUTPUT"].write_text("")
            if "id" in step:
                steps[step["id"]] = {"outputs": {key: value for key, _, value in lines}}
        assert not files["GITHUB_ENV"].read_text(), "variables for later steps are not supported here"
        result.summary = files["GITHUB_STEP_SUMMARY"].read_text()
        result.outputs = {key: self.filled(value, steps) for key, value in job.get("outputs", {}).items()}
        return result

    def action(self, uses: str, inputs: dict[str, str], workspace: Path) -> None:
        match = PINNED.fullmatch(uses)
        assert match, f"{uses} is not pinned by a commit"
        artifacts = self.place / "artifacts"
        folder = workspace / inputs.get("path", ".")
        match match["name"]:
            case "actions/checkout":
                assert set(inputs) <= {"ref", "path", "fetch-depth", "persist-credentials"}
                assert inputs["persist-credentials"] == "False"
                self.checkout(folder, inputs.get("ref") or self.github["ref"])
            case "actions/setup-python":
                assert inputs == {"python-version": f"{sys.version_info.major}.{sys.version_info.minor}"}
            case "actions/upload-artifact" | "actions/upload-pages-artifact":
                target = artifacts / inputs.get("name", "github-pages")
                target.mkdir(parents=True)
                if folder.is_dir():
                    shutil.copytree(folder, target, dirs_exist_ok=True)
                else:
                    shutil.copy(folder, target)
            case "actions/download-artifact":
                shutil.copytree(artifacts / inputs["name"], folder)
            case "actions/deploy-pages":
                assert (artifacts / "github-pages" / "index.html").is_file()
            case other:
                raise AssertionError(f"{other} is not known here")

    def holds(self, condition: object, steps: Mapping[str, Any], *, ok: bool) -> bool:
        text = str(condition).strip().removeprefix("${{").removesuffix("}}").strip()
        match text.split():
            case ["success()"]:
                return ok
            case ["!cancelled()"]:
                return True
            case [left, "==", right]:
                return ok and self.value(left, steps) == right.strip("'")
        raise AssertionError(f"the condition {text!r} is not known here")

    def filled(self, text: str, steps: Mapping[str, Any]) -> str:
        return re.sub(r"\$\{\{\s*(\S+)\s*\}\}", lambda match: str(self.value(match[1], steps)), text)

    def value(self, name: str, steps: Mapping[str, Any]) -> Any:
        value: Any = {"github": self.github, "steps": steps}
        for part in name.split("."):
            value = value[part]
        return value


def path_of(programs: Path) -> str:
    """The search path of a step."""
    return os.pathsep.join([str(programs), str(Path(sys.executable).parent), "/usr/bin", "/bin"])
