"""Law classes for pytest: subclass the one of your method's fidelity and set `method`."""

from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posteria import tree
from posteria.compiled import kept
from posteria.errors import DataError, PosteriaError
from posteria.models.likelihoods import Categorical
from posteria.models.model import Model
from posteria.models.target import Target
from posteria.networks import Network
from posteria.posteriors.base import Posterior
from posteria.posteriors.saving import load
from posteria.runs import fit
from posteria.testing import budgets, targets
from posteria.testing.statistics import LEAST_P_VALUE, moments_p_value


@kept
def _fitted(method: Any, scenario: str, **settings: Any) -> tuple[targets.KnownPosterior, Posterior]:
    """Fits are shared between laws."""
    known = getattr(targets, scenario)(**settings)
    return known, fit(known.model, known.data, method, key=0, progress=False)


@kept
def _odd_model(takes: str = "regression") -> tuple[Model, list[int]]:
    """A linear network whose parameters are nested and of several types, with a list that grows when it is traced."""
    calls: list[int] = []
    num = 2 if takes == "classes" else 1

    def init(key: jax.Array, x: jax.Array) -> tree.Params:
        half = jnp.zeros(num, jnp.bfloat16)
        return {"deep": [jnp.zeros((x.shape[-1], num)), {"half": half}], "scalar": jnp.zeros(())}

    def apply(params: tree.Params, x: jax.Array) -> jax.Array:
        calls.append(1)
        weight, rest = params["deep"]
        return x @ weight + rest["half"].astype(jnp.float32) + params["scalar"]

    network = Network(init, apply)
    return (Model(network, Categorical()) if takes == "classes" else Model(network)), calls


