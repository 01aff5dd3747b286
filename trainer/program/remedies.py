"""Remedies for errors of programs that were written for another version of TensorFlow or Keras."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.program.contrib_names import replacement, used_name
from trainer.program.fitting_packages import tensorboard_for, tf_keras_for

# TF_KERAS and TENSORBOARD stand for the versions that fit the program's TensorFlow.
_OF_KERAS_2 = (
    "if it is of Keras 2: TF_KERAS in trainer_program_requirements, and "
    'trainer_program_environment: {TF_USE_LEGACY_KERAS: "1"} (docs/programs.md, "Keras")'
)
_OF_TENSORFLOW_1 = "if it is of TensorFlow 1: trainer_program_tensorflow1: true, docs/port-a-script.md"
_OF_NEITHER = (
    "TensorFlow 1.15 lacks this, too. It is older (docs/port-a-script.md#names-from-before-tensorflow-10), "
    "or of TensorFlow 2, which runs without trainer_program_tensorflow1"
)
_OF_CONTRIB = (
    "tf.contrib is not in TensorFlow 2: docs/port-a-script.md#tfcontrib has what replaces its packages"
)
_TF = r"module 'tensorflow[\w.]*' has no attribute"
# Names that TensorFlow 1.0 replaced, as its release notes list them.
_BEFORE_1_0 = (
    "batch_matmul|complex_abs|histogram_summary|image_summary|inv|merge_all_summaries|merge_summary|mul|neg|pack"
    "|scalar_summary|select|sub|SummaryWriter|unpack|batch_cholesky|batch_matrix_inverse|listdiff|audio_summary"
)


@dataclass(frozen=True)
class _Remedy:
    """What to do about an error whose text matches the pattern `sign`; `what` is the remedy in words.

    `with_option` says whether it is for programs with the option `tensorflow1`, `without_option` whether it
    is for programs without it.
    """

    sign: str
    what: str
    with_option: bool = True
    without_option: bool = True


# The first remedy whose sign is found applies. The errors in tests/trainer/program/errors.yml are real.
_REMEDIES = (
    _Remedy(
        r"TBNotInstalledError|No module named 'tensorboard[.']",
        'TENSORBOARD in trainer_program_requirements (docs/programs.md, "TensorBoard")',
    ),
    _Remedy(
        rf"{_TF} 'estimator'|cannot import name 'estimator' from 'tensorflow"
        r"|No module named '(?:tensorflow(?:\.[\w.]*)?\.estimator|tensorflow_estimator)\b",
        "tf.estimator is gone since TensorFlow 2.16, also with trainer_program_tensorflow1: "
        "tensorflow==2.15.1 in trainer_program_requirements, or write the loop with "
        "MonitoredTrainingSession, docs/port-a-script.md#tfestimator",
    ),
    _Remedy(
        rf"{_TF} 'contrib'|cannot import name 'contrib' from 'tensorflow"
        r"|No module named 'tensorflow[\w.]*\.contrib\b"
        r"|^ImportError: tf\.contrib\.\w+ is not in TensorFlow 2",
        _OF_CONTRIB,
    ),
    _Remedy(
        # Only what tf_keras has: older names, such as tf.keras.utils.multi_gpu_model, are in neither.
        r"\bKeras 3\b|Attempt to convert a value \(PerReplica"
        r"|you need to pass this dataset to ClusterCoordinator"  # from model.fit with ParameterServerStrategy
        r"|A KerasTensor cannot be used as input to a TensorFlow"
        r"|Invalid filepath extension for saving|Argument\(s\) not recognized: \{'"
        r"|Could not interpret optimizer identifier: <tensorflow\.python\.training"
        r"|module 'keras\._tf_keras\.keras' has no attribute '(?:experimental|dtensor|saving)'"
        r"|module 'keras\.(?:callbacks|metrics|models|optimizers|utils)' has no attribute 'experimental'"
        r"|module 'keras\._tf_keras\.keras\.backend' has no attribute '(?:function|placeholder|print_tensor"
        r"|(?:set_)?learning_phase\w*|in_(?:test|train)_phase|manual_variable_initialization)'"
        r"|module 'keras\._tf_keras\.keras\.layers' has no attribute '(?:experimental|DenseFeatures"
        r"|AbstractRNNCell|LocallyConnected[12]D)'"
        r"|module 'keras\.utils' has no attribute '(?:SidecarEvaluator|\w+Enqueuer)'"
        r"|No module named 'tensorflow\.keras\.(?:experimental|layers\.experimental|dtensor|saving"
        r"|(?:callbacks|metrics|models|optimizers|utils)\.experimental)\b"
        r"|object has no attribute '(?:reset_states|(?:fit|evaluate|predict)_generator)'"
        r"|'(?:SGD|RMSprop|Adam\w*|Ada\w+|Nadam|Ftrl|Lion)' object has no attribute 'lr'"
        r"|Trainer\.\w+\(\) got an unexpected keyword argument '(?:workers|use_multiprocessing|max_queue_size"
        r"|experimental_\w+|pss_\w+)'"
        r"|Unrecognized keyword arguments passed to \w+: \{'(?:weights|batch_input_shape|input_length)'",
        _OF_KERAS_2,
    ),
    _Remedy(
        rf"{_TF} '(?:{_BEFORE_1_0})'|No module named 'tensorflow\.models\b"
        r"|got an unexpected keyword argument 'replica_id'",
        "older than TensorFlow 1.0: docs/port-a-script.md#names-from-before-tensorflow-10",
    ),
    _Remedy(
        rf"{_TF}|cannot import name '\w+' from 'tensorflow[.']|No module named 'tensorflow\.(?!keras\b)"
        r"|when eager execution is enabled|(?:in|not )compatible with eager execution"
        r"|The Session graph is empty|object has no attribute 'make_(?:one_shot|initializable)_iterator'"
        r"|[Gg]ot an unexpected keyword argument '(?:reduction_indices|keep_dims|dimension|dim)'",
        _OF_TENSORFLOW_1,
        with_option=False,
    ),
    _Remedy(
        r"module 'tensorflow\._api\.v2\.compat\.v1[\w.]*' has no attribute", _OF_NEITHER, without_option=False
    ),
)


def remedy(reason: str, *, tensorflow: str, tensorflow1: bool, lines: Sequence[str] = ()) -> str:
    """Return what to do about an error of a program, in one line; "" if no remedy is known.

    Args:
        reason: the program's uncaught exception, shortened by `error_lines.in_short`.
        tensorflow: the version of the program's TensorFlow, such as "2.15.1".
        tensorflow1: whether the program runs with `trainer_program_tensorflow1`.
        lines: the lines of Python in the exception's traceback, the innermost last; used only for tf.contrib.

    """
    tf_keras = tf_keras_for(tensorflow)
    for entry in _REMEDIES:
        if entry.what == _OF_KERAS_2 and not tf_keras:
            continue
        if (entry.with_option if tensorflow1 else entry.without_option) and re.search(entry.sign, reason):
            name = used_name([reason, *lines]) if entry.what == _OF_CONTRIB else ""
            what = replacement(name, tensorflow) if name else entry.what
            return what.replace("TF_KERAS", tf_keras).replace("TENSORBOARD", tensorboard_for(tensorflow))
    return ""
