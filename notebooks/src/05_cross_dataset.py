# %% [markdown]
# # 05 On sets it was not trained on
#
# A model can do well on the dev split of its own set because it has learned the task, or because it has learned the set. A *sister set* asks
# the same kind of question about other texts. **How much does a model lose on a sister set, and do many orthogonal heads lose less, as the
# MML paper claims?** You will measure the loss live, and then read six seeds of recorded runs for the claim.
#
# | | |
# |---|---|
# | time | 2 hours to read and solve (estimated) · fast: 3 min on two CPU cores · colab: about 30 min on one GPU (estimated) · paper: many hours on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [03 The maximal multiverse loss](03_multiverse_loss.ipynb), [04 Pruning heads](04_pruning_heads.ipynb) |
# | paper | Malkiel and Wolf 2021 (MML), section 4.2 and Tables 2 to 5 |

# %% [markdown]
# ## You will be able to
#
# - evaluate a model on a sister set, also where the model has three labels and the set has two,
# - measure what training on a sister set costs, and compare it with an encoder that was not trained at all,
# - compute the paper's improvement over a baseline, and tell it apart from two similar numbers,
# - say what recorded runs over six seeds support, and what they leave open.
#
# ![Four models, each trained on one of RTE, MNLI, QNLI and SNLI, are evaluated on the train and dev split of all four sets. The
# diagonal, a model on its own set, is left out. The mean ratio to BERT over the three other sets, minus one, is the improvement at
# the end of a row; the bottom row has the mean of each column.](images/05_protocol.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
task = "qnli"  # section 3 trains on this set and on its sister set
sister = "snli"
source = None  # a folder with the sets' files; None: what the profile says

# %% tags=["bootstrap"]
# @title Set-up: installs this release where the library is missing, as on Colab
try:
    import mmlkit
except ImportError:
    home = "https://github.com/mmlkit/mmlkit"
    release = f"mmlkit[notebooks,minilm] @ {home}/archive/refs/tags/v0.2.0.zip"
    get_ipython().run_line_magic("pip", f'install -q "{release}"')
    import mmlkit
from mmlcourse import open_notebook

open_notebook("05", profile, output_dir)

# %% tags=["setup", "effect"]
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from mmlcourse import published, studies
from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.answers import folded
from mmlcourse.lessons.profiles import get_profile
from mmlcourse.studies import CATEGORIES, two_way
from mmlkit.runtime import fastest_precision, pick_device

size, device = get_profile(profile), pick_device()
source = source or size.source
precision = fastest_precision(device) if size.precision == "auto" else size.precision
print(f"mmlkit {mmlkit.__version__} on {device.type} in {precision}; {size.model}, data {source}")

# %% [markdown]
# ## 1 The claim, and how it is tested
#
# Notebooks 03 and 04 built *maximal multiverse learning* (MML): many orthogonal heads, of which the weak ones are pruned. Orthogonal heads
# use different reasons for an answer, so the encoder must store several, and a reason that works in one set only matters less. The paper
# therefore claims that MML does better than plain BERT on *other* sets of the same kind. Its section 4.2 turns this into numbers:
#
# 1. There are two categories of sets. *Inference*: does one sentence follow from the other? *Similarity*: do two sentences say the same?
# 2. Fine-tune on one set. Then evaluate on every other set of its category, without further training.
# 3. The model has seen no row of the other sets, so their train splits count as much as their dev splits.
#
# | set | question | labels |
# |---|---|---|
# | RTE | does the second sentence follow from the first? (news) | 2 |
# | MNLI, SNLI | the same, also with *contradiction* (ten kinds of text; captions of photographs) | 3 |
# | QNLI | does the sentence answer the question? | 2 |
# | QQP | do two questions ask the same? | 2 |
# | MRPC | do two sentences of the news say the same? | 2 |
# | STS-B\* | are two sentences similar? (scores of at most 2: no; of at least 4: yes; other rows are dropped) | 2 |

# %%
for name, sets in CATEGORIES.items():
    experiments = len(sets) * (len(sets) - 1) * 2  # trained on, evaluated on, train or dev
    print(f"{name}: {', '.join(sets)}; {experiments} experiments")

# %% [markdown]
# So each method is compared in 36 experiments (`stsb_star` is STS-B\*).
#
# ### How the paper counts the improvement
#
# Tables 2 to 5 of the paper end in one number: how far MML lies above BERT on the other sets. Here are the accuracies of Table 4 for the
# models trained on QNLI, dev splits, without QNLI itself:

# %%
cells = published.cross_dataset()
part = cells.query("metric == 'accuracy' and trained_on == 'qnli' and split == 'dev'")
pair = part.pivot(index="method", columns="evaluated_on", values="printed")
a, b = (pair.loc[method, ["rte", "mnli", "snli"]] for method in ("mml", "bert"))
pd.DataFrame([a, b], ["a, MML", "b, BERT"]).rename(columns=str.upper).rename_axis(None, axis=1)

