"""The losses of the paper as pure functions of tensors."""

from pairtune.loss.batch_softmax import batch_softmax_loss
from pairtune.loss.pointwise import mse_of_cosines, pearson_loss
from pairtune.loss.terms import NORMALIZATIONS

__all__ = ["NORMALIZATIONS", "batch_softmax_loss", "mse_of_cosines", "pearson_loss"]
