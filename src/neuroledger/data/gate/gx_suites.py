"""Run questions about tables of facts with Great Expectations; the only module that imports it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from neuroledger.data.gate.expectations import Inquiry
from neuroledger.data.gate.gx_queries import Answer, Question
from neuroledger.data.gate.gx_tables import Facts
from neuroledger.errors import DataError

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

import great_expectations as gx
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.registry import get_expectation_impl

__all__ = ["answer_of", "answers", "great_expectations_version"]

MARK: Final = "neuroledger"
EXAMPLES: Final = 20
FORMAT: Final = {"result_format": "COMPLETE"}
Place = tuple[int, int]


@dataclass(frozen=True)
class _Suite:
    """A table of facts and all questions about it, each with its position among the inquiries."""

    name: str
    facts: Facts
    questions: tuple[tuple[Place, Question], ...]


def great_expectations_version() -> str:
    """The installed version."""
    return version("great_expectations")


def answers(
    inquiries: Sequence[Inquiry],
    *,
    private: bool = False,
    data_docs: Path | None = None,
) -> list[tuple[Answer, ...]]:
    """The answers to all questions of every inquiry, in order.

    Great Expectations passes whatever it did not examine (an empty suite, an empty table, missing values) and hides
    internal exceptions. Here, each of these is a failed answer.

    Parameters
    ----------
    inquiries
        Questions with the facts that they are about.
    private
        Omit values and names of rows from the answers.
    data_docs
        Folder in which Great Expectations writes its own pages (they load styles from the network).

    Raises
    ------
    DataError
        ``inquiries`` is empty: there is nothing to validate.
    """
    if not inquiries:
        raise DataError(
            "there is no expectation, and an empty suite would pass any data: declare expectations"
        )
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(
        globally=False, metric_calculations=False
    )
    if data_docs is not None:
        _add_site(context, data_docs)
    # One source serves all tables: Great Expectations writes its whole configuration for each new one.
    tables = (
        context.data_sources.add_pandas("neuroledger")
        .add_dataframe_asset("facts")
        .add_batch_definition_whole_dataframe("all")
    )
    result: dict[Place, Answer] = {}
    for suite in _suites(inquiries):
        result |= _run_suite(context, tables, suite, private=private)
    if data_docs is not None:
        context.build_data_docs()
    return [
        tuple(result[i, j] for j in range(len(inquiry.questions)))
        for i, inquiry in enumerate(inquiries)
    ]


def _suites(inquiries: Sequence[Inquiry]) -> Iterable[_Suite]:
    """Group the questions by table; facts with the same title are the same facts."""
    facts = {inquiry.facts.title: inquiry.facts for inquiry in inquiries}
    by_title: dict[str, list[tuple[Place, Question]]] = {title: [] for title in facts}
    for i, inquiry in enumerate(inquiries):
        by_title[inquiry.facts.title] += [
            ((i, j), question) for j, question in enumerate(inquiry.questions)
        ]
    return [
        _Suite(
            f"{number} {re.sub('[^A-Za-z0-9]+', ' ', title).strip()}",
            facts[title],
            tuple(questions),
        )
        for number, (title, questions) in enumerate(by_title.items(), start=1)
    ]


def _run_suite(
    context: Any, tables: Any, suite: _Suite, *, private: bool
) -> dict[Place, Answer]:
    expectations = [
        get_expectation_impl(question.type)(
            **question.arguments, meta={MARK: f"{i}.{j}"}
        )
        for (i, j), question in suite.questions
    ]
    declared = context.suites.add(
        gx.ExpectationSuite(name=suite.name, expectations=expectations)
    )
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name=suite.name, data=tables, suite=declared)
    )
    outcome = definition.run(
        batch_parameters={"dataframe": suite.facts.rows}, result_format=FORMAT
    )
    results = {
        result.expectation_config.meta[MARK]: result for result in outcome.results
    }
    return {
        (i, j): answer_of(
            results.get(f"{i}.{j}"), question, suite.facts, private=private
        )
        for (i, j), question in suite.questions
    }


def answer_of(
    result: Any,
    question: Question,
    facts: Facts,
    *,
    private: bool,
) -> Answer:
    """The answer in one result; a result that examined nothing is a failed answer."""
    withheld = private and not facts.quotable
    if result is None:
        return Answer(False, error="Great Expectations returned no result")
    if not result.result:
        if withheld:
            reason = "the reason is withheld: private data"
        else:
            reason = _exception_message(result)
        return Answer(
            False,
            error=f"Great Expectations could not decide the expectation ({reason})",
        )
    details: Mapping[str, Any] = result.result
    about_table = question.type.startswith("expect_table_")
    if not about_table and (details.get("element_count") == 0 or facts.rows.empty):
        return Answer(False, error="there are no such rows, so nothing was checked")
    answer = Answer(
        success=bool(result.success),
        total=details.get("element_count"),
        breaches=details.get("unexpected_count") or details.get("missing_count"),
        observed=details.get("observed_value"),
    )
    if withheld:
        return answer
    return replace(
        answer,
        values=_texts(details.get("partial_unexpected_list", ())),
        rows=_row_names(facts, details.get("unexpected_index_list")),
        absent=_texts(details.get("partial_missing_list", ())),
    )


def _exception_message(result: Any) -> str:
    """The last line of the exception that was raised inside Great Expectations."""
    info = result.exception_info or {}
    details = [info, *[each for each in info.values() if isinstance(each, Mapping)]]
    messages = [
        str(each["exception_message"])
        for each in details
        if each.get("exception_message")
    ]
    if messages:
        return messages[0].strip().splitlines()[-1]
    return "no reason given"


def _texts(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(_text(value) for value in list(values)[:EXAMPLES])


def _text(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return " instead of ".join(_text(each) for each in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _row_names(facts: Facts, positions: Iterable[int] | None) -> tuple[str, ...]:
    if facts.key is None:
        return ()
    column = facts.rows[facts.key]
    return tuple(
        f"row {i + 1}" if column.isna()[i] else str(column[i])
        for i in list(positions or ())[:EXAMPLES]
    )


def _add_site(context: Any, folder: Path) -> None:
    """Configure Great Expectations to write its own pages into ``folder``."""
    store = {
        "class_name": "TupleFilesystemStoreBackend",
        "base_directory": str(folder.resolve()),
    }
    index = {"class_name": "DefaultSiteIndexBuilder"}
    site = {
        "class_name": "SiteBuilder",
        "site_index_builder": index,
        "store_backend": store,
    }
    context.add_data_docs_site(site_name="neuroledger", site_config=site)
