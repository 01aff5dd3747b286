"""AUC and log loss from counts of scores, which do not depend on the batches in which they were counted.

A score is the logit of a click. It is counted in one of 32,768 bins from -16 to 16, each 1/1024 wide; a score
outside counts in the nearest bin. All scores in a bin are treated as equal to its middle. Counts are
integers, so that their sum is exact. If all scores are from -16 to 16:

- the AUC of the counts differs from the AUC of the scores by at most `auc_bound`: half the pairs of a click
  and another example that share a bin, divided by the number of all pairs;
- the log loss of the counts differs from the log loss of the scores by at most 1/2048.
"""

import numpy as np
import numpy.typing as npt
import tensorflow as tf

_BINS_OF_A_UNIT, _LARGEST = 1024, 16
BINS = 2 * _LARGEST * _BINS_OF_A_UNIT

# [2, BINS]: how many examples without a click, and with a click, are in each bin.
Counts = npt.NDArray[np.int64]


def count_scores(scores: npt.NDArray[np.floating], labels: npt.NDArray[np.generic]) -> Counts:
    """Return the counts, int64 [2, BINS], of examples with these scores and labels, 0 or 1.

    A score that is nan counts as 0.
    """
    finite = np.clip(np.where(np.isnan(scores), 0, scores), -_LARGEST, _LARGEST).astype(np.float32)
    bins = (finite + np.float32(_LARGEST)) * np.float32(_BINS_OF_A_UNIT)
    places = np.minimum(bins, BINS - 1).astype(np.int64) + BINS * labels.astype(np.int64)
    return np.bincount(places, minlength=2 * BINS).reshape(2, BINS)


def score_counts(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the same as `count_scores`, as a tensor that a model can have among its metrics."""
    with tf.device("/device:CPU:0"):  # a GPU cannot count in int64
        scores = tf.cast(scores, tf.float32)
        numbers = tf.where(tf.math.is_nan(scores), tf.zeros_like(scores), scores)
        bins = (tf.clip_by_value(numbers, -_LARGEST, _LARGEST) + _LARGEST) * _BINS_OF_A_UNIT
        places = tf.cast(tf.minimum(bins, BINS - 1), tf.int32) + BINS * tf.cast(labels, tf.int32)
        counts = tf.math.bincount(places, minlength=2 * BINS, maxlength=2 * BINS, dtype=tf.int64)
        return tf.reshape(counts, [2, BINS])


def auc(counts: Counts) -> float:
    """Return the area under the ROC curve: the share of pairs (a click, no click) in the right order.

    The order is right if the click has the higher score. Pairs in one bin count half. Without any pair, the
    result is 0.5.
    """
    others, clicks = counts
    pairs = int(clicks.sum()) * int(others.sum())
    below = np.cumsum(others) - others
    return int((clicks * (2 * below + others)).sum()) / (2 * pairs) if pairs else 0.5


def auc_bound(counts: Counts) -> float:
    """Return by how much `auc` may differ at most from the AUC of the scores; 0.5 without any pair."""
    others, clicks = counts
    pairs = int(clicks.sum()) * int(others.sum())
    return int((clicks * others).sum()) / (2 * pairs) if pairs else 0.5


def log_loss(counts: Counts) -> float:
    """Return the mean cross entropy of all counted examples, in nats; nan if there are none."""
    middles = (np.arange(BINS) + 0.5) / _BINS_OF_A_UNIT - _LARGEST
    losses = np.logaddexp(0, [middles, -middles])
    return float((losses * counts).sum() / counts.sum())
