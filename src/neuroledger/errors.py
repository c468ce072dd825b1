"""Every error that NeuroLedger raises deliberately, and the findings of its checks.

::

    NeuroLedgerError
    ├── SpecError            a spec file is wrong: every problem, each with file:line:column
    ├── RequestError         the request names something unknown or combines incompatible things (exit code 2)
    │   ├── UnknownError     the requested id or name does not exist
    │   └── CircleError      definitions refer to each other in a circle
    ├── DataError            data contradict their declaration
    │   ├── AssemblyError    an assembly or stimulus set violates the conventions
    │   ├── ImplausibleError amplitudes are implausible in the stated unit
    │   └── UnlikeError      recordings of one data set differ in channels, lengths or rates
    ├── ModelError           a model cannot be built, or its output is invalid
    ├── MetricError          a metric cannot be computed on these data
    │   └── CeilingError     the data do not support a ceiling
    ├── ContractError        a component does not keep the contract of its kind
    └── PendingError         something is missing on this machine or at this moment (exit code 4)
        ├── UnavailableError   data, software or a device is not available here
        ├── StorageError       a file or folder cannot be read or written (also a DataError)
        │   ├── MissingError     a file is missing
        │   └── IntegrityError   bytes differ from the pinned SHA-256 or size
        ├── UncheckedError     data are not validated here (also a DataError)
        ├── LimitError         memory or time ran out (also a DataError)
        └── UntrustedError     a spec names code that is not trusted (also a ModelError)

Only some errors say something about the pair of model and benchmark, and give a failed record: :func:`about_pair`.
"""

from __future__ import annotations

import errno
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Final, Literal

__all__ = [
    "CODES",
    "EXTRAS",
    "AssemblyError",
    "CeilingError",
    "CircleError",
    "ContractError",
    "DataError",
    "Finding",
    "ImplausibleError",
    "IntegrityError",
    "LimitError",
    "MetricError",
    "MissingError",
    "ModelError",
    "NeuroLedgerError",
    "PendingError",
    "RequestError",
    "SpecError",
    "StorageError",
    "UnavailableError",
    "UncheckedError",
    "UnknownError",
    "UnlikeError",
    "UntrustedError",
    "about_pair",
    "absent_package",
    "causes_of",
    "error_named",
    "is_about_machine",
    "naming_extras",
    "package_missing",
    "require_package",
    "some_of",
]