# %% [markdown]
# Let $a_t$ be the accuracy of MML on set $t$, and $b_t$ that of BERT. Three formulas could give "the improvement":
#
# | name | formula |
# |---|---|
# | difference of the means, in points | $\frac13\sum_t a_t - \frac13\sum_t b_t$ |
# | ratio of the means, in percent | $100\left(\sum_t a_t \big/ \sum_t b_t - 1\right)$ |
# | mean of the ratios, in percent | $100\left(\frac13\sum_t a_t / b_t - 1\right)$ |
#
# **Predict before you run.** The paper prints 7.63. Which formula gives this number?

# %% tags=["answer"]
with folded():
    print(f"difference of the means {a.mean() - b.mean():.4f}")
    print(f"ratio of the means      {100 * (a.sum() / b.sum() - 1):.4f}")
    print(f"mean of the ratios      {100 * ((a / b).mean() - 1):.4f}: the paper cuts the digits")

# %% [markdown]
# The mean of ratios counts a step from 50 to 55 as 10 %, and one from 90 to 95 as only 5.6 %. Over all
# 36 experiments, the paper reports about +3 % for MML. We compare in points, because a point is the same on every set.
#
# ## 2 A model with three labels on a set with two
#
# MNLI and SNLI have three labels, RTE and QNLI have two. At evaluation, *neutral* and *contradiction* both become *not entailed*. The paper
# does not say how a three-way prediction becomes a two-way one. There are two rules:
#
# - *argmax*: take the most probable of the three labels, then ask whether it is entailment.
# - *sum*: add the probabilities of neutral and contradiction, then compare the sum with entailment.

# %%
three_labels = ["entailment", "neutral", "contradiction"]
chances = pd.DataFrame(
    [[0.80, 0.15, 0.05], [0.45, 0.30, 0.25], [0.30, 0.60, 0.10], [0.10, 0.20, 0.70]],
    columns=three_labels,
    index=["pair 1", "pair 2", "pair 3", "pair 4"],
)
chances

# %% [markdown]
# **Predict before you run.** For which pair do the two rules disagree?
#
# <details><summary>Answer</summary>
#
# Pair 2. Its most probable label is entailment, so *argmax* says yes. But 0.45 is less than 0.30 + 0.25, so *sum* says no. The rules
# disagree exactly where entailment is the most probable label but has less than a half. We use argmax.
#
# </details>
#
# Labels must be matched by name. Releases of these sets store them in different orders, and a wrong order raises no error:

# %%
other_order = ["contradiction", "neutral", "entailment"]
reordered = chances[other_order].to_numpy()  # the same model, its outputs in another order
print("by position:", (reordered.argmax(axis=1) == 0).tolist())
print("by name:    ", two_way(reordered, other_order, as_probabilities=True).tolist())

# %% [markdown]
# Matching by position inverts three of the four answers.
#
# **Checkpoint.** Both rules in one line each, and the library's `two_way`, which sees the columns in the other order:

# %%
by_best = chances.idxmax(axis=1) == "entailment"
by_sum = chances["entailment"] > chances["neutral"] + chances["contradiction"]

# %% tags=["answer"]
with folded("Both rules, by hand and by the library"):
    for rule, by_hand in {"argmax": by_best, "sum": by_sum}.items():
        library = two_way(np.log(reordered), other_order, rule)
        print(f"{rule:6}  by hand {by_hand.tolist()}  library {library.tolist()}")

# %% [markdown]
# ## 3 The price of a sister set
#
# Take the dev rows of one set. The *price* is the score of the model trained on this set, minus the score of a model trained on a sister set.
# If the price is zero, MML has no gap to close.
#
# Two models are fine-tuned from the same MiniLM: one on QNLI (does a sentence answer a question?), and one on its sister SNLI. Both get the
# same number of rows, updates, batch size and learning rate, and both answer all dev rows of QNLI, so the difficulty of the rows cancels.
# Only the training set differs, and with it the number of labels, which section 2 reduces to yes and no.
#
# | setting | `fast` | other profiles |
# |---|---|---|
# | rows of each set | 1,020 | 20,000 |
# | a pair of sentences | encoded separately (a *bi-encoder*), which learns faster from few rows | packed into one input (a *cross-encoder*), as in the paper |
# | epochs | 1 | those of the profile |

# %% tags=["setup", "effect"]
# @title Set-up: rows and options of the training
from dataclasses import replace

from mmlkit.bert import load_pretrained
from mmlkit.data import load_task
from mmlkit.runtime import seeded
from mmlkit.training import MultitaskModel, fit, predict_scores

