"""A single process with tf.data and a session without hooks or servers: the fastest way known."""

import sys

import tensorflow as tf

from benchmarks.programs.common import Progress, Training, runtime
from trainer.process import flags

v1 = tf.compat.v1


def main(options: flags.Options) -> None:
    """Train in this process alone, until the process is ended from outside."""
    config = runtime(options.settings.threads)
    training, progress = Training(options), Progress(options)
    with tf.Graph().as_default():
        iterator = v1.data.make_initializable_iterator(training.dataset(options.settings.seed))
        global_step = v1.train.get_or_create_global_step()
        loss = training.loss(training.variables(), training.tables(), *iterator.get_next())
        train = training.optimizer().minimize(loss, global_step=global_step)
        with v1.Session(config=config) as session:
            session.run([v1.global_variables_initializer(), iterator.initializer])
            step = session.make_callable([global_step, loss, train])
            while True:
                taken, cost, _ = step()
                progress.report(int(taken), float(cost))


if __name__ == "__main__":
    main(flags.parse(sys.argv[1:]))