Severity = Literal["ok", "note", "warning", "error"]
SIGNS: Final[Mapping[Severity, str]] = MappingProxyType(
    {"ok": "✓", "note": "–", "warning": "!", "error": "✗"}
)
EXPECTATIONS: Final = (
    "unique",
    "unique_together",
    "not_null",
    "row_count",
    "columns",
    "files_exist",
    "files_decode",
    "files_match_sha256",
    "dims",
    "shape",
    "coords",
    "dtype",
    "values_finite",
    "values_between",
    "values_vary",
    "content",
    "sampling_rate",
    "channels",
    "units",
    "aligned",
    "repetitions",
    "in_set",
    "equal_set",
    "between",
    "matches",
    "distinct",
)
# Every code with its meaning. The meaning of a code never changes; docs/findings.md is generated from this table.
CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spec.unreadable": "The file cannot be read as UTF-8 text.",
        "spec.yaml": "The text is not in the strict subset of YAML that specs use.",
        "spec.unknown-field": "A field that this kind of spec or component does not have.",
        "spec.missing-field": "A required field is missing.",
        "spec.value": "A field has a value of the wrong type, form or range.",
        "spec.id": "The id differs from the file name.",
        "spec.duplicate-id": "Two files have the same id.",
        "spec.list": "The table file that contains a long list of a spec is wrong.",
        "spec.schema-line": "The first line does not name the JSON Schema for editors.",
        "spec.schema-stale": "A JSON Schema is not the one generated from the code.",
        "spec.stray": "A YAML file is in a folder from which no specs are read.",
        "spec.reference": "The spec names another spec that does not exist.",
        "spec.circle": "Specs refer to each other in a circle.",
        "spec.component": "No component is registered under this name.",
        "spec.override": "The overrides of a metric or ceiling do not resolve.",
        "spec.citation": "A cited key is not in the bibliography.",
        "spec.bibliography": "The bibliography is invalid.",
        "spec.address": "An address contains a secret, leaves its folder, or is on a private machine or network.",
        "spec.license": "The licence is not an SPDX expression.",
        "spec.unguarded": "A data set declares no expectations, so nothing would be validated.",
        "spec.unlabelled": "A benchmark decodes, divides or groups by a coordinate that its data set does not declare.",
        "spec.recordings": "The reader cannot find, label or cut recordings among the pinned files of a data set.",
        "spec.copied-recording": "A benchmark tests recordings that have the same bytes as recordings on which it trains.",
        "spec.members": "The members of a data set do not fit it or its reader.",
        "spec.private": "Private data would be stored in the remote of the repository.",
        "spec.pointer": "A pinned file that DVC provides has no pointer.",
        "spec.layer": "A region, the readout or the logits name a layer that is not declared.",
        "spec.untrained": "The untrained twin of a model has weights or another builder.",
        "spec.commitment": "The rule that commits regions to layers is invalid.",
        "spec.normalisation": "No formula normalises this score by this ceiling.",
        "spec.suite": "The versions or the hierarchy of a suite do not match its benchmarks.",
        "spec.copy": "The file repeats a shipped definition, which every repository has.",
        "machine.plugin": "An installed package of components is broken.",
        "contract.version": "The version or the parameters of a component have no stable form for identities.",
        "contract.docstring": "A component has no docstring, or its first line is no sentence.",
        "contract.parameters": "A component accepts a parameter that it does not have, or suggests no similar one.",
        "contract.signature": "A component does not take the positional arguments of its kind.",
        "contract.channels": "The channels or controls that a component declares are not in the vocabulary.",
        "contract.pickle": "A component cannot be sent to another process.",
        "contract.value": "A metric or ceiling gives no finite score of its example, or not the declared scale and unit.",
        "contract.repeatable": "The same inputs and seed give different scores.",
        "contract.rows": "The order of rows changes a score.",
        "contract.precision": "Inputs of single precision change a score, or samples are not of double precision.",
        "contract.missing": "A missing value gives an undefined score or undefined samples without a statement.",
        "contract.single": "A single item crashes a metric or ceiling.",
        "contract.dimensions": "The docstring does not name a dimension of the samples.",
        "contract.limits": "A score is outside of the declared limits.",
        "contract.json": "A score cannot be written as JSON and read again.",
        "contract.pending": "A component hides an error of the machine, which would become a failed record.",
        "contract.files": "A reader crashes on absent files instead of naming them.",
        "contract.model": "A built model has another id, or cannot be sent to another process.",
        "trust.untrusted": "A spec names code, or an argument of it, that is not trusted.",
        "spec.chance": "The bound of negative controls is below the chance level of the metric.",
        "spec.control": "A recorded control of the benchmark failed.",
        "spec.control-undecided": "The interval of a recorded control of the benchmark contains its bound.",
        "data.hash": "A file is missing, or its bytes differ from the pinned SHA-256 or size.",
        "data.structure": "The reader fails, or its result violates the conventions of assemblies and stimulus sets.",
        "data.clocks": "The clocks of a recording do not belong together, or most of its windows hold no event.",
        "data.copies": "Rows or responses occur more than once: a copy is not a further measurement.",
        "data.conflict": "Two rows have the same key, and other values.",
        "data.left-out": "The reader left out data or could not resolve an ambiguity.",
        "data.signature": "A signature that the spec of the data set names cannot be computed.",
        "data.undeclared": "The data set has a part without declared expectations.",
        "data.missing": "Files of the data set are not on this machine.",
        "data.not-validated": "The data set has no validation report.",
        "data.report-edited": "The validation report cannot be read, or was edited.",
        "data.report-stale": "The spec or the reader changed after the data set was validated.",
        "data.invalid": "The data set failed validation.",
        **{
            f"expectation.{name}": f"The expectation `{name}` of a data set does not hold."
            for name in EXPECTATIONS
        },
        "claim.record": "A record that a claim needs is missing, outdated or not looked at yet.",
        "claim.looks": "The looks at a claim changed.",
        "claim.rewritten": "Looks at a claim are invalid, or earlier ones were changed or removed.",
        "record.current": "The inputs of the record are current; its numbers were not recomputed.",
        "record.reproduced": "Recomputing the record gave the same numbers.",
        "record.refreshed": "The interval of the record was computed again, or its file was written in the present form.",
        "record.interval-current": "The interval of the record is that of the current method.",
        "record.interval-kept": "The interval of the record cannot be computed again from what the record stores.",
        "record.value-reproduced": "Recomputing gave the same numbers and verdicts, but other intervals of controls.",
        "record.failed": "The job of the record failed.",
        "record.data-missing": "The data or weights of the record are not on this machine, so it was not checked.",
        "record.data-changed": "A local file of the data or weights differs from its pin, so it was not checked.",
        "record.not-checked": "This machine lacks something else to check the record, or a spec is invalid.",
        "record.unreadable": "The file is not a record.",
        "record.edited": "The content of the record does not match its own hash.",
        "record.misplaced": "The file contains the record of another model or benchmark.",
        "record.stale": "The specs or components of the record changed after it was computed.",
        "record.not-reproduced": "Recomputing the record gave other numbers.",
        "sealed.predictions": "Predictions of sealed answers were proposed.",
        "sealed.looks": "Looks at sealed answers were added and signed by their owner.",
        "sealed.rewritten": "Looks at sealed answers or predictions were changed, removed or not signed.",
        "sealed.reproduced": "Answers and predictions give what the look returned.",
        "sealed.false": "Answers and predictions give something else than what the look returned, or predictions changed.",
        "sealed.signed": "The looks at sealed answers are signed by an allowed signer.",
        "sealed.unsigned": "The looks at sealed answers have no signature of an allowed signer.",
        "review.version": "A change can alter scores, but the version of the spec is unchanged.",
        "review.spec": "A spec, one of its list files or the bibliography changed.",
        "review.record": "A record changed; the review did not recompute it.",
        "review.not-checkable": "A record changed whose data nobody can fetch, so its numbers cannot be checked.",
        "review.record-moved": "A record has different numbers for the same inputs.",
        "review.report": "A validation report changed; its content is self-reported.",
        "review.pointer": "A DVC pointer changed, and it agrees with the pin of its spec.",
        "review.pointer-wrong": "A DVC pointer has no single output in its own folder, or contradicts its object or pin.",
        "review.object": "An object was added to the embedded remote; its name matches its content.",
        "review.object-wrong": "An object of the embedded remote does not match its name, or no pointer refers to it.",
        "review.page": "Documentation changed.",
        "review.calibration": "The calibration of a benchmark changed; it was not simulated again.",
        "review.derived": "A file that the pipeline generates changed; it agrees with its sources.",
        "review.lock": "The proposal changes the lock file of DVC, in which proposals conflict.",
        "review.code": "Code, settings or another file that is not known to be data changed.",
        "review.removed": "Something that others may use was removed.",
        "review.link": "A link, a submodule or a repository inside the repository.",
        "review.nested": "A file that configures git or DVC from inside the repository.",
        "review.path": "A file name is invalid on some systems, or equal to another one there.",
        "review.tree": "A folder in git has an entry twice, out of order or with a name that git does not write.",
        "review.data-folder": "git holds a file in a data folder, which may hold only pointers and what describes the data.",
        "review.prepared": "The proposal contains prepared windows, which are computed from pinned files.",
        "review.size": "A file or the embedded remote is over its limit, or the proposal is too large to review.",
        "review.hidden-character": "A text contains control or invisible characters, or a file is not text.",
        "review.private": "Bytes of private data are in the public repository.",
        "review.weakened": "A field changed that does not alter scores, but their credibility or attribution.",
        "review.waived": "A gate against leakage or an expectation is switched off.",
        "review.controls": "Controls were removed or are not declared, or their bounds are weaker than the defaults.",
        "review.uncommitted": "The working tree differs from the last commit.",
        "review.own-code": "The review runs code of the folder that it reviews.",
        "record.signed": "The record was recomputed and signed by an allowed signer.",
        "record.signature": "The signature of a record is not that of an allowed signer over these numbers.",
        "record.calibration": "The file is not a calibration of the benchmark as declared, or contradicts its own counts.",
        "review.signature": "A signature changed; it is refused if it is of another text than its records.",
        "machine.memory": "Memory or time ran out, or the process was killed.",
        "machine.worker": "A worker, a scheduler or its connection was lost.",
        "machine.crash": "The program failed unexpectedly; this says nothing about the pair. Please report it.",
        "machine.python": "The version of Python.",
        "machine.package": "A required or optional package.",
        "machine.device": "Processors and graphics cards.",
        "machine.disk": "Free space and rights on the disk.",
        "machine.remote": "The storage from which DVC copies data.",
        "machine.mirror": "The local folder of downloads.",
        "machine.suite": "The suite that is scored by default.",
        "machine.data": "Files of a data set or model, and whether the data set is valid.",
        "store.size": "The size of the store of activations.",
        "audit.duplicate": "Recordings, windows or events of a data set are copies of one another.",
        "audit.people": "Sessions of two subjects appear to be swapped.",
        "audit.shifted": "The timing of responses or events in some recordings differs from the others.",
        "audit.labels": "Windows have the label of another window, or labels appear to be swapped.",
        "audit.rate": "The mains frequency of some recordings differs from the others.",
        "audit.counts": "The numbers of subjects or of trials of a label differ from the stated numbers.",
        "audit.units": "Amplitudes are implausible for the channel type, or the unit of some recordings differs.",
        "audit.flat": "Channels are flat in some recordings.",
        "audit.channels": "Channels contain identical signals or only mains hum, or their order differs between subjects.",
        "audit.clipped": "Channels are clipped in some recordings.",
        "audit.leak": "A channel encodes the label.",
        "audit.order": "Time, recording or subject predicts the label.",
    }
)