fast = profile == "fast"
rows, few, pairs = (1020, 8, "separate") if fast else (20_000, 2_000, "packed")
options = dict(epochs=1 if fast else size.epochs, batch_size=12 if fast else size.batch_size)
options |= dict(lr=size.lr, head_lr=size.head_lr, max_length=size.max_length, precision=precision)
data = {name: load_task(name, source, limit=rows, seed=seed) for name in (task, sister)}
watched = {name: load_task(name, source, limit=few).dev for name in data}  # for each epoch's score


# %% tags=["effect"]
def train(name):
    """Return plain BERT, one linear head on the encoder, after training on one set."""
    with seeded(seed, device):
        encoder, _ = load_pretrained(size.model)
        shape = encoder.config.hidden_size, data[name].task.num_labels
        # MML of section 4 takes build_head("mml", ...): 384 heads and their pruner (03, 04)
        head, _ = studies.build_head("bert", *shape, pooling=size.pooling, pairs=pairs)
    model = MultitaskModel(encoder, {name: head})
    kept = size.checkpoints(output_dir, f"05-bert-{name}")  # for a run after a disconnect
    fit(model, replace(data[name], dev=watched[name]), seed=seed, **options, **kept)
    return model


# %% [markdown]
# Both models are scored on as many rows with *yes* as with *no*, so any constant answer reaches an accuracy of 50 %. The function `balanced`
# (folded) takes the first rows of the more frequent answer.

# %% tags=["setup", "effect"]
# @title Set-up: as many rows with yes as with no
LABELS = dict(rte="RTE", mnli="MNLI", qnli="QNLI", snli="SNLI")
LABELS |= dict(qqp="QQP", mrpc="MRPC", stsb_star="STS-B*", scitail="SciTail")


def balanced(split):
    """The split with as many rows with yes as with no."""
    yes = is_yes(split)
    rank = np.where(yes, yes.cumsum(), (~yes).cumsum())  # 1, 2, 3, ... in each of the two
    return split.take(rank <= min(yes.sum(), (~yes).sum()))  # the first m rows of each answer


# %% tags=["effect"]
def is_yes(split):
    """Whether the label of each row means yes."""
    certain = np.eye(split.task.num_labels)[split.labels]  # a certain prediction of the true label
    return two_way(certain, split.task.labels)


def right(model, trained, split, rule="argmax"):
    """Whether the model answers each row right, yes or no."""
    scores = predict_scores(model, split.texts, task=trained, precision=precision)
    return two_way(scores, data[trained].task.labels, rule) == is_yes(split)


# %% [markdown]
# **Predict before you run.** On the dev rows of QNLI, how many points is the model of SNLI below that of QNLI?

# %% tags=["effect"]
models, dev = {name: train(name) for name in data}, balanced(data[task].dev)
on_own = {name: right(model, name, dev) for name, model in models.items()}
lost = on_own[task].astype(float) - on_own[sister]  # per row: 1, 0 or -1
claim = f"balanced accuracy on {task}: own model minus model of {sister}"
effects = {claim: float(lost.mean())}

# %% tags=["setup"]
# @title Set-up: the groups of rows that share texts
groups = dev.columns.get("group", range(len(dev)))
assert not size.effects or min(effects.values()) > 0


def told_points(values):
    """The mean of one number per row with its standard error, in points."""
    return f"{100 * values.mean():.1f} ± {100 * studies.group_error(values, groups):.1f} points"


# %% tags=["answer"]
with folded():
    for name, hits in on_own.items():
        print(f"model of {LABELS[name]}: {hits.mean():.1%} of the dev rows of {LABELS[task]}")
    print(f"The model of {LABELS[sister]} is {told_points(lost)} below the own model.")

# %% [markdown]
# Four or eight dev rows of the mini QNLI were written together and share texts. They form a *group* and are not independent, so the standard
# error counts groups (exercise 4 has its formula). But one run also depends on its head and its order of rows, so the experiment was repeated
# with five other seeds:

# %% tags=["setup"]
# @title Set-up: draws the price of six seeds
seeds = 100 * studies.effects_by_seed("05", effects)
title = f"the price on {LABELS[task]}: own model minus model of {LABELS[sister]}"
ax = plots.seeds(seeds.set_axis(["price"], axis=1), xlabel="points", title=title)
of_legend = dict(zip(*ax.get_legend_handles_labels()[::-1]))  # each name once
place = dict(loc="center left", bbox_to_anchor=(1.3, 0.5))
ax.legend(of_legend.values(), of_legend, **place)
plt.show()

# %% [markdown]
# *The price is above zero with every seed. In the stored run it is 10 points, and the mean of the six runs is about 9.*
#
# ### Is it only a badly placed limit?
#
# The model of SNLI has seen no row of QNLI, so it may say *yes* too rarely there. So we give it help: it says *yes* where its logit of *yes*
# leads by at least a limit, and the limit is the best one on 200 labelled train rows of QNLI. The function `ahead` (folded) returns the leads,
# and `best_limit` the limit.


