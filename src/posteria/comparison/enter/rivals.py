"""Baselines that come along: a linear model and boosting of scikit-learn; CatBoost, NGBoost and TabPFN where they are
installed. A further one is a class of a few lines, from any package (`po.Baseline`, `po.register`)."""

from typing import Any, ClassVar

import numpy as np

from posteria.methods.registry import Baseline, Numbers, Probs

LARGE_TABLE = 1_000_000  # values, from where boosting is worth several threads
VIRTUAL_ENSEMBLES = 10
MOST_TABPFN_ROWS, MOST_TABPFN_COLUMNS = 10_000, 500


class Linear(Baseline):
    """Bayesian ridge regression (its noise and shrinkage by the evidence, MacKay 1992), or logistic regression."""

    about: ClassVar[str] = "A linear model: what there is without a network (Bayesian ridge, or logistic regression)."

    def fit_numbers(self, x: np.ndarray, y: np.ndarray) -> Numbers:
        from sklearn.linear_model import BayesianRidge

        model = BayesianRidge().fit(x, y)
        return lambda x: model.predict(x, return_std=True)

    def fit_classes(self, x: np.ndarray, y: np.ndarray, num_classes: int) -> Probs:
        from sklearn.linear_model import LogisticRegression

        return _probs_of(LogisticRegression(max_iter=1000).fit(x, y), num_classes)


class Boosting(Baseline):
    """Histogram gradient boosting of the mean; the size of its errors is learnt from rows left out."""

    about: ClassVar[str] = "Gradient boosting: the strongest simple rival on tables; widths by rows left out."

    def fit_numbers(self, x: np.ndarray, y: np.ndarray) -> Numbers:
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(random_state=0).fit(x, y)
        return lambda x: (model.predict(x), None)

    def fit_classes(self, x: np.ndarray, y: np.ndarray, num_classes: int) -> Probs:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return _probs_of(HistGradientBoostingClassifier(random_state=0).fit(x, y), num_classes)


class CatBoost(Baseline):
    """Boosting of a mean and a variance, with virtual ensembles. Malinin et al. 2021."""

    about: ClassVar[str] = "CatBoost with uncertainty: boosting of a mean and a variance (Malinin et al. 2021)."
    needs: ClassVar[str] = "catboost"

    SETTINGS: ClassVar[dict[str, Any]] = {"random_seed": 0, "verbose": False, "allow_writing_files": False}

    def fit_numbers(self, x: np.ndarray, y: np.ndarray) -> Numbers:
        from catboost import CatBoostRegressor

        model = CatBoostRegressor(loss_function="RMSEWithUncertainty", thread_count=_threads(x), **self.SETTINGS)
        model.fit(x, y)

        def predict(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            found = model.virtual_ensembles_predict(
                x, prediction_type="TotalUncertainty", virtual_ensembles_count=VIRTUAL_ENSEMBLES
            )  # (n, 3): mean, knowledge uncertainty, data uncertainty, both variances
            return found[:, 0], np.sqrt(np.maximum(found[:, 1:].sum(1), 0.0))

        return predict

    def fit_classes(self, x: np.ndarray, y: np.ndarray, num_classes: int) -> Probs:
        from catboost import CatBoostClassifier

        return _probs_of(CatBoostClassifier(thread_count=_threads(x), **self.SETTINGS).fit(x, y), num_classes)


class NGBoost(Baseline):
    """Boosting by natural gradients of a normal's mean and scale. Duan et al. 2020."""

    about: ClassVar[str] = "NGBoost: boosting of a whole distribution by natural gradients (Duan et al. 2020)."
    needs: ClassVar[str] = "ngboost"

    def fit_numbers(self, x: np.ndarray, y: np.ndarray) -> Numbers:
        from ngboost import NGBRegressor

        model = NGBRegressor(random_state=0, verbose=False).fit(np.asarray(x, np.float64), y)

        def predict(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            params = model.pred_dist(np.asarray(x, np.float64)).params
            return params["loc"], params["scale"]

        return predict


class TabPFN(Baseline):
    """A transformer that was taught to predict tables. Hollmann et al. 2025."""

    about: ClassVar[str] = "TabPFN: a transformer that has learnt to predict small tables (Hollmann et al. 2025)."
    needs: ClassVar[str] = "tabpfn"

    def takes(self, kind: str, num_rows: int, num_columns: int) -> bool:
        return num_rows <= MOST_TABPFN_ROWS and num_columns <= MOST_TABPFN_COLUMNS

    def fit_numbers(self, x: np.ndarray, y: np.ndarray) -> Numbers:
        from tabpfn import TabPFNRegressor

        model = TabPFNRegressor(random_state=0).fit(x, y)

        def predict(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            lower, middle, upper = model.predict(x, output_type="quantiles", quantiles=[0.16, 0.5, 0.84])
            return np.asarray(middle), (np.asarray(upper) - np.asarray(lower)) / 2

        return predict

    def fit_classes(self, x: np.ndarray, y: np.ndarray, num_classes: int) -> Probs:
        from tabpfn import TabPFNClassifier

        return _probs_of(TabPFNClassifier(random_state=0).fit(x, y), num_classes)


BUILT_IN: dict[str, type[Baseline]] = {
    "linear": Linear,
    "boosting": Boosting,
    "catboost": CatBoost,
    "ngboost": NGBoost,
    "tabpfn": TabPFN,
}


def _probs_of(model: Any, num_classes: int) -> Probs:
    def predict(x: np.ndarray) -> np.ndarray:
        found = model.predict_proba(x)
        probs = np.zeros((len(found), num_classes))
        probs[:, np.asarray(model.classes_, int)] = found  # a class that no training row has stays at 0
        return probs

    return predict


def _threads(x: np.ndarray) -> int:
    """One on small tables: threads that wait for each other are slower there, and on a busy machine."""
    return 1 if x.size < LARGE_TABLE else -1
