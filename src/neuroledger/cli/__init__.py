"""The command line: each verb is one typed function, whose module is imported only when the verb is used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from neuroledger.cli import output
from neuroledger.cli.options import Root
from neuroledger.display import say, say_problem, visible
from neuroledger.errors import (
    Finding,
    NeuroLedgerError,
    RequestError,
    SpecError,
    about_pair,
    naming_extras,
)

__all__ = ["EXAMPLES", "GROUPS", "VERBS", "command_of", "function_of", "main"]

# The verbs by group, as `neuroledger --help` lists them, each with the module of its function.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Specs": (
            "catalogue.list",
            "catalogue.show",
            "catalogue.check",
            "catalogue.summary",
            "catalogue.new",
        ),
        "Data": (
            "data.start",
            "data.package",
            "data.pin",
            "data.fetch",
            "data.validate",
            "data.audit",
        ),
        "Other projects": ("bridges.embed", "bridges.import", "bridges.export"),
        "Scores": (
            "scoring.run",
            "scoring.score",
            "scoring.evaluate",
            "scoring.cost",
            "scoring.same",
            "scoring.verify",
            "scoring.refresh",
            "scoring.sign",
            "sealed.seal",
            "sealed.judge",
            "sealed.unseal",
        ),
        "Results": (
            "results.leaderboard",
            "results.history",
            "results.compare",
            "results.why",
            "results.claims",
            "results.ranks",
            "results.diagnose",
            "results.pareto",
            "figures.plot",
            "results.report",
            "results.calibrate",
            "results.doctor",
        ),
    }
)
VERBS: Final[Mapping[str, str]] = MappingProxyType(
    {path.partition(".")[2]: path for paths in GROUPS.values() for path in paths}
)
# One use of each verb, with which its help ends.
EXAMPLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "list": "list benchmarks --filter V4",
        "show": "show Digits.simulated.IT-ridge",
        "check": "check specs/benchmarks --json",
        "summary": "summary --since main",
        "new": "new benchmark MyLab2026.V4-ridge",
        "start": "start recordings/ --id MyLab2026 --region V4 --yes",
        "package": "package model mine last.ckpt --module mynets:Small --region-layer IT=layer4",
        "pin": "pin Hollenstein2018Zuco --from downloads/",
        "fetch": "fetch --suite public",
        "validate": "validate Digits.simulated",
        "audit": "audit MotorImagery.simulated",
        "embed": "embed gpt2 --dataset Hollenstein2018Zuco --from downloads/ --out embedding.nc",
        "import": "import brainscore MajajHong2015.public",
        "export": "export mlflow core --out tracked/",
        "run": "run gabor --suite core --dry-run",
        "score": "score pixels16 Digits.simulated.IT-ridge",
        "evaluate": "evaluate small_cnn.digits --suite core",
        "cost": "cost small_cnn.digits",
        "same": "same mynets:Small small.onnx --inputs images.npy",
        "verify": "verify --recompute",
        "refresh": "refresh",
        "sign": "sign --key ~/.ssh/id_ed25519",
        "seal": "seal answers.csv --out ../sealed.json",
        "judge": "judge Digits.sealed --answers ../sealed.json --key ~/.ssh/id_ed25519",
        "unseal": "unseal Digits.sealed --answers ../sealed.json",
        "leaderboard": "leaderboard --suite real",
        "history": "history Digits.simulated.IT-ridge",
        "compare": "compare gabor pixels16 --suite core",
        "why": "why Digits.simulated.IT-ridge/gabor Digits.simulated.IT-pls/gabor",
        "claims": "claims",
        "ranks": "ranks --suite core",
        "diagnose": "diagnose core",
        "pareto": "pareto Digits.spikes-accuracy --cost synaptic_operations",
        "plot": "plot bars Digits.simulated.IT-ridge --out bars.svg",
        "report": "report --suite core --out pages/",
        "calibrate": "calibrate",
        "doctor": "doctor",
    }
)
# Functions that cannot have the name of their verb: a keyword and a builtin of Python.
RENAMED: Final = frozenset({"import", "list"})


def function_of(verb: str) -> Callable[..., int]:
    """Return the function of a verb; its parameters are the options, its docstring is the help."""
    module = importlib.import_module(f"neuroledger.cli.{VERBS[verb].partition('.')[0]}")
    name = f"{verb}_" if verb in RENAMED else verb
    function: Callable[..., int] = getattr(module, name)
    return function


def command_of(verb: str) -> TyperCommand:
    """Return the command that parses the words of a verb and calls its function."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = {"help_option_names": ["-h", "--help"]}
    after = f"example: neuroledger {EXAMPLES[verb]}\n\n{output.TABLE}"
    register = app.command(verb, cls=Verb, epilog=after, context_settings=settings)
    register(function_of(verb))
    command = get_command(app)
    assert isinstance(command, TyperCommand)
    return command


