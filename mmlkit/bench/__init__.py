"""How fast mmlkit is, beside transformers in the same process: `mmlkit bench`.

    timing        rounds that alternate, ratios with their spread, and the peak of a matrix product
    steps         a training step against transformers' Trainer
    predictions   prediction and evaluation against transformers' pipeline
    heads         the cost of many heads and of the pruning check
    start         the time of imports and of `mmlkit --help`
    memory        the memory of a training step, by a formula
    record        all comparisons in one record, and its table

Every comparison returns plain records with all of its rounds. Notebook 12 and the README show what
was recorded. Timings in tests do not belong here: a test never times anything.
"""

from mmlkit.bench.heads import compare_heads, time_pruning_check
from mmlkit.bench.memory import encoder_parameters, training_memory
from mmlkit.bench.predictions import compare_predictions
from mmlkit.bench.record import measure_speed, speed_sentences, speed_table
from mmlkit.bench.start import time_start
from mmlkit.bench.steps import compare_steps
from mmlkit.bench.timing import alternate, linear_parameters, matmul_peak, spread