# %% tags=["setup"]
# @title Set-up: the best limit on 200 labelled rows
def best_limit(scores, yes):
    """The limit with the best balanced accuracy on labelled rows: yes from there on."""
    score_of = lambda limit: (scores[yes] >= limit).mean() + (scores[~yes] < limit).mean()
    return max(scores, key=score_of)


def ahead(model, trained, split):
    """How far the highest logit of yes is above the highest logit of no, for each row."""
    scores = predict_scores(model, split.texts, task=trained, precision=precision)
    yes = two_way(np.eye(scores.shape[1]), data[trained].task.labels)
    return scores[:, yes].max(axis=1) - scores[:, ~yes].max(axis=1)


# %% [markdown]
# **Predict before you run.** How many of the lost points does the limit win back?

# %%
known = load_task(task, source, limit=200, seed=seed).train
limit = best_limit(ahead(models[sister], sister, known), is_yes(known))
with_limit = (ahead(models[sister], sister, dev) >= limit) == is_yes(dev)
won = with_limit.astype(float) - on_own[sister]  # per row: 1, 0 or -1

# %% tags=["answer"]
with folded():
    print(f"The limit wins back {told_points(won)}", end="")
    print(": nothing." if won.mean() <= 0 else ".")

# %% [markdown]
# ### Does it do better than an encoder that was not trained?
#
# The *untrained cosine* says *yes* where the sentence vectors of the untrained MiniLM are similar enough. What is *enough* is learned: the best
# limit on the same 200 rows.
#
# **Predict before you run.** How many points is the model of SNLI above or below the untrained cosine?


# %% tags=["setup"]
# @title Set-up: the untrained cosine
cosine = studies.cosine_answers(known, dev, size.model) == is_yes(dev)
over = cosine.astype(float) - on_own[sister]  # per row: 1, 0 or -1

# %% tags=["answer"]
with folded():
    print(f"Untrained cosine minus model of {LABELS[sister]}: {told_points(over)}.")
    shown = {f"model of {LABELS[name]}": hits for name, hits in on_own.items()}
    shown |= {f"model of {LABELS[sister]}, with a limit": with_limit}
    shown |= {"untrained cosine": cosine, "always no": ~is_yes(dev)}
    table = {}
    for name, hits in shown.items():
        less = on_own[task].astype(float) - hits
        error = studies.group_error(less, groups)
        table[name] = 100 * np.array([hits.mean(), less.mean(), error])
    heads = ["accuracy, %", f"points below the model of {LABELS[task]}", "standard error"]
    display(pd.DataFrame(table, index=heads).T.style.format("{:.1f}").set_uuid("price"))

# %% [markdown]
# In the stored run, the limit does not help the model of SNLI (63.0 % against 64.3 %), so a badly placed limit does not explain its price. The
# untrained cosine is 5.2 ± 2.6 points above it, exactly at our limit of two standard errors: weak evidence. It is 4.9 ± 2.2 points below the
# own model. So a price shows that the own model knows more of *this* set. It does not show that the sister's model does better than the
# encoder did before training.
#
# ### The price of every pair, over six seeds
#
# `mmlkit reproduce mml-tables` trains every method on all seven mini sets, as bi-encoders, with six seeds, and `results/` holds these runs.
# Five sets have two labels, and each has two or three sisters, so there are twelve prices. (MNLI and SNLI have three labels, and an own
# accuracy on three labels cannot be compared with one on two.)

# %% tags=["setup"]
# @title Set-up: the recorded accuracies, and the two levels
ours = studies.recorded_protocol()
METHODS = {"bert": "BERT, one head", "mml": "MML"}
METHODS |= {"bert-ensemble": "384 heads", "mv-m": "384 orthogonal heads"}
TWO = ["rte", "qnli", "qqp", "mrpc", "stsb_star"]
untrained = {name: 100 * studies.recorded_cosine(name) for name in TWO}
shares = {name: 100 * is_yes(load_task(name, "mini").dev).mean() for name in TWO}
constant = {name: max(share, 100 - share) for name, share in shares.items()}


def accuracies(method, seed="mean"):
    """Dev accuracy in percent: a row per training set, a column per evaluated set."""
    part = ours[(ours["method"] == method) & (ours["split"] == "dev")]
    part = part if seed == "mean" else part[part["seed"] == seed]
    return 100 * part.pivot_table("accuracy", "trained_on", "evaluated_on")[TWO]