class Verb(TyperCommand):
    """The command of one verb."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line; what may be omitted is in brackets."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, whose choices are part of their help, and the options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                sections["Arguments"].append(_argument_help(*record))
            else:
                sections["Options"].append(record)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the verb."""
        return super().parse_args(ctx, self._with_values(ctx, args))

    def _with_values(self, ctx: Any, words: Sequence[str]) -> list[str]:
        """Add the empty value of an option whose value is left out, which a metavar in brackets permits.

        An option in the place of a value is refused, since nobody means it as the value.
        """
        options = {name: one for one in self.get_params(ctx) for name in one.opts}
        complete: list[str] = []
        for number, word in enumerate(words):
            if word == "--":
                return [*complete, *words[number:]]
            complete.append(word)
            option = options.get(word)
            if not isinstance(option, TyperOption) or option.is_flag:
                continue
            if set(words[number + 1 : number + 2]) <= set(options):
                complete += _without_value(ctx, option)
        return complete

    def invoke(self, ctx: Any) -> int:
        """Call the function of the verb, and return its exit status."""
        run = super().invoke
        return _status_of(lambda: int(run(ctx)))


class Verbs(TyperGroup):
    """The verbs, each of which is built when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all verbs."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """Return the command of a verb, or None if there is none of this name."""
        if cmd_name in VERBS:
            return command_of(cmd_name)
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name and command of the verb and the words after it; the nearest name is in the error."""
        if args[0] not in VERBS and not ctx.resilient_parsing:
            near = _near(args[0], VERBS)
            raise RequestError(f"no verb {args[0]!r}{near} See `neuroledger --help`")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups of verbs, each verb with the first sentence of its docstring."""
        width = max(map(len, VERBS))
        for title, paths in GROUPS.items():
            verbs = [path.partition(".")[2] for path in paths]
            rows = [(f"{verb:<{width}}", _sentence(verb)) for verb in verbs]
            with formatter.section(title):
                formatter.write_dl(rows)


def _without_value(ctx: Any, option: TyperOption) -> list[str]:
    """Return what stands for the value that is left out; refuse it if it may not be left out."""
    if (option.metavar or "").startswith("["):
        return [""]
    if ctx.resilient_parsing:  # while a shell completes the words
        return []
    raise typer.BadParameter("a value is missing", ctx, option)


def _argument_help(name: str, help: str) -> tuple[str, str]:
    """Return the name of an argument without its type, and its help with its choices."""
    name, _, kind = name.partition(" <")
    text, gap, extra = help.partition("  [")
    if "|" in kind:
        choices = f": {kind.rstrip('>').replace('|', ', ')}"
    else:
        choices = ""
    return name, f"{text}{choices}{gap}{extra}"


def _sentence(verb: str) -> str:
    first, _, _ = (function_of(verb).__doc__ or "").partition("\n")
    return first.rstrip(".")


def _near(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = get_close_matches(name, list(known), n=1)
    if near:
        return f": did you mean {near[0]!r}?"
    return "."


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"neuroledger {version('neuroledger')}")
        raise typer.Exit


app = typer.Typer(cls=Verbs, rich_markup_mode=None)


@app.callback(
    epilog=output.TABLE,
    subcommand_metavar="VERB [ARGUMENTS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
def _without_a_verb(
    context: typer.Context,
    root: Root = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="show the version and exit",
            is_eager=True,
            callback=_show_version,
        ),
    ] = False,
) -> None:
    """Benchmarks for models of the brain: declarative specs, pinned data and reproducible scores."""
    say(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status, see :mod:`neuroledger.cli.output`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return _status_of(lambda: _run(_with_root_after_the_verb(words)))


def _with_root_after_the_verb(words: Sequence[str]) -> list[str]:
    """Return the words with ``--root FOLDER`` after the verb, if it is before: only the verb is then built."""
    if words[:1] == ["--root"]:
        before = 2
    else:
        before = 1
    if words[:1] and words[0].partition("=")[0] == "--root" and words[before:]:
        return [words[before], *words[:before], *words[before + 1 :]]
    return list(words)


def _run(words: list[str]) -> int:
    """Run the verb of a command; help, version, completion and misuse without a verb are those of all verbs."""
    if words and words[0] in VERBS:
        run = command_of(words[0]).main
        program = f"neuroledger {words[0]}"
        words = words[1:]
    else:
        run = get_command(app).main
        program = "neuroledger"
    try:
        status = run(words, prog_name=program, standalone_mode=False)
    except typer.TyperException as error:
        what = _misuse(error)
        if what.endswith(("?", ".")):
            end = ""
        else:
            end = "."
        say_problem(f"{program}: {what}{end} See `{program} --help`")
        return output.WRONG
    return int(status or 0)


def _misuse(error: typer.TyperException) -> str:
    """Return what is wrong with the words of a command."""
    option = getattr(error, "option_name", None)
    near = getattr(error, "possibilities", None)
    if option is not None and near is not None:
        return f"no option {option!r}{_near(option, near)}"
    if not isinstance(error, typer.BadParameter) or error.param is None:
        return error.format_message()
    parameter = error.param
    is_option = parameter.param_type_name == "option"
    name = parameter.opts[0] if is_option else parameter.display_name_raw
    reason = error.message.removeprefix("Value error, ").removeprefix("Input ")
    reason, _, _ = reason.partition(", unable")
    if reason:
        return f"{name}: {reason}"
    return f"{name} is missing"


def _status_of(work: Callable[[], int]) -> int:
    """Return the exit status of work; report an error in one line that says what to do."""
    try:
        with naming_extras():
            status = work()
        sys.stdout.flush()
        return status
    except SpecError as error:
        _report_findings(error.findings)
        return output.WRONG
    except NeuroLedgerError as error:
        sys.stderr.write(f"neuroledger: {visible(str(error))}\n")
        return _status_after(error)
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write(
            "\ninterrupted; finished results are stored. Run the same command again to continue.\n"
        )
        return output.INTERRUPTED
    except BrokenPipeError:  # the reader closed the pipe, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return output.SUCCESS
    except RecursionError:
        sys.stderr.write(
            "neuroledger: a path or a file is nested too deeply: use one with fewer levels\n"
        )
        return output.FAILED
    except OSError as error:  # its message names the path and the reason
        sys.stderr.write(
            f"neuroledger: {visible(str(error)[:500])}: check the path, its permissions and the free disk space\n"
        )
        return output.PENDING
    except MemoryError:
        sys.stderr.write(
            "neuroledger: memory is exhausted: free memory, then run the same command again\n"
        )
        return output.PENDING


def _status_after(error: NeuroLedgerError) -> int:
    if isinstance(error, RequestError):
        return output.WRONG
    if about_pair(error):
        return output.FAILED
    return output.PENDING


def _report_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        sys.stderr.write(f"{visible(str(finding))}\n")
    sys.stderr.write(f"{len(findings)} problem{'s' if len(findings) != 1 else ''}\n")