class NeuroLedgerError(Exception):
    """Root of all deliberate errors; the message says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Finding:
    """One result of check, validation, review, verify or doctor; docs/findings.md lists the codes.

    Attributes
    ----------
    code
        A key of ``CODES``; it is stable, so programs need not parse ``what``.
    severity
        ``error`` refuses, ``warning`` needs a person, ``note`` informs, ``ok`` confirms.
    where, line, column
        File, record, data set or part of the machine; line and column in a file from 1, or 0 if not known.
    what, fix
        What is wrong, and how to fix it.
    """

    code: str
    severity: Severity
    where: str
    what: str
    fix: str = ""
    line: int = 0
    column: int = 0

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise KeyError(self.code)

    def __lt__(self, other: Finding) -> bool:
        order = attrgetter("where", "line", "column", "what", "code", "fix")
        return bool(order(self) < order(other))

    def __str__(self) -> str:
        if self.line:
            place = f"{self.where}:{self.line}:{self.column}"
        else:
            place = self.where
        text = f"{place}: {self.what} [{self.code}]"
        if self.fix:
            return f"{text}\n    hint: {self.fix}"
        return text

    def to_dict(self) -> dict[str, str | int]:
        """Return plain data; ``line`` and ``column`` only if they are known."""
        plain = asdict(self)
        if self.line:
            return plain
        return {name: plain[name] for name in plain if name not in ("line", "column")}


class SpecError(NeuroLedgerError):
    """One or more spec files are wrong; ``findings`` lists every problem."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