# %% tags=["setup"]
# @title Set-up: draws one evaluated set
def draw_set(ax, name, column, names):
    """One evaluated set: its own model, the models of its sisters, and two levels."""
    own, top = column[name], len(names)
    sisters = [one for one in LABELS if one != name and np.isfinite(column.get(one, np.nan))]
    names += [f"{LABELS[name]}: own model", *(f"after {LABELS[one]}" for one in sisters), ""]
    ax.plot(own, top, "D", color=plots.COLOURS[0], label="own model")
    for y, value in enumerate(column[sisters], start=top + 1):
        ax.plot([own, value], [y, y], color="0.7", linewidth=3, zorder=1, label="price, in points")
        ax.plot(value, y, "o", color=plots.COLOURS[1], label="model of a sister set")
        side = dict(transform=ax.get_yaxis_transform(), va="center", fontsize=8)
        ax.text(1.01, y, f"{own - value:+.1f}", **side)
    ends = top - 0.4, len(names) - 1.6
    ax.vlines(untrained[name], *ends, color="black", ls=":", label="untrained cosine")
    ax.vlines(constant[name], *ends, color="0.5", ls="--", label="most frequent answer")


# %% tags=["setup"]
# @title Set-up: draws all prices
def draw_prices(method, seed):
    """The accuracy of every model on every set with two labels."""
    table = accuracies(method, seed)
    title = f"{METHODS[method]}, {'mean of six seeds' if seed == 'mean' else f'seed {seed}'}"
    with plots.common.panels(1, 2, (10.5, 3.6)) as (axes,):
        for ax, sets in zip(axes, (TWO[:2], TWO[2:])):
            names = []
            for name in sets:
                draw_set(ax, name, table[name], names)
            ax.set_yticks(range(len(names)), names)
            ax.set(xlabel="dev accuracy, %", xlim=(48, 95), ylim=(len(names) - 1, -0.8))
        axes[0].figure.suptitle(title, fontsize=11)
        told = dict(zip(*axes[0].get_legend_handles_labels()[::-1]))  # each name once
        axes[0].figure.legend(told.values(), told, loc="outside lower center", ncols=5)


# %% [markdown]
# **Predict before you run.** Of BERT's twelve sister models, how many stay below the untrained cosine, although they were trained on the same
# kind of question?

# %% tags=["answer"]
with folded():
    of_bert = accuracies("bert")
    loss = {name: of_bert.loc[name, name] - of_bert[name].drop(name).dropna() for name in TWO}
    worse = {name: of_bert[name].drop(name).dropna() < untrained[name] for name in TWO}
    below, under = pd.concat(loss), pd.concat(worse).sum()
    print(f"{under} of {len(below)} stay below the untrained cosine.")
    print(f"{(below > 1).sum()} of {len(below)} are {below[below > 1].min():.0f} to", end=" ")
    print(f"{below.max():.0f} points below the own model, and the others within a point.")
    draw_prices("bert", "mean")
    plt.show()
    print("A grey bar is a price; its points stand at the right. Dotted: the untrained encoder,")
    print("with a limit chosen on 200 labelled rows of the evaluated set.")

# %% [markdown]
# The sister's task is not always useful: 5 of the 12 means lie below the cosine, the nearest by one point. Part of this can be the limit,
# because here a sister's model gets no labelled row of the set.
#
# A single seed can mislead. **Move the slider:** three of the twelve pairs change the sign of their price (at the right) with the seed. Which
# ones?

# %%
methods, numbers = ["bert", "mml", "bert-ensemble", "mv-m"], ["mean", 0, 1, 2, 3, 4, 5]
plots.sliders(draw_prices, start={"method": "bert", "seed": 2}, method=methods, seed=numbers)

# %% [markdown]
# <details><summary>Answer</summary>
#
# MRPC on QQP, and MRPC and QQP on STS-B\*. These are the three prices within a point of zero, so their sign means nothing. The other nine
# keep their sign with all six seeds.
#
# </details>
#
# So a sister set has a price, and MML could lower it.
#
# ## 4 Does MML lower the price?
#
# MML differs from BERT in three things: it has 384 heads, they are orthogonal, and weak ones are pruned. The recorded runs have a method for
# each step: `bert` (one head), `bert-ensemble` (384 heads), `mv-m` (384 orthogonal heads) and `mml` (and pruned), on the same rows and batches.
# We average over all pairs of sets and both splits, and keep the seeds apart, because two methods with the same seed are compared.


# %%
def on_sisters(runs):
    """Mean accuracy on sets that a model was not trained on, in points: seeds x methods."""
    away = runs[runs["trained_on"] != runs["evaluated_on"]]
    return 100 * away.pivot_table("accuracy", "seed", "method")


def minus(table, first, second):
    """The difference of two methods with its 95 % interval (resamples the seeds; notebook 00)."""
    return studies.paired_bootstrap(table[first], table[second])


