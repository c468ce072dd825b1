"""The one way to call git: no hook, filter, driver, helper or program that a repository configures is run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from neuroledger.errors import RequestError

__all__ = ["clone", "git"]

SECONDS: Final = 120
# Disable everything in a repository's configuration, attributes or refs that runs programs or rewrites history.
HARDENING: Final[Mapping[str, str]] = {
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "core.useReplaceRefs": "false",
    "core.commitGraph": "false",
    "core.pager": "cat",
    "diff.external": "",
    "diff.ignoreSubmodules": "all",
    "protocol.allow": "never",
    "safe.directory": "*",
    "log.showSignature": "false",
}
ENVIRONMENT: Final[Mapping[str, str]] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ATTR_NOSYSTEM": "1",
    "LC_ALL": "C",
}


def git(
    root: Path,
    *words: str,
    stdin: bytes = b"",
    may_fail: bool = False,
    filters: bool = False,
    seconds: int = SECONDS,
) -> bytes:
    """Return the output of git in ``root``, whose configuration is not obeyed where it names programs.

    Parameters
    ----------
    words
        The command and its arguments.
    stdin
        Its input.
    may_fail
        Whether a failure gives an empty output instead of an error.
    filters
        Whether the command reads files of the working tree, so that the filters of the configuration, whose names it is
        asked for first, must be switched off too.
    seconds
        Time limit.

    Raises
    ------
    RequestError
        git is missing, lies in ``root``, exceeds the time limit, or fails.
    """
    settings = dict(HARDENING)
    if filters:
        settings |= dict.fromkeys(_programs_of_filters(root, seconds), "")
    return _called(
        root,
        words,
        settings,
        ENVIRONMENT,
        stdin=stdin,
        may_fail=may_fail,
        seconds=seconds,
    )


def clone(address: str, folder: Path, *, seconds: int) -> None:
    """Clone the last commit of an ``https`` address without a working tree; the owner's settings for networks hold.

    Raises
    ------
    RequestError
        git is missing or fails.
    """
    settings = {
        "protocol.allow": "never",
        "protocol.https.allow": "always",
        "core.hooksPath": os.devnull,
    }
    words = (
        "clone",
        "--quiet",
        "--bare",
        "--depth",
        "1",
        "--template=",
        "--",
        address,
        str(folder),
    )
    _called(
        folder.parent,
        words,
        settings,
        {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        seconds=seconds,
    )


def _programs_of_filters(root: Path, seconds: int) -> list[str]:
    """Return the settings of all filters in the configuration, with everything that it includes."""
    words = ("config", "--null", "--name-only", "--get-regexp", r"^filter\.")
    listed = _called(
        root, words, HARDENING, ENVIRONMENT, may_fail=True, seconds=seconds
    )
    return sorted(
        {
            name.decode("utf-8", "surrogateescape")
            for name in listed.split(b"\0")
            if name
        }
    )


def _called(
    root: Path,
    words: Sequence[str],
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    stdin: bytes = b"",
    may_fail: bool = False,
    seconds: int = SECONDS,
) -> bytes:
    program = shutil.which("git")
    if program is None or Path(program).resolve().is_relative_to(root.resolve()):
        raise RequestError("git is not installed; install it and put it on the PATH")
    command = [program, "--no-replace-objects", "--no-pager", "-C", str(root), *words]
    try:
        done = subprocess.run(
            command,
            env={**_variables(settings), **environment},
            input=stdin,
            capture_output=True,
            check=False,
            timeout=seconds,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise RequestError(f"git cannot be run here: {error}") from error
    if done.returncode and not may_fail:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RequestError(
            f"git {words[0]} failed: {errors[-1] if errors else done.returncode}"
        )
    return b"" if done.returncode else done.stdout


def _variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without git's variables, and with the settings."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    }
    # Variables, unlike `-c`, can set a key whose name contains an equals sign.
    variables["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (key, value) in enumerate(settings.items()):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables
