"""scikit-learn estimators: a table in, predictions with honest uncertainty out, in the data's own units."""

from posteria.estimators.classifier import Classifier
from posteria.estimators.regressor import Regressor

__all__ = ["Classifier", "Regressor"]