# %%
def price_of_bert(runs, sets):
    """Own models against sister models on the dev rows, every evaluated set once."""
    part = runs.query("method == 'bert' and split == 'dev' and evaluated_on in @sets")
    own = part["trained_on"] == part["evaluated_on"]
    sides = {}
    for side, rows in {"own": part[own], "sister": part[~own]}.items():
        each = rows.groupby(["seed", "evaluated_on"])["accuracy"].mean()
        sides[side] = 100 * each.groupby("seed").mean()
    return minus(sides, "own", "sister")


# %% tags=["setup"]
# @title Set-up: draws differences beside the price
def told(found):
    """A difference with its interval, for a sentence."""
    return f"{found.difference:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def draw_beside_price(group, found, price):
    """Differences with their intervals, and the price of BERT on the same axis."""
    rows = [(group, *one) for one in found.items()]
    ax = plots.forest([*rows, ("the price", "BERT: own minus sister", price)], xlabel="points")
    ax.set_xlim(left=-3)
    zero = dict(better="above zero", worse="below zero", undecided="interval includes zero")
    for text in ax.get_legend().get_texts():
        text.set_text(zero.get(text.get_text(), text.get_text()))
    plt.show()


# %% tags=["setup"]
# @title Set-up: the gain on each pair
each = [accuracies("mml", seed) - accuracies("bert", seed) for seed in range(6)]
gains = pd.DataFrame([one.stack() for one in each]).dropna(axis=1)  # a row for each seed
gains = gains[[(a, b) for b in TWO for a in LABELS if a != b and (a, b) in gains]]
gains.columns = [f"on {LABELS[b]}, after {LABELS[a]}" for a, b in gains]
ahead_always, behind_always = (gains > 0).all(), (gains < 0).all()


# %% tags=["setup"]
# @title Set-up: draws the gain on each pair
def draw_gains():
    """What MML has more than BERT on each pair: six seeds and their mean."""
    places = np.arange(len(gains.columns))
    with plots.common.panel(size=(7, 3.8), xlabel="MML minus BERT, in points") as ax:
        for y in places[ahead_always]:
            ax.axhspan(y - 0.5, y + 0.5, color="0.92", zorder=0)
        dots = ax.plot(gains.T, places, "o", color=plots.COLOURS[0], alpha=0.5, markersize=4)
        (mean,) = ax.plot(gains.mean(), places, "D", color=plots.COLOURS[1])
        ax.axvline(0, **plots.common.DOTTED)
        ax.set_yticks(places, gains.columns)
        ax.set_ylim(len(places) - 0.5, -0.5)
        ax.legend([dots[0], mean], ["one seed", "mean of six"], **plots.common.OUTSIDE)
    plt.show()


# %% [markdown]
# **Predict before you run.** The mini data first. The price of BERT is about 7 points there, every set counted once. How many of them do the
# three steps together win back?

# %% tags=["answer"]
with folded():
    steps = {"384 heads": ("bert-ensemble", "bert"), "orthogonality": ("mv-m", "bert-ensemble")}
    steps |= {"pruning": ("mml", "mv-m"), "all three: MML minus BERT": ("mml", "bert")}
    found = {name: minus(on_sisters(ours), *pair) for name, pair in steps.items()}
    price = price_of_bert(ours, TWO)
    print("None that we see, and the interval of every single step includes zero, too.")
    print("MML minus BERT, in points:", told(found["all three: MML minus BERT"]))
    print("For comparison, the price that MML could lower:", told(price))
    draw_beside_price("what each step adds on sister sets", found, price)
    leads = ", ".join(gains.columns[ahead_always])
    print(f"Below, MML is ahead with all six seeds {leads} (grey), and behind with")
    print(f"all six on {behind_always.sum()} of {len(behind_always)} pairs.")
    draw_gains()

# %% [markdown]
# ### Real rows
#
# Small data might hide a gain. So three more experiments train a cross-encoder on real rows (about 2,000 of each set, and 2,934 of MRPC), with
# six seeds:
#
# | experiment | trained on | learning rates |
# |---|---|---|
# | `real-multiverse` | RTE and MRPC | 2e-4 for BERT, 1e-4 for MML |
# | `real-transfer` | MNLI, QNLI, SNLI, SciTail (inference on science questions), QQP, STS-B\* | 2e-4 for BERT, 1e-4 for MML |
# | `real-transfer-same-rate` | the same six sets | 1e-4 for both |
#
# A seventh seed chose the learning rates, on RTE and MRPC. MML prunes with scikit-learn's default bandwidth, which splits by chance (notebook
# 04). On the six sets, half of its runs are scored with a single head left. On RTE and MRPC, `mv-m` was run at the learning rate of BERT. MiniLM
# itself was pretrained on pairs of SNLI, MultiNLI, Quora and SQuAD, so *not trained on* means not by our fine-tuning.

# %% tags=["setup"]
# @title Set-up: the recorded runs on real rows
from mmlcourse.batch import recorded_experiments