def _odd_data(takes: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = targets.linear_regression().data
    return x, targets.as_labels(y) if takes == "classes" else y


class OddFit(NamedTuple):
    posterior: Any  # as its method has it
    traces_by_second: int  # of the network, by a fit to other data right after


@kept
def _fitted_odd(method: Any, key: int = 0, takes: str = "regression") -> OddFit:
    """Of `_odd_model`, shared between laws."""
    model, calls = _odd_model(takes)
    x, y = _odd_data(takes)
    posterior = fit(model, (x, y), method, key=key, progress=False)
    num_calls = len(calls)
    fit(model, (x, 1 - y), method, key=key + 1, progress=False)
    return OddFit(posterior, len(calls) - num_calls)


def flat_draws(posterior: Any, num_draws: int = 4000) -> np.ndarray:
    """(chain, draw, size): the stored chains of weights, or one chain of independent draws of weights.

    Of a posterior that has no weights: of functions at the first rows of linear regression, as many as it has weights.
    """
    if hasattr(posterior, "stored"):
        return posterior.stored.flat
    if not hasattr(posterior, "sample"):
        return np.asarray(posterior.functions(0, _first_rows(), num_draws))[..., 0][None]
    return np.asarray(jax.vmap(tree.ravel)(posterior.sample(0, num_draws)))[None]


def _first_rows() -> np.ndarray:
    known = targets.linear_regression()
    return known.data[0][: len(known.mean)]


def _known_moments(known: targets.KnownPosterior, posterior: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of what `flat_draws` draws."""
    if hasattr(posterior, "sample"):
        return known.mean, known.covariance
    design = np.concatenate([np.ones((len(known.mean), 1)), _first_rows()], axis=1)
    return design @ known.mean, design @ known.covariance @ design.T


class MethodLaws:
    """What every method must do, whatever its draws promise, and whatever class its posterior has."""

    method: ClassVar[Any]
    cheap: ClassVar[Any] = None  # a short version of the method, where moments do not matter
    takes: ClassVar[str] = "regression"  # or "classes", where it serves no other targets

    def odd(self, key: int = 0) -> OddFit:
        return _fitted_odd(self.quick, key, self.takes)

    @property
    def quick(self) -> Any:
        return self.cheap or self.method

    def chains(self, posterior: Any) -> np.ndarray:
        """(chain, draw, size), of weights; yours, where your posterior keeps correlated draws that only it knows of."""
        return flat_draws(posterior)

    def test_the_same_key_gives_identical_draws(self) -> None:
        again = fit(_odd_model(self.takes)[0], _odd_data(self.takes), self.quick, key=0, progress=False)
        np.testing.assert_array_equal(self.chains(self.odd().posterior), self.chains(again))

    def test_another_key_gives_other_predictions_or_the_same_mode(self) -> None:
        first, other = self.odd().posterior, self.odd(key=1).posterior
        x = targets.linear_regression().data[0]
        spread = first.predict(x).std
        difference = np.abs(first.predict(x).mean - other.predict(x).mean)
        assert (difference < spread).all()
        if self.method.fidelity == "exact" and hasattr(first, "stored"):  # a closed form has nothing that a key moves
            assert difference.max() > 0

    def test_any_pytree_and_dtype_comes_back_unchanged(self) -> None:
        if not hasattr(self.odd().posterior, "sample"):
            pytest.skip("its posterior is of functions, not of weights")
        draws = self.odd().posterior.sample(0, 3)
        wanted = _odd_model(self.takes)[0].network.init(jax.random.key(0), targets.linear_regression().data[0])
        assert jax.tree.structure(draws) == jax.tree.structure(wanted)
        for draw, leaf in zip(jax.tree.leaves(draws), jax.tree.leaves(wanted)):
            assert (draw.shape, draw.dtype) == ((3, *leaf.shape), leaf.dtype)

    def test_a_second_fit_does_not_trace_the_network_again(self) -> None:
        assert self.odd().traces_by_second == 0

    def test_save_and_load_round_trips(self, tmp_path: Path) -> None:
        posterior = self.odd().posterior
        posterior.save(tmp_path / "saved")
        loaded = load(tmp_path / "saved", network=_odd_model(self.takes)[0].network)
        x, y = _odd_data(self.takes)
        np.testing.assert_array_equal(posterior.predict(x).mean, loaded.predict(x).mean)
        np.testing.assert_array_equal(posterior.predict(x).log_prob(y), loaded.predict(x).log_prob(y))
        np.testing.assert_array_equal(self.chains(posterior), self.chains(loaded))

    @pytest.mark.parametrize("damage", ["nan", "infinite", "short", "empty"])
    def test_bad_data_is_refused_by_name(self, damage: str) -> None:
        model = targets.linear_regression().model if self.takes == "regression" else _odd_model(self.takes)[0]
        x, y = (part.copy() for part in _odd_data(self.takes))
        if damage == "nan":
            x[3, 1] = np.nan
        elif damage == "infinite":
            y[2] = np.inf if self.takes == "regression" else 9
        elif damage == "short":
            y = y[:-1]
        else:
            x, y = x[:0], y[:0]
        with pytest.raises(DataError):
            fit(model, (x, y), self.quick, progress=False)

    def test_a_budget_is_what_it_expects_and_what_it_spends(self) -> None:
        budgets.check(type(self.method), self.takes)

    def test_trials_change_what_the_documentation_says(self) -> None:
        budgets.check_trials(self.method)

    def test_predictions_at_other_features_are_refused(self) -> None:
        with pytest.raises(PosteriaError, match="features"):
            self.odd().posterior.predict(targets.linear_regression().data[0][:, :-1])


class ExactLaws(MethodLaws):
    """Draws have the posterior's mean and covariance, whatever the data, the temperature, or none."""

    def check(self, scenario: str, **settings: Any) -> None:
        known, posterior = _fitted(self.method, scenario, **settings)
        assert moments_p_value(self.chains(posterior), *_known_moments(known, posterior)) > LEAST_P_VALUE

    def test_linear_regression_has_its_closed_form_mean_and_covariance(self) -> None:
        self.check("linear_regression")

    def test_rows_that_come_twice_and_rows_that_count_twice_move_them_as_the_formula_says(self) -> None:
        self.check("linear_regression", copies=2, weighted=True)

    def test_temperature_scales_the_covariance(self) -> None:
        self.check("linear_regression", temperature=0.25)

    def test_without_data_the_posterior_is_the_prior(self) -> None:
        self.check("prior_only")


class AsymptoticLaws(MethodLaws):
    """Draws have the posterior's mean and covariance as the step shrinks, on full data or batches; not before.

    `with_step(step, narrowest)` is the method with a step that suits a posterior whose least standard deviation, in
    units of the prior, is `narrowest`. At `fine` the bias must be below the Monte Carlo error, at `coarse` above it.
    """

    fine: ClassVar[float]
    coarse: ClassVar[float]

    def with_step(self, step: float, narrowest: float) -> Any:
        raise NotImplementedError

    def p_value(self, step: float, scenario: str, **settings: Any) -> float:
        known = getattr(targets, scenario)(**settings)
        unit = jax.tree.leaves(Target(known.model, known.data).units["network"])[0]
        narrowest = float(np.sqrt(np.linalg.eigvalsh(known.covariance)[0])) / unit
        _, posterior = _fitted(self.with_step(step, narrowest), scenario, **settings)
        return moments_p_value(self.chains(posterior), *_known_moments(known, posterior))

    def test_with_a_fine_step_linear_regression_has_its_closed_form_mean_and_covariance(self) -> None:
        assert self.p_value(self.fine, "linear_regression") > LEAST_P_VALUE

    def test_with_a_coarse_step_it_has_not(self) -> None:
        assert self.p_value(self.coarse, "linear_regression") < LEAST_P_VALUE

    def test_temperature_scales_the_covariance(self) -> None:
        assert self.p_value(self.fine, "linear_regression", temperature=0.25) > LEAST_P_VALUE

    def test_without_data_the_posterior_is_the_prior(self) -> None:
        assert self.p_value(self.fine, "prior_only") > LEAST_P_VALUE


class FamilyOptimumLaws(MethodLaws):
    """The member of the family with the largest ELBO, to a hundredth of a nat, and an honest ELBO.

    Of a Gaussian N(m, S) under a known posterior N(mean, C), the ELBO is the log evidence less KL(q || posterior).
    """

    TOLERANCE: ClassVar[float] = 0.01  # nats
    reports_bound: ClassVar[bool] = True  # facts["elbo"], and facts["elbo_error"], its standard error

    def optimum(self, known: targets.KnownPosterior) -> np.ndarray:
        """The covariance of the family's optimum; its mean is the posterior's. By default: of mean field."""
        return np.diag(1 / np.diag(np.linalg.inv(known.covariance)))

    def gaussian(self, posterior: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the fitted member: as it says, or by draws (20,000 of 4 weights err by 1e-3 nats)."""
        if hasattr(posterior, "spread"):
            return posterior.mean, posterior.spread.covariance()
        draws = flat_draws(posterior, 20_000)[0]
        return draws.mean(0), np.cov(draws.T)

    def check(self, scenario: str, **settings: Any) -> None:
        known, posterior = _fitted(self.method, scenario, **settings)
        divergence = gaussian_divergence(known, *self.gaussian(posterior))
        assert divergence - gaussian_divergence(known, known.mean, self.optimum(known)) < self.TOLERANCE
        if not self.reports_bound:
            return
        bound, error = posterior.facts["elbo"], posterior.facts["elbo_error"]
        evidence = targets.log_evidence(known)
        rounding = 1e-5 * (abs(evidence) + len(known.mean))  # of float32 sums
        assert bound <= evidence + 4 * error + rounding
        assert abs(bound - (evidence - divergence)) < 4 * error + rounding

    def test_linear_regression_has_its_optimum(self) -> None:
        self.check("linear_regression")

    def test_rows_that_come_twice_and_rows_that_count_twice_move_it_as_the_formula_says(self) -> None:
        self.check("linear_regression", copies=2, weighted=True)

    def test_at_a_temperature_it_is_the_tempered_optimum(self) -> None:
        self.check("linear_regression", temperature=0.25)

    def test_without_data_it_is_the_prior(self) -> None:
        self.check("prior_only")


def gaussian_divergence(known: targets.KnownPosterior, mean: np.ndarray, covariance: np.ndarray) -> float:
    """KL(N(mean, covariance) || known posterior), in nats."""
    mean, covariance = np.asarray(mean, np.float64), np.asarray(covariance, np.float64)
    precision, residual = np.linalg.inv(known.covariance), mean - known.mean
    log_ratio = np.linalg.slogdet(known.covariance)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * float(np.trace(precision @ covariance) + residual @ precision @ residual - len(mean) + log_ratio)


class PointLaws(MethodLaws):
    """The mode, to a hundredth of the posterior's standard deviation."""

    @pytest.mark.parametrize("temperature", [1.0, 0.25])
    def test_the_mode_of_linear_regression(self, temperature: float) -> None:
        known, posterior = _fitted(self.method, "linear_regression", temperature=temperature)
        std = np.sqrt(np.diag(targets.linear_regression().covariance))
        np.testing.assert_array_less(np.abs(self.chains(posterior)[0, 0] - known.mean) / std, 0.01)

    def test_without_data_the_mode_is_the_priors(self) -> None:
        known, posterior = _fitted(self.method, "prior_only")
        np.testing.assert_allclose(self.chains(posterior)[0, 0], known.mean, atol=0.01)


class ProcedureLaws(MethodLaws):
    """A procedure is tested for what it says it does, by laws of its own beside these."""