class RequestError(NeuroLedgerError):
    """The request names something that does not exist, or combines incompatible things."""


class UnknownError(RequestError):
    """The requested id or name does not exist."""


class CircleError(RequestError):
    """Definitions refer to each other in a circle."""


class PendingError(NeuroLedgerError):
    """Something is missing on this machine or at this moment; says nothing about the model or the benchmark.

    Parameters
    ----------
    message
        What is missing. If no command is given, it also says what to do.
    command
        The command that fixes it, which is appended to the message.
    """

    def __init__(self, message: str, command: str = "") -> None:
        self.message = message
        self.command = command
        super().__init__(f"{message}: run `{command}`" if command else message)

    def __reduce__(self) -> tuple[type[PendingError], tuple[str, str]]:
        return type(self), (self.message, self.command)


class DataError(NeuroLedgerError):
    """Data contradict their declaration."""


class AssemblyError(DataError):
    """An assembly or stimulus set violates the conventions."""


class ImplausibleError(DataError):
    """Amplitudes are implausible in the stated unit."""


class UnlikeError(DataError):
    """Recordings of one data set differ in their channels, their lengths or their rates."""


class StorageError(PendingError, DataError):
    """A file or folder cannot be read or written: permissions, a full or failing disk, an absent mount."""


class MissingError(StorageError):
    """A file is not on this machine."""


class IntegrityError(StorageError):
    """A file's bytes differ from the SHA-256 or size pinned in its spec."""


class UncheckedError(PendingError, DataError):
    """Data are not validated on this machine, or their validation report is stale or edited."""


class LimitError(PendingError, DataError):
    """A process ran out of memory or time, or was killed."""


class ModelError(NeuroLedgerError):
    """A model cannot be built, or its output is invalid."""


class UntrustedError(PendingError, ModelError):
    """A spec names code that the owner of this machine does not trust; anyone can write a spec."""


class MetricError(NeuroLedgerError):
    """A metric cannot be computed on these data."""