names = {"task": "trained_on", "on": "evaluated_on", "value": "accuracy"}
real = {one.experiment.name: one.frame.rename(columns=names) for one in recorded_experiments()}
transfer = real["real-transfer"]
tables = {
    "MML, RTE and MRPC": on_sisters(real["real-multiverse"]),
    "MML, six sets, chosen learning rates": on_sisters(transfer),
    "MML, six sets, one learning rate": on_sisters(transfer).assign(
        bert=on_sisters(real["real-transfer-same-rate"])["bert"]
    ),
}

# %% tags=["setup"]
# @title Set-up: the runs of MML by the number of heads left
(six,) = (one for one in recorded_experiments() if one.experiment.name == "real-transfer")
of_mml = [run for run in six.results if run["parameters"]["method"] == "mml"]
left = {(p["task"], p["seed"]): run["heads_left"] for run in of_mml for p in [run["parameters"]]}
each = transfer[transfer["trained_on"] != transfer["evaluated_on"]]
each = 100 * each.pivot_table("accuracy", ["trained_on", "seed"], "method")
each = (each["mml"] - each["bert"]).groupby(each.index.map(left) == 1).agg(["mean", "sem", "size"])

# %% [markdown]
# **Predict before you run.** On the four of the six real sets that have two labels, the price of BERT is about 16 points. How many points is
# MML ahead of BERT on real sister sets?

# %% tags=["answer"]
with folded():
    found = {name: minus(table, "mml", "bert") for name, table in tables.items()}
    found["mv-m, RTE and MRPC"] = minus(tables["MML, RTE and MRPC"], "mv-m", "bert")
    price = price_of_bert(transfer, ["qnli", "scitail", "qqp", "stsb_star"])
    print("It is near zero, or behind. The figure has 95 % intervals, and the number of seeds.")
    draw_beside_price("minus BERT, on real sister sets", found, price)
    print("Price: dev rows, four sets. Lead: train and dev rows; with six sets, 40 cells.")
    for single, (mean, error, runs) in each.iterrows():
        kind = "a single head" if single else "several heads"
        print(f"MML minus BERT, scored with {kind}: {mean:+.1f} ± {error:.1f} ({runs:.0f} runs)")
    on_snli = transfer.query("trained_on == 'qnli' and evaluated_on == 'snli' and split == 'dev'")
    mml, bert = (100 * on_snli.groupby("method")["accuracy"].mean())[["mml", "bert"]]
    print(f"On SNLI after QNLI, dev: MML {mml:.1f} % against {bert:.1f} % of BERT.")

# %% [markdown]
# **The answer.** A sister set costs BERT 6.7 points (6.1 to 7.3) on the mini data and 15.5 points (15.0 to 16.0) on four real sets. We see no sign
# that MML lowers this price: on the mini data its effect is undecided, and on six real sets MML is 0.6 points *worse* at the chosen learning
# rates (undecided at one rate). In half of these runs of MML, the checkpoint that is scored has a single head left, so they say little about
# orthogonal heads; the mini data, with `mv-m`, say more.
#
# Remarks:
#
# - Among the runs that kept several heads, MML is no further ahead: MML minus BERT is -0.2 ± 0.8 points in the mean of runs (-0.6 in that of
#   cells), and -0.2 ± 0.6 (-0.6) with a single head.
# - Orthogonal heads without pruning (`mv-m`) were not run on the six real sets. On RTE and MRPC, against BERT at the same rate, they are
#   undecided.
# - The 6.7 and 15.5 points count all dev rows of a set. Section 3 has about 9 points for one pair, on balanced rows.
# - The largest loss is on SNLI after QNLI (dev: 48.6 % against 58.6 %), where always answering *no* reaches 66 %.
# - The mean over six real sets weighs 40 cells equally, and 32 of them are inference. With equal weight for the six training sets the interval
#   includes zero.
# - These runs do not refute the paper, because encoder, data, number of heads and the number of pruning checks differ.
#
# ## Exercises
#
# ### Exercise 1: the other rule
#
# ● ● ○ · 15 minutes
#
# Change the experiment of section 3: let the model of SNLI answer by the rule *sum* in place of *argmax* (section 2). Predict first: does it
# say *yes* more often or less often? Does its price rise or fall? Then compute both.

# %%
by_other_rule = ...  # by the rule sum: is each row of `dev` answered right by the sister's model?

if by_other_rule is not ...:
    print(f"price by sum: {100 * (on_own[task].mean() - by_other_rule.mean()):.1f} points")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `right` has an argument for the rule. `hits == is_yes(dev)` is true where the model said *yes*, if `hits` is the result of `right`.
#
# </details>

