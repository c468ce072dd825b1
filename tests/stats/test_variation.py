"""How scores vary: the jackknife, random weights and held-out deviations, against textbook formulas."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from scipy import stats

from neuroledger.errors import MetricError
from neuroledger.stats.groups import DRAWS, MOST_GROUPS, exponentials, grouped
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.uncertainty import PAIR, Uncertainty
from neuroledger.stats.variation import held_out_deviation, inflation, uncertainty_of
from tests.varying import of_items

Floats = npt.NDArray[np.float64]
NAN = math.nan


def varied(
    values: Floats,
    dims: tuple[str, ...],
    *,
    variation: Variation | None = None,
    over: tuple[str, ...] | None = None,
    how: str = "mean",
    coords: dict[str, object] | None = None,
) -> Uncertainty:
    samples = xr.DataArray(values, dims=dims, coords=coords or {})
    found = uncertainty_of(
        Samples(samples), [(dim, how) for dim in dims], variation, "identity", over
    )
    assert found is not None
    return found


def mean_without(
    values: Floats, dims: tuple[str, str] = ("stimulus", "subject")
) -> Variation:
    """The mean of a table whose rows and columns are left out."""

    def without(keep: Keep) -> xr.DataArray:
        rows, columns = (
            keep.get(dim, np.ones(n, dtype=bool))
            for dim, n in zip(dims, values.shape, strict=True)
        )
        return xr.DataArray(values[np.ix_(rows, columns)].mean())

    items = {
        dim: [f"{dim}{i}" for i in range(n)]
        for dim, n in zip(dims, values.shape, strict=True)
    }
    return Variation(items, without)


@pytest.mark.parametrize("count", [2, 12, 60])
def test_a_mean_of_items_has_the_variance_of_textbooks(count: int) -> None:
    values = np.random.default_rng(count).standard_normal(count)
    found = of_items(values)
    assert found.variance == pytest.approx(values.var(ddof=1) / count, rel=1e-12)
    assert found.freedom == pytest.approx(count - 1) and found.items == {
        "stimulus": count
    }
    low, high = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert found.interval(float(values.mean())) == pytest.approx((low, high))
    assert found.p(float(values.mean())) == pytest.approx(
        stats.ttest_1samp(values, 0).pvalue
    )
    assert found.method == "jackknife" and found.factors == ("stimulus",)


def test_splits_are_no_random_factor_and_one_item_does_not_vary() -> None:
    values = np.random.default_rng(5).standard_normal((4, 9))
    found = varied(values, ("split", "neuroid"))
    assert found.factors == ("neuroid",)
    assert found.error == pytest.approx(stats.sem(values.mean(axis=0)))
    alone = Samples(xr.DataArray(values[:, :1], dims=("split", "neuroid")))
    assert (
        uncertainty_of(
            alone, [("split", "mean"), ("neuroid", "mean")], None, "identity"
        )
        is None
    )


def test_more_than_sixty_items_are_in_groups_by_name() -> None:
    """The groups differ in size, so that the mean is a ratio (Cochran 1977, equation 6.13)."""
    rng, count = np.random.default_rng(7), 1000
    values, names = (
        rng.standard_normal(count),
        np.array([f"im{i}" for i in range(count)]),
    )
    found, groups = of_items(values, names.tolist()), grouped(names)
    G = len(groups.keys)
    sums, sizes = (np.bincount(groups.codes, weights) for weights in (values, None))
    residuals = sums - values.mean() * sizes
    expected = math.sqrt(G / (G - 1) * float(residuals @ residuals)) / count
    assert found.error == pytest.approx(expected) and found.freedom == pytest.approx(
        G - 1
    )
    assert found.items == {"stimulus": count} and G == MOST_GROUPS
    assert found.variance == pytest.approx(
        values.var(ddof=1) / count, rel=3 * math.sqrt(2 / (G - 1))
    )
    order = rng.permutation(count)
    again = of_items(values[order], names[order].tolist())
    assert again.parts[0].keys == found.parts[0].keys
    np.testing.assert_allclose(again.parts[0].values, found.parts[0].values, atol=1e-12)


def test_the_group_of_an_item_depends_on_its_name_only() -> None:
    names = [f"im{i}" for i in range(500)]
    whole, half = grouped(names), grouped(names[::2])
    for name in names[::2]:
        group = [
            each.keys[each.codes[own.index(name)]]
            for each, own in ((whole, names), (half, names[::2]))
        ]
        assert group[0] == group[1]
    assert whole.sizes.sum() == 500
    few = grouped(["b", "a", "b", "c"])
    assert (
        few.keys == ("a", "b", "c")
        and few.codes.tolist() == [1, 0, 1, 2]
        and few.sizes.tolist() == [1, 1, 1]
    )


def test_rows_of_one_stimulus_are_one_item_in_any_order() -> None:
    rng = np.random.default_rng(1)
    values, ids = rng.standard_normal(60), np.repeat([f"s{i}" for i in range(20)], 3)
    values = np.repeat(values[:20], 3) + 0.1 * values
    orders = [np.arange(60), rng.permutation(60)]
    found = [
        varied(
            values[order],
            ("presentation",),
            coords={"stimulus_id": ("presentation", ids[order])},
        )
        for order in orders
    ]
    assert (
        found[0].parts[0].keys == found[1].parts[0].keys
        and len(found[0].parts[0].keys) == 20
    )
    np.testing.assert_allclose(
        found[0].parts[0].values, found[1].parts[0].values, atol=1e-12
    )
    assert found[0].error == pytest.approx(
        stats.sem(values.reshape(20, 3).mean(axis=1))
    )


def mean_squares(table: Floats) -> tuple[float, float, float]:
    """Mean squares of rows, of columns and of their interaction, by hand."""
    a, b = table.shape
    rows, columns, whole = table.mean(axis=1), table.mean(axis=0), table.mean()
    rest = table - rows[:, None] - columns + whole
    return (
        float(b * ((rows - whole) ** 2).sum() / (a - 1)),
        float(a * ((columns - whole) ** 2).sum() / (b - 1)),
        float((rest**2).sum() / ((a - 1) * (b - 1))),
    )


@pytest.mark.parametrize("route", ["dimensions", "one left out", "both left out"])
@pytest.mark.parametrize("shape", [(7, 5), (3, 8)])
def test_a_crossed_table_has_the_variance_of_rows_and_columns_without_their_interaction(
    route: str, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(shape)
    table = (
        rng.standard_normal(shape)
        + rng.standard_normal(shape[1])
        + rng.standard_normal((shape[0], 1))
    )
    if route == "dimensions":
        found = varied(table, ("stimulus", "subject"))
    elif route == "both left out":
        found = varied(np.float64(table.mean()), (), variation=mean_without(table))
    else:

        def without(keep: Keep) -> xr.DataArray:
            return xr.DataArray(table[keep["stimulus"]].mean(axis=0), dims="subject")

        rows = Variation({"stimulus": [f"s{i}" for i in range(shape[0])]}, without)
        found = varied(table.mean(axis=0), ("subject",), variation=rows)
    rows_, columns, both = (each / table.size for each in mean_squares(table))
    assert found.variance == pytest.approx(max(rows_ + columns - both, rows_, columns))
    assert found.factors == ("stimulus", "subject")
    assert found.items == dict(zip(found.factors, shape, strict=True))
    degrees = [n - 1 for n in shape]
    expected = (rows_ + columns) ** 2 / (
        rows_**2 / degrees[0] + columns**2 / degrees[1]
    )
    assert found.freedom == pytest.approx(expected), "of Satterthwaite"


def test_an_interaction_never_leaves_less_than_the_largest_factor() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((6, 6))
    table = noise - noise.mean(axis=0) - noise.mean(axis=1, keepdims=True)
    table = table + 0.01 * np.arange(6.0)[:, None]
    rows, columns, both = mean_squares(table)
    assert both > rows > columns
    assert varied(table, ("stimulus", "subject")).variance == pytest.approx(rows / 36)


def test_interactions_of_many_items_are_those_of_eight_groups_of_each() -> None:
    table = np.random.default_rng(3).standard_normal((50, 40))
    found = varied(table, ("stimulus", "neuroid"))
    both = next(part for part in found.parts if len(part.over) == 2)
    assert len(both.keys) == 64 and all(PAIR in key for key in both.keys)
    assert both.freedom == 63 and both.variance == pytest.approx(
        1 / table.size, rel=3 * math.sqrt(2 / 49)
    )


@pytest.mark.parametrize(("count", "most"), [(15, 1.4), (60, 1.2)])
def test_a_median_by_random_weights_has_the_variance_of_a_median(
    count: int, most: float
) -> None:
    """Of many normal values π/2 times that of the mean; of 15, a third more than that of a simulation."""
    rng = np.random.default_rng(count)
    true = np.median(rng.standard_normal((20_000, count)), axis=1).var()
    assert true == pytest.approx(math.pi / 2 / count, rel=0.1)
    claimed = []
    for run in range(200):
        names = ("neuroid", [f"{run} {i}" for i in range(count)])
        values = rng.standard_normal(count)
        found = varied(values, ("neuroid",), how="median", coords={"neuroid_id": names})
        assert found.freedom == pytest.approx(count - 1)
        claimed.append(found.variance)
    assert 0.9 < np.mean(claimed) / true < most


def test_medians_of_the_same_items_share_their_weights() -> None:
    values, ids = (
        np.random.default_rng(4).standard_normal(41),
        [f"n{i}" for i in range(41)],
    )

    def of(values: Floats, names: list[str]) -> Uncertainty:
        return varied(
            values,
            ("neuroid",),
            how="median",
            coords={"neuroid_id": ("neuroid", names)},
        )

    first = of(values, ids)
    np.testing.assert_allclose(
        of(2 * values, ids).parts[0].values, 2 * first.parts[0].values
    )
    assert (of(2 * values, ids) - first - first).error == pytest.approx(0.0, abs=1e-12)
    assert (of(values[::-1], ids[::-1]) - first).error == pytest.approx(
        0.0, abs=1e-12
    ), "in any order"
    other = of(values, [f"m{i}" for i in range(41)])
    assert (other - first).variance == pytest.approx(
        other.variance + first.variance, rel=0.2
    )


def test_items_of_other_factors_move_a_median_as_they_move_the_mean() -> None:
    table = np.random.default_rng(6).standard_normal((12, 9))

    def without(keep: Keep) -> xr.DataArray:
        return xr.DataArray(table[keep["stimulus"]].mean(axis=0), dims="neuroid")

    rows = Variation({"stimulus": [str(i) for i in range(12)]}, without)
    found = varied(table.mean(axis=0), ("neuroid",), variation=rows, how="median")
    part = found.part(("", ("stimulus",)))
    assert part is not None and part.variance == pytest.approx(
        stats.sem(table.mean(axis=1)) ** 2
    )


@pytest.mark.parametrize("how", ["sum", "max", "min", "abs_mean"])
def test_other_reductions_are_computed_again_without_each_item(how: str) -> None:
    values = np.random.default_rng(8).standard_normal(9) - 1
    reduce = {
        "sum": np.sum,
        "max": np.max,
        "min": np.min,
        "abs_mean": lambda x: abs(np.mean(x)),
    }[how]
    left = np.array([reduce(np.delete(values, i)) for i in range(9)])
    tukey = 8 / 9 * ((left - left.mean()) ** 2).sum()
    assert varied(values, ("neuroid",), how=how).variance == pytest.approx(tukey)


def test_missing_samples_are_left_out_and_undefined_scores_do_not_deviate() -> None:
    values = np.random.default_rng(9).standard_normal((3, 8))
    values[:, 2] = NAN
    values[0, 5] = NAN
    found = varied(values, ("split", "neuroid"))
    assert math.isfinite(found.error) and found.error > 0

    def undefined(keep: Keep) -> xr.DataArray:
        return xr.DataArray(
            np.where(keep["stimulus"][0], keep["stimulus"] @ np.arange(6.0), NAN)
        )

    some = varied(
        np.float64(15.0),
        (),
        variation=Variation({"stimulus": list("abcdef")}, undefined),
    )
    assert math.isfinite(some.error) and some.error > 0
    never = Variation({"stimulus": list("abc")}, lambda keep: xr.DataArray(NAN))
    assert varied(np.float64(15.0), (), variation=never).error == 0.0


def test_a_factor_on_which_a_score_does_not_depend_is_none() -> None:
    table = np.random.default_rng(2).standard_normal((8, 1)) * np.ones(5)
    assert varied(table, ("stimulus", "subject")).factors == ("stimulus",)


# Cross-validation


def folds(count: int, J: int) -> list[Split]:
    rows = np.arange(count)
    return [Split(rows[rows % J != j], rows[rows % J == j]) for j in range(J)]


@pytest.mark.parametrize(
    ("J", "expected"), [(10, 1 + 10 * (1 / 9)), (5, 1 + 5 / 4), (2, 3.0)]
)
def test_the_factor_of_folds_is_that_of_nadeau_and_bengio(
    J: int, expected: float
) -> None:
    assert inflation(folds(100, J)) == pytest.approx(expected)


def test_repeated_splits_test_rows_several_times() -> None:
    """Ten splits that test a fifth each have the variance (1/10 + 1/4) σ², of which leaving out rows measures σ²/5."""
    assert inflation(folds(100, 5) * 2) == pytest.approx((1 / 10 + 1 / 4) / (1 / 5))
    assert inflation([Split(np.array([], dtype=int), np.arange(9))]) == 1.0, (
        "nothing is trained"
    )


def test_a_cross_validated_mean_has_the_inflated_variance_of_its_tested_items() -> None:
    values, splits = np.random.default_rng(11).standard_normal(40), folds(40, 4)
    whole = np.array([values[split.test].mean() for split in splits])
    factor = inflation(splits)

    def without(keep: Keep) -> xr.DataArray:
        kept = [split.test[keep["stimulus"][split.test]] for split in splits]
        left = np.array([values[rows].mean() for rows in kept])
        share = np.array([1 - len(rows) / 10 for rows in kept])
        return xr.DataArray(held_out_deviation(whole, left, share), dims="split")

    held_out = Variation(
        {"stimulus": [f"s{i}" for i in range(40)]},
        without,
        inflation={"stimulus": factor},
    )
    found = varied(whole, ("split",), variation=held_out)
    within = values - whole[np.arange(40) % 4]
    assert found.variance == pytest.approx(
        factor * 40 / 39 * float(within @ within) / 40**2
    )
    assert found.method == "held-out" and found.freedom == pytest.approx(39)


def test_a_split_without_a_value_does_not_move() -> None:
    moved = held_out_deviation(
        np.array([0.5, 0.7]), np.array([NAN, 0.9]), np.array([0.1, 0.25])
    )
    np.testing.assert_allclose(moved, [0.5, 0.7 + 0.75 * 0.2])


def test_a_closed_form_takes_the_place_of_leaving_out() -> None:
    table = np.random.default_rng(5).standard_normal((7, 5))
    slow = mean_without(table)
    asked = []

    def each(factor: str, codes: npt.NDArray[np.intp]) -> Floats:
        asked.append(factor)
        return np.array(
            [slow.without({factor: codes != g}).item() for g in range(codes.max() + 1)]
        )

    fast = Variation(slow.items, slow.without, each=each)
    pair = [
        varied(np.float64(table.mean()), (), variation=each_) for each_ in (slow, fast)
    ]
    assert pair[0].variance == pytest.approx(pair[1].variance) and asked == [
        "stimulus",
        "subject",
    ]


# Factors that are asked for


def owned(
    values: Floats, owners: list[str], over: tuple[str, ...] | None = None
) -> Uncertainty:
    """The mean over neuroids, with the subject of each."""
    coords = {
        "neuroid_id": ("neuroid", [f"n{i}" for i in range(len(values))]),
        "subject": ("neuroid", owners),
    }
    return varied(values, ("neuroid",), over=over, coords=coords)


def test_a_mean_over_new_subjects_has_the_error_of_the_mean_of_subjects() -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal(40) + np.repeat(rng.standard_normal(5), 8)
    owners = np.repeat(list("abcde"), 8).tolist()
    found = owned(values, owners, ("subject",))
    means = values.reshape(5, 8).mean(axis=1)
    assert found.error == pytest.approx(stats.sem(means)) and found.items == {
        "subject": 5
    }
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(means))
    assert found.interval(float(values.mean())) == pytest.approx((low, high))
    plain = owned(values, owners)
    assert plain.factors == ("neuroid",) and plain.error == pytest.approx(
        stats.sem(values)
    )


def test_subjects_with_unequal_numbers_of_neuroids_are_left_out_one_by_one() -> None:
    rng, sizes = np.random.default_rng(4), np.array([3, 9, 5, 14, 7])
    owners = np.repeat(list("abcde"), sizes)
    values = rng.standard_normal(sizes.sum()) + np.repeat(rng.standard_normal(5), sizes)
    left = np.array([values[owners != name].mean() for name in "abcde"])
    tukey = math.sqrt(4 / 5 * ((left - left.mean()) ** 2).sum())
    assert owned(values, owners.tolist(), ("subject",)).error == pytest.approx(tukey)


def test_larger_items_take_the_place_of_those_that_they_contain_only_where_asked_for() -> (
    None
):
    table = np.random.default_rng(6).standard_normal((7, 6))
    plain = mean_without(table, ("stimulus", "neuroid"))
    owners = np.array(list("aabbcc"))
    nested = Variation(
        plain.items, plain.without, nested={"subject": ("neuroid", owners)}
    )
    whole = np.float64(table.mean())
    assert varied(whole, (), variation=nested).factors == ("stimulus", "neuroid")
    found = varied(whole, (), variation=nested, over=("stimulus", "subject"))
    rows, columns, both = mean_squares(table.reshape(7, 3, 2).mean(axis=2))
    expected = max(rows + columns - both, rows, columns) / 21
    assert found.factors == ("stimulus", "subject") and found.variance == pytest.approx(
        expected
    )


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        (
            ("session",),
            r"cannot generalise over session; it varies over stimulus, subject",
        ),
        (
            ("neuroid", "subject"),
            "cannot generalise over neuroid; it varies over subject, stimulus",
        ),
    ],
)
def test_a_claim_about_something_else_is_refused(
    over: tuple[str, ...], reason: str
) -> None:
    table = np.random.default_rng(6).standard_normal((4, 3))
    with pytest.raises(MetricError, match=reason):
        varied(np.float64(table.mean()), (), variation=mean_without(table), over=over)


def test_one_subject_says_nothing_about_others() -> None:
    with pytest.raises(
        MetricError,
        match="cannot generalise over subject: all neuroids are of one subject",
    ):
        owned(np.arange(4.0), ["a"] * 4, ("subject",))


# Random numbers


def test_random_weights_belong_to_an_item_and_a_factor() -> None:
    item = exponentials("stimulus", ("a", "b"))
    assert item.shape == (DRAWS, 2)
    np.testing.assert_array_equal(item[:, ::-1], exponentials("stimulus", ("b", "a")))
    assert (
        abs(np.corrcoef(item[:, 0], exponentials("neuroid", ("a",))[:, 0])[0, 1]) < 0.2
    )
    many = exponentials("stimulus", tuple(map(str, range(200))))
    assert stats.kstest(many.ravel(), "expon").statistic < 0.01


@pytest.mark.parametrize("count", [80, 150])
def test_groups_of_unequal_size_give_the_variance_of_a_mean(count: int) -> None:
    """More items than groups: groups by name have different sizes, and some are empty."""
    rng, ids = np.random.default_rng(count), [f"image {i}" for i in range(count)]
    groups = grouped(ids)
    assert len(groups.keys) < 60 and np.ptp(groups.sizes) > 0
    values = 5 + rng.standard_normal((500, count))
    found = np.mean([of_items(row, ids).variance for row in values])
    assert found * count == pytest.approx(1.0, abs=0.03)