class CeilingError(MetricError):
    """The data do not support this ceiling."""


class ContractError(NeuroLedgerError):
    """A component does not keep the contract of its kind."""


class UnavailableError(PendingError):
    """Data, software or a device is not available on this machine; the message says why and how to get it."""


def error_named(name: str) -> type[NeuroLedgerError] | None:
    """Return the class of this name, as it is recorded or sent by another process; None for any other exception."""
    found = globals().get(name) if name in __all__ else None
    if isinstance(found, type) and issubclass(found, NeuroLedgerError):
        return found
    return None


def about_pair(error: BaseException) -> bool:
    """Whether an error says something about the pair of model and benchmark, on any machine.

    Everything else is about the machine or the moment: a :class:`PendingError`, an invalid spec, and any exception that
    is no error of NeuroLedger, since a crash is not a statement about the pair. An error that was raised from one of the
    machine's, such as a full disk or exhausted memory, is about the machine too. Decided by types alone.
    """
    if not isinstance(error, NeuroLedgerError) or isinstance(
        error, (SpecError, UnknownError, CircleError)
    ):
        return False
    return not any(is_about_machine(each) for each in causes_of(error))


def is_about_machine(error: BaseException) -> bool:
    """Whether this exception itself reports a state of the machine: files, memory, packages, or a :class:`PendingError`.

    Libraries also raise ``OSError`` for contents that they cannot parse; only one with the number of an error of the
    operating system is about the machine. An invalid argument is a position outside of a damaged file.
    """
    if isinstance(error, OSError):
        return error.errno in errno.errorcode and error.errno != errno.EINVAL
    return isinstance(
        error, (PendingError, MemoryError, ImportError, *_out_of_memory())
    )


def _out_of_memory() -> tuple[type[BaseException], ...]:
    """The exception of torch for exhausted memory, if torch is imported."""
    kind = getattr(sys.modules.get("torch"), "OutOfMemoryError", None)
    return (kind,) if isinstance(kind, type) else ()


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from."""
    current: BaseException | None = error
    seen = set[int]()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)


# Optional packages, by the name under which they are imported, and the extra of this package that installs them.
EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "av": "film",
        "braindecode": "braindecode",
        "dask": "cluster",
        "distributed": "cluster",
        "dvc": "pipeline",
        "dvclive": "trackers",
        "fsspec": "cluster",
        "great_expectations": "pipeline",
        "h5py": "recordings",
        "huggingface_hub": "trackers",
        "lz4": "events",
        "matplotlib": "plots",
        "mlflow": "trackers",
        "mne": "eeg",
        "mne_bids": "bids",
        "neo": "neo",
        "nibabel": "fmri",
        "nilearn": "fmri",
        "nir": "nir",
        "onnx": "onnx",
        "openpyxl": "sheets",
        "pyarrow": "parquet",
        "pynwb": "nwb",
        "pyriemann": "eeg",
        "pyxdf": "xdf",
        "s3fs": "s3",
        "safetensors": "torch",
        "snntorch": "spiking",
        "soundfile": "sound",
        "spacy": "words",
        "timm": "vision",
        "torch": "torch",
        "torchvision": "vision",
        "transformers": "language",
        "wandb": "trackers",
        "zarr": "zarr",
        "zstandard": "events",
    }
)


def package_missing(package: str, extra: str = "") -> UnavailableError:
    """Return the error for an optional package that is not installed, with the exact command that installs it."""
    extra = extra or EXTRAS[package]
    return UnavailableError(
        f"the package {package} is not installed", f"pip install 'neuroledger[{extra}]'"
    )


def absent_package(error: ImportError) -> UnavailableError | None:
    """Return the error that names the extra of the package that could not be imported; None if it is in no extra."""
    package = (error.name or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in EXTRAS:
        return package_missing(package)
    return None


@contextmanager
def naming_extras() -> Iterator[None]:
    """Turn the failed import of an optional package into one error with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        found = absent_package(error)
        if found is None:
            raise
        raise found from error


def require_package(package: str) -> None:
    """Require an optional package that another process imports.

    Raises
    ------
    UnavailableError
        It is not installed.
    """
    if importlib.util.find_spec(package) is None:
        raise package_missing(package)


def some_of(names: Sequence[str], most: int) -> str:
    """Return the first of several names for a message, with an ellipsis if there are more."""
    shown = ", ".join(names[:most])
    if len(names) > most:
        return f"{shown}, …"
    return shown