# %% tags=["answer"]
with folded("Solution: both rules"):
    yes, of_dev = is_yes(dev), dict(task=sister, precision=precision)
    three_way = predict_scores(models[sister], dev.texts, **of_dev)
    for rule in ("argmax", "sum"):
        hits = two_way(three_way, data[sister].task.labels, rule) == yes
        said_yes, price = (hits == yes).mean(), on_own[task].mean() - hits.mean()
        print(f"{rule:6}  yes to {said_yes:.0%} of the rows, price {100 * price:.1f} points")

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# by_other_rule = right(models[sister], sister, dev, "sum")
# ```
#
# *Sum* says yes only where entailment has more than a half, so it says yes less often. In the stored run it says yes to 20 % of the rows in
# place of 32 %, and half of the rows are *yes*. So its price rises from 10 to 15 points. The paper does not state its rule, but the rule changes a
# price by more than MML does.
#
# </details>

# %% [markdown]
# ### Exercise 2: the price for every set
#
# ● ● ○ · 15 minutes
#
# Section 3 measured the price on one set. Now compute it for any number of sets. For each evaluated set, it is the accuracy of
# its own model minus the mean accuracy of the other models *on that set*, in points.


# %%
def my_price(accuracy):
    """accuracy: {trained on: {evaluated on: from 0 to 1}}. Returns {evaluated on: points}."""
    ...


_ = checks.check_price(my_price)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Go down a column, not along a row: `accuracy[other][name]` for every `other` that is not `name`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prices = {}
# for name in accuracy:
#     sisters = [accuracy[other][name] for other in accuracy if other != name]
#     prices[name] = 100 * (accuracy[name][name] - sum(sisters) / len(sisters))
# return prices
# ```
#
# </details>

# %% [markdown]
# ### Exercise 3: the improvement of Tables 2 to 5
#
# ● ○ ○ · 10 minutes
#
# Compute the improvement of Tables 2 to 5, the mean of the ratios. `ours` and `baseline` have the accuracy on every set, the
# training set included. The order of the sets may differ. Cut the result to two decimals, towards zero.


# %%
def my_improvement(ours, baseline, own):
    """ours, baseline: {set: accuracy}. own: the set that both were trained on. Returns percent."""
    ...


_ = checks.check_improvement(my_improvement)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `math.trunc` cuts to a whole number, towards zero. Multiply the percentage by 100 before, and divide by 100 after.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# import math
#
# ratios = [ours[name] / baseline[name] for name in ours if name != own]
# return math.trunc(100 * 100 * (sum(ratios) / len(ratios) - 1)) / 100
# ```
#
# </details>

# %% [markdown]
# ### Exercise 4: the error of a mean over groups
#
# ● ● ● · 20 minutes
#
# Let $N$ rows form $G$ groups. Row $i$ has the value $d_i$, and $\bar d$ is the mean of all rows. The standard error of section 3 is
#
# $$\text{error} = \frac1N\sqrt{\frac{G}{G-1}\sum_g\Big(\sum_{i\in g}(d_i-\bar d)\Big)^2}$$
#
# Write this function. `groups` says which rows of `dev` were written together. Compare its result for `lost` and `groups` with the error of independent rows, `lost.std() / len(lost) ** 0.5`.


# %%
# groups: for each row of `dev`, which rows were written together (section 3)
def my_error(values, groups):
    """values: a number per row, [N]. groups: the group of each row, [N]. Returns one number."""
    ...


_ = checks.check_group_error(my_error)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Subtract the mean of all rows first, then add up within each group: `pd.Series(...).groupby(groups).sum()`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# sums = pd.Series(values - np.mean(values)).groupby(np.asarray(groups)).sum()
# return np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum()) / len(values)
# ```
#
# An error that treats the rows as independent is a different number, and it is wrong where rows share texts.
#
# </details>

# %% [markdown]
# ## If it goes wrong
#
# - *A model is far below the majority class on one set only*: labels were probably matched by position. Print
#   `get_task(name).labels` of both sets, and the labels of your files.
#
# ## Takeaways
#
# - A model loses on a sister set: 6.7 points on our mini data, and 15.5 on four real sets. We see no sign that MML loses less. But in half of
#   the runs on six real sets it had pruned itself to one head. Many orthogonal heads are tested on the mini data and, unpruned, on RTE and MRPC:
#   undecided.
# - 5 of the 12 sister models answer worse than the untrained encoder (which has a limit from 200 labelled rows that they lack). Always report
#   that baseline.
# - Measure a price on the same rows, with as many *yes* as *no*, and count rows that share texts as one group.
# - The improvement of the paper is a mean of ratios, so a gain of one point counts more on a low baseline.
#
# ## References
#
# Malkiel and Wolf (2021), *Maximal Multiverse Learning for Promoting Cross-Task Generalization of Fine-Tuned Language Models*, EACL.
# Field and Welsh (2007), *Bootstrapping Clustered Data*, Journal of the Royal Statistical Society B.
#
# Before: [04 Pruning heads](04_pruning_heads.ipynb). Next: [06 Reading published tables](06_published_tables.ipynb).
